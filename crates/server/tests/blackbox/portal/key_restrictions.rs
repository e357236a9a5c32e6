//! Restrictions of keys: presets of new keys, the form of the key's page, and what the pages show.

use ipseity_testkit::{IssuedKey, TestResponse};

use super::browser::SAME_ORIGIN;
use super::fixture::{PASSWORD, PortalFixture, TestMember, assert_redirects_to, key_shown_on, shared_fixture};

const LOOKUP_PATH: &str = "/api/v1/ip";
const SHOP: &str = "https://shop.example";

/// Creates a key with a preset.
async fn create_with(member: &mut TestMember, fields: &[(&str, &str)]) -> (TestResponse, IssuedKey) {
    let page = member.browser.post("/keys", &[&[("name", "Shop"), ("scope", "ip")], fields].concat()).await;
    let key = key_shown_on(&page).unwrap_or_else(|| panic!("no key: {}", page.text()));
    (page, key)
}

/// Makes lookups with these origins, or with none, and compares status and error code.
async fn assert_lookups(fixture: &PortalFixture, key: &IssuedKey, expected: &[(Option<&str>, u16, &str)]) {
    let bearer = key.bearer();
    for (origin, status, code) in expected {
        let origin_header = origin.map(|origin| ("origin", origin));
        let headers: Vec<_> = [("authorization", bearer.as_str())].into_iter().chain(origin_header).collect();
        let reply = fixture.node().client().get(LOOKUP_PATH, &headers).await.expect("response arrives");
        assert_eq!((reply.status, reply.text().contains(code)), (*status, true), "{origin:?}: {}", reply.text());
    }
}

