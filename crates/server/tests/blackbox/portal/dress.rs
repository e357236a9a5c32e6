//! What every page carries: cookies that no script and no other site can read, and a policy that lets nothing in from elsewhere.

use testkit::Reply;

use super::browser::{DEVICE, SESSION};
use super::stage::{PASSWORD, arrives, stage};
use super::table::{Owner, ROWS};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

fn cookies(reply: &Reply) -> Vec<String> {
    reply.headers.get_all("set-cookie").iter().map(|line| line.to_str().expect("text").to_owned()).collect()
}

/// Holds an answer to setting just these cookies, with just these attributes.
#[track_caller]
fn sets(reply: &Reply, expected: &[(&str, u64)]) {
    let found = cookies(reply);
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (line, (name, lasts_s)) in found.iter().zip(expected) {
        let (pair, attributes) = line.split_once("; ").expect("attributes");
        assert_eq!(attributes, format!("Path=/; Max-Age={lasts_s}; Secure; HttpOnly; SameSite=Lax"), "{name}");
        let value = pair.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).expect("its name");
        assert!(name.starts_with("__Host-"));
        assert!(value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()), "256 bits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_for_this_host_over_tls_and_for_no_script() {
    const SESSION_S: u64 = 30 * 86_400;
    const DEVICE_S: u64 = 365 * 86_400;
    let stage = stage().await;
    let member = stage.plant_member().await;
    let mut browser = stage.browser();
    sets(&browser.get("/signin").await, &[(SESSION, SESSION_S)]);
    sets(&browser.get("/signin").await, &[]);
    let wrong = [("email", member.email.as_str()), ("password", "not the password")];
    sets(&browser.post("/signin", &wrong).await, &[]);
    let right = [("email", member.email.as_str()), ("password", PASSWORD)];
    sets(&browser.post("/signin", &right).await, &[(SESSION, SESSION_S), (DEVICE, DEVICE_S)]);
    sets(&browser.get("/keys").await, &[]);
    sets(&browser.post("/signout", &[]).await, &[(SESSION, SESSION_S)]);
}

#[track_caller]
fn is_dressed(reply: &Reply, what: &str) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("strict-transport-security", "max-age=15552000"),
    ] {
        let lines: Vec<_> = reply.headers.get_all(name).iter().collect();
        assert_eq!(lines, [value], "{name} of {what}");
    }
    assert!(!reply.headers.contains_key("access-control-allow-credentials"), "{what}");
    let text = reply.text();
    for inline in ["<style", "style=\"", "<script>", "javascript:", "onclick=", "onload=", "src=\"http", "src=\"//"] {
        assert!(!text.contains(inline), "{inline} in {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_the_policy_and_is_kept_by_nobody() {
    let stage = stage().await;
    let (owner, mut member) = Owner::plant(stage).await;
    for row in ROWS.iter().filter(|row| !row.is_form()) {
        let (name, path) = (row.name(), owner.path(row));
        if row.is_endless() {
            let stream = member.listen(stage.node(), &path).await;
            let reply = Reply { status: stream.status, headers: stream.headers.clone(), body: "".into() };
            assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
            is_dressed(&reply, &name);
        } else {
            let reply = member.get(&path).await;
            assert_eq!(reply.status, 200, "{name}");
            is_dressed(&reply, &name);
        }
        is_dressed(&stage.browser().get(&path).await, &format!("{name} to a stranger"));
    }
    for path in ["/keys/0123456789", "/link/x", "/keys/0123456789/usage.csv"] {
        is_dressed(&member.get(path).await, path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answers_to_forms_have_it_too() {
    let stage = stage().await;
    for row in ROWS.iter().filter(|row| row.is_form()) {
        let (owner, mut browser) = Owner::plant(stage).await;
        is_dressed(&browser.post_with(&owner.path(row), &[], &owner.fields(row)).await, "a refused form");
        is_dressed(&owner.visited_by(&mut browser, row).await, &row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_repeats_what_was_typed_as_text() {
    const TYPED: &str = "\"><script>alert(1)</script>'&amp;";
    let stage = stage().await;
    let mut member = stage.plant_member().await;
    let key = member.make_key(TYPED, domain::Scope::Ip).await;
    let mut stranger = stage.browser();
    let mut pages = Vec::new();
    for path in ["/signin", "/signup", "/forgot"] {
        pages.push(stranger.post(path, &[("email", TYPED), ("password", TYPED)]).await);
    }
    arrives(
        &member.browser.post(&format!("/keys/{}/rename", key.id), &[("name", TYPED)]).await,
        &format!("/keys/{}", key.id),
    );
    let own = [format!("/keys/{}", key.id), format!("/keys/{}/delete", key.id)];
    for path in
        ["/keys", "/usage", "/account", "/keys?done=%3Cscript%3E"].into_iter().chain(own.iter().map(String::as_str))
    {
        pages.push(member.browser.get(path).await);
    }
    pages.push(member.browser.post("/keys", &[("name", TYPED), ("scope", TYPED)]).await);
    pages.push(stranger.get("/docs/search?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E").await);
    for page in pages {
        assert!(page.status == 200 && !page.text().contains("<script>"), "{}: {}", page.status, page.text());
    }
}