/// The columns with the restrictions of a key.
async fn saved(fixture: &PortalFixture, key: &IssuedKey) -> String {
    let columns =
        "allowed_origins, allowed_networks, round(extract(epoch from expires_at - now()) / 86400), caller_limit,
        own_daily_limit";
    fixture.psql(&format!("select {columns} from keys where id = '{}'", key.id)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn presets_restrict_new_keys() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let origins = ("origins", "HTTPS://Shop.example:443\r\n");
    let (page, web) = create_with(&mut member, &[("preset", "web"), origins, ("networks", "ignored")]).await;
    assert_eq!(saved(fixture, &web).await, "{https://shop.example}|{}||30|");
    assert!(page.text().contains("Origin: https://shop.example"), "the command works: {}", page.text());
    let refused = |origin| (origin, 403, "origin_not_allowed");
    let expected = [(Some(SHOP), 200, "success"), refused(Some("https://other.example")), refused(None)];
    assert_lookups(fixture, &web, &expected).await;

    let networks = ("networks", "192.0.2.0/24\n2001:db8::7");
    let (_, server) = create_with(&mut member, &[("preset", "server"), networks]).await;
    assert_eq!(saved(fixture, &server).await, "{}|{192.0.2.0/24,2001:db8::7/128}|||");
    assert_lookups(fixture, &server, &[(None, 403, "network_not_allowed")]).await;

    let (_, trial) = create_with(&mut member, &[("preset", "trial"), origins]).await;
    assert_eq!(saved(fixture, &trial).await, "{}|{}|7||1000");
    let (_, unrestricted) = create_with(&mut member, &[("preset", "unrestricted"), origins, networks]).await;
    assert_eq!(saved(fixture, &unrestricted).await, "{}|{}|||");
    assert_lookups(fixture, &unrestricted, &[(None, 200, "success")]).await;
    let list = member.browser.get("/keys").await.text();
    assert_eq!(list.matches("· Restricted").count(), 3, "{list}");
    assert!(list.contains("of 1,000 today") && list.contains("of 10,000 today"), "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_preset_creates_no_key_and_keeps_the_input() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    for (fields, reason) in [
        (&[("preset", "web")][..], "Enter the origin of your page."),
        (&[("preset", "web"), ("origins", "shop.example")], "<code>shop.example</code> is not an origin."),
        (
            &[("preset", "server"), ("networks", "192.0.2.7/24")],
            "has bits after its prefix. The network is 192.0.2.0/24.",
        ),
        (&[("preset", "unknown")], "Choose what the key is for."),
    ] {
        let page = member.browser.post("/keys", &[&[("name", "Shop 7"), ("scope", "ip")], fields].concat()).await;
        let text = page.text();
        assert!(text.contains(reason) && text.contains("value=\"Shop 7\""), "{fields:?}: {text}");
        assert!(fields.iter().skip(1).all(|(_, value)| text.contains(&format!(">\n{value}</textarea>"))), "{text}");
    }
    assert_eq!(fixture.psql(&format!("select count(*) from keys where account_id = {}", member.id)).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_restrictions_apply_to_the_next_request() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, key) = create_with(&mut member, &[]).await;
    let (path, form) = (format!("/keys/{}", key.id), format!("/keys/{}/restrict", key.id));
    assert_lookups(fixture, &key, &[(None, 200, "success")]).await;

    let fields = [
        ("origins", "https://Shop.example\r\nhttps://shop.example"),
        ("networks", "127.0.0.0/8"),
        ("expires", "2099-01-31T14:30"),
        ("caller_limit", "80"),
        ("daily_limit", "20000"),
    ];
    let reply = member.browser.post(&form, &fields).await;
    assert_redirects_to(&reply, &path);
    assert_eq!(reply.header("location"), Some(format!("{path}?done=restricted").as_str()));
    assert_lookups(fixture, &key, &[(Some(SHOP), 200, "success"), (None, 403, "origin_not_allowed")]).await;
    let page = member.browser.get(&path).await.text();
    for part in [
        ">\nhttps://shop.example</textarea>",
        ">\n127.0.0.0/8</textarea>",
        "value=\"2099-01-31T14:30\"",
        "value=\"80\"",
        "value=\"20000\"",
        "Callers over IPv6 are rejected",
        "Set at most 37.",
        "This has no effect",
        "Expires <time datetime=\"2099-01-31T14:30Z\">31 Jan 2099, 14:30 UTC</time>",
        "of 10,000 today",
        "Restrictions changed <span>by you</span>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }

    // What the page shows is saved again without a change, and empty fields restrict nothing.
    let query = format!("select restriction_version from keys where id = '{}'", key.id);
    let before = fixture.psql(&query).await;
    assert_redirects_to(&member.browser.post(&form, &fields).await, &path);
    assert_eq!(fixture.psql(&query).await, before);
    assert_redirects_to(&member.browser.post(&form, &[]).await, &path);
    assert_eq!(saved(fixture, &key).await, "{}|{}|||");
    assert_lookups(fixture, &key, &[(None, 200, "success")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_restrictions_are_not_saved_and_keep_the_input() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, key) = create_with(&mut member, &[("preset", "web"), ("origins", SHOP)]).await;
    let before = fixture.snapshot(&member.email, &member.browser).await;
    let too_many = "192.0.2.1\n".repeat(51);
    for (name, value, reason) in [
        (
            "origins",
            "https://*.github.io\n<b>",
            "<code>https://*.github.io</code> allows web sites of different owners.",
        ),
        ("origins", "<b>", "<code>&#60;b&#62;</code> is not an origin."),
        ("networks", "0.0.0.0/0", "<code>0.0.0.0/0</code> allows every address."),
        ("networks", too_many.trim_end(), "A key has at most 50 allowed networks."),
        ("expires", "2020-01-01T00:00", "This time has passed."),
        ("expires", "soon", "Enter a date and a time in UTC."),
        ("caller_limit", "301", "Enter a number from 1 to 300."),
        ("daily_limit", "0", "Enter a number of at least 1."),
    ] {
        let page = member.browser.post(&format!("/keys/{}/restrict", key.id), &[(name, value)]).await;
        let text = page.text();
        assert!(page.status == 200 && text.contains("Nothing was saved.") && text.contains(reason), "{name}: {text}");
        let escaped = value.replace('<', "&#60;").replace('>', "&#62;");
        let kept = [format!("value=\"{escaped}\""), format!(">\n{escaped}</textarea>")];
        assert!(kept.iter().any(|kept| text.contains(kept)), "{name} = {value}: {text}");
    }
    assert_eq!(fixture.snapshot(&member.email, &member.browser).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_session_must_be_confirmed_and_keeps_the_input() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, key) = create_with(&mut member, &[("preset", "web"), ("origins", SHOP)]).await;
    let age = format!("update sessions set created_at = now() - interval '1 hour' where account_id = {}", member.id);
    fixture.psql(&age).await;
    let token = member.browser.csrf_token().await;
    let (form, fields) = (format!("/keys/{}/restrict", key.id), [("networks", "192.0.2.0/24"), ("csrf", &token)]);
    let page = member.browser.post_with(&form, &[SAME_ORIGIN], &fields).await.text();
    assert!(page.contains("Confirm it’s you") && page.contains(">\n192.0.2.0/24</textarea>"), "{page}");
    assert_eq!(saved(fixture, &key).await, "{https://shop.example}|{}||30|");

    // The form of the first tab can be saved after the confirmation in another tab.
    let confirmed =
        member.browser.post("/account/confirm/password", &[("password", PASSWORD), ("next", "/keys")]).await;
    assert_redirects_to(&confirmed, "/keys");
    let reply = member.browser.post_with(&form, &[SAME_ORIGIN], &fields).await;
    assert_redirects_to(&reply, &format!("/keys/{}", key.id));
    assert_eq!(saved(fixture, &key).await, "{}|{192.0.2.0/24}|||");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_key_is_shown_as_expired() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, key) = create_with(&mut member, &[("preset", "trial")]).await;
    fixture.psql(&format!("update keys set expires_at = now() - interval '1 hour' where id = '{}'", key.id)).await;
    for path in ["/keys", &format!("/keys/{}", key.id), "/usage"] {
        let page = member.browser.get(path).await.text();
        assert!(page.contains("<span class=\"badge expired\">Expired</span>"), "{path}: {page}");
    }
    let page = member.browser.get(&format!("/keys/{}", key.id)).await.text();
    assert!(page.contains("This key has expired.") && page.contains("/deactivate\""), "{page}");
    // Its other restrictions can be changed, and it stays expired.
    let expires =
        page.split("name=\"expires\"").nth(1).and_then(|rest| rest.split("value=\"").nth(1)?.split('"').next());
    let fields = [("origins", SHOP), ("expires", expires.expect("the saved expiry"))];
    assert_redirects_to(
        &member.browser.post(&format!("/keys/{}/restrict", key.id), &fields).await,
        &format!("/keys/{}", key.id),
    );
    assert_eq!(saved(fixture, &key).await, "{https://shop.example}|{}|0||");
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_was_opened_before_a_change_does_not_replace_it() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, key) = create_with(&mut member, &[("preset", "web"), ("origins", SHOP)]).await;
    let form = format!("/keys/{}/restrict", key.id);
    let version = fixture.psql(&format!("select restriction_version from keys where id = '{}'", key.id)).await;
    let output = fixture.deployment.cli(&["key", "restrict", &key.id, "--network", "192.0.2.0/24"]).await;
    assert!(output.expect("command runs").ensure_success().is_ok());
    let fields = [("caller_limit", "50"), ("version", version.as_str())];
    let page = member.browser.post(&form, &fields).await.text();
    assert!(page.contains("were changed after you opened this page") && page.contains("value=\"50\""), "{page}");
    assert_eq!(saved(fixture, &key).await, "{}|{192.0.2.0/24}|||");
    let version =
        page.split("name=\"version\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("version");
    assert_redirects_to(
        &member.browser.post(&form, &[("caller_limit", "50"), ("version", version)]).await,
        &format!("/keys/{}", key.id),
    );
    assert_eq!(saved(fixture, &key).await, "{}|{}||50|");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_say_how_an_operator_enables_restrictions() {
    let fixture = PortalFixture::open(&[]).await;
    let mut member = fixture.create_member().await;
    let (_, key) = create_with(&mut member, &[]).await;
    fixture.psql("update deployment set restrictions_enabled = false").await;
    let form = format!("/keys/{}/restrict", key.id);
    for (path, fields) in [
        (form.as_str(), &[("origins", SHOP)][..]),
        ("/keys", &[("name", "Shop"), ("scope", "ip"), ("preset", "web"), ("origins", SHOP)]),
    ] {
        let page = member.browser.post(path, fields).await.text();
        assert!(page.contains("ipseity key enable-restrictions"), "{path}: {page}");
        assert!(page.contains(&format!(">\n{SHOP}</textarea>")), "{path}: {page}");
    }
    assert_eq!(fixture.psql("select count(*) from keys").await, "1");
    let output = fixture.deployment.cli(&["key", "enable-restrictions"]).await.expect("command runs");
    assert!(output.ensure_success().is_ok());
    assert_redirects_to(&member.browser.post(&form, &[("origins", SHOP)]).await, &format!("/keys/{}", key.id));
}
