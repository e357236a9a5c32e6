//! Throttling of sign-in attempts, which stops guessing without locking the owner out, and of key actions.

use futures_util::future::join_all;
use ipseity_domain::Scope;
use ipseity_testkit::TestResponse;
use tokio::sync::OnceCell;

use super::browser::{Browser, DEVICE_COOKIE, SESSION_COOKIE};
use super::fixture::{
    NEW_PASSWORD, PASSWORD, PortalFixture, assert_redirects_to, fresh_email, fresh_email_with_look_alikes, fresh_secret,
};

const ATTEMPTS_PER_ACCOUNT: usize = 3;
const ATTEMPTS_PER_NETWORK: usize = 8;
const KEY_ACTIONS_PER_ACCOUNT: usize = 6;
const CHANGES_PER_ACCOUNT: usize = 3;
const PERIOD_S: u64 = 600;

static FIXTURE: OnceCell<PortalFixture> = OnceCell::const_new();

/// A fixture with low limits.
async fn strict_fixture() -> &'static PortalFixture {
    let open = async || {
        let (account, network) = (ATTEMPTS_PER_ACCOUNT.to_string(), ATTEMPTS_PER_NETWORK.to_string());
        let (key_actions, changes) = (KEY_ACTIONS_PER_ACCOUNT.to_string(), CHANGES_PER_ACCOUNT.to_string());
        let settings = [
            ("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_ACCOUNT_MAX", account.as_str()),
            ("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_SUBNET_MAX", &network),
            ("IPSEITY__PORTAL__KEY_ACTIONS_PER_ACCOUNT_MAX", &key_actions),
            ("IPSEITY__PORTAL__ACCOUNT_CHANGES_PER_ACCOUNT_MAX", &changes),
        ];
        PortalFixture::open(&settings).await
    };
    FIXTURE.get_or_init(open).await
}

/// A browser with a new client address.
fn browser_from_new_network(fixture: &PortalFixture) -> Browser {
    let [a, b, c] = [fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
    fixture.browser().with_network(&format!("10.{a}.{b}.{c}"))
}

async fn sign_in(browser: &mut Browser, email: &str, password: &str) -> TestResponse {
    browser.post("/signin", &[("email", email), ("password", password)]).await
}

#[track_caller]
fn assert_throttled(reply: &TestResponse) {
    assert_eq!(reply.status, 429, "{}", reply.text());
    let seconds: u64 =
        reply.header("retry-after").and_then(|value| value.parse().ok()).expect("response has Retry-After");
    assert!((1..=PERIOD_S).contains(&seconds), "{seconds}");
}

/// Uses up all attempts on an account, each from another network.
async fn use_up_attempts(fixture: &PortalFixture, email: &str) {
    for _ in 0..ATTEMPTS_PER_ACCOUNT {
        assert_eq!(sign_in(&mut browser_from_new_network(fixture), email, "not the password").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn password_guessing_is_throttled_but_the_owner_can_sign_in() {
    let fixture = strict_fixture().await;
    let email = fixture.create_member().await.email;
    let mut known = browser_from_new_network(fixture);
    assert_redirects_to(&sign_in(&mut known, &email, PASSWORD).await, "/keys");
    assert_redirects_to(&known.post("/signout", &[]).await, "/signin");

    use_up_attempts(fixture, &email).await;
    assert_throttled(&sign_in(&mut browser_from_new_network(fixture), &email, PASSWORD).await);
    assert_throttled(&sign_in(&mut browser_from_new_network(fixture), &email.to_uppercase(), PASSWORD).await);
    // The browser that signed in before has a separate limit, in any network.
    let mut elsewhere = known.on_node(fixture.node()).with_network("192.0.2.77");
    assert_redirects_to(&sign_in(&mut elsewhere, &email, PASSWORD).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn look_alike_of_an_email_gives_no_further_attempts() {
    let fixture = strict_fixture().await;
    let (email, look_alikes) = fresh_email_with_look_alikes();
    fixture.create_member_with_email(email.clone()).await;
    use_up_attempts(fixture, &email).await;
    for typed in look_alikes {
        let reply = sign_in(&mut browser_from_new_network(fixture), &typed, PASSWORD).await;
        assert_ne!(reply.status, 303, "signed in as {typed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_owner_can_sign_in_with_a_reset_link() {
    let fixture = strict_fixture().await;
    let email = fixture.create_member().await.email;
    use_up_attempts(fixture, &email).await;
    let mut owner = browser_from_new_network(fixture);
    assert_throttled(&sign_in(&mut owner, &email, PASSWORD).await);
    assert_eq!(owner.post("/forgot", &[("email", &email)]).await.status, 200);
    let link = fixture.emailed_link_path(&email, "password").await;
    assert_redirects_to(&owner.post(&link, &[("password", NEW_PASSWORD)]).await, "/keys");
    assert_redirects_to(&owner.post("/signout", &[]).await, "/signin");
    assert_redirects_to(&sign_in(&mut owner, &email, NEW_PASSWORD).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_email_is_throttled_like_a_known_one() {
    let fixture = strict_fixture().await;
    let email = fresh_email();
    use_up_attempts(fixture, &email).await;
    assert_throttled(&sign_in(&mut browser_from_new_network(fixture), &email, "not the password").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn known_device_is_throttled_too() {
    let fixture = strict_fixture().await;
    let (email, other) = (fixture.create_member().await.email, fixture.create_member().await.email);
    let mut known = browser_from_new_network(fixture);
    assert_redirects_to(&sign_in(&mut known, &email, PASSWORD).await, "/keys");
    let mut attempts = 0;
    while sign_in(&mut known, &email, "not the password").await.status == 200 {
        attempts += 1;
        assert!(attempts <= ATTEMPTS_PER_ACCOUNT, "a known browser is not throttled");
    }
    assert_throttled(&sign_in(&mut known, &email, "not the password").await);
    // It is known only to one account.
    use_up_attempts(fixture, &other).await;
    assert_throttled(&sign_in(&mut known, &other, PASSWORD).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn correct_password_is_never_throttled() {
    let fixture = strict_fixture().await;
    let email = fixture.create_member().await.email;
    let mut known = browser_from_new_network(fixture);
    for _ in 0..=ATTEMPTS_PER_NETWORK + ATTEMPTS_PER_ACCOUNT {
        assert_redirects_to(&sign_in(&mut known, &email, PASSWORD).await, "/keys");
        assert_redirects_to(&known.post("/signout", &[]).await, "/signin");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_throttle_applies_per_network() {
    let fixture = strict_fixture().await;
    let mut member = fixture.create_member().await;
    // A whole /64 counts as one network.
    let networks = [
        ["198.51.100.7", "198.51.100.7", "198.51.100.8"],
        ["2001:db8:1:2::1", "2001:db8:1:2:ffff::1", "2001:db8:1:3::1"],
    ];
    for [one, same, another] in networks {
        for _ in 0..ATTEMPTS_PER_NETWORK {
            let mut browser = fixture.browser().with_network(one);
            assert_eq!(sign_in(&mut browser, &fresh_email(), "not the password").await.status, 200);
        }
        for (path, fields) in [
            ("/signin", &[("email", member.email.as_str()), ("password", PASSWORD)][..]),
            ("/signup", &[("email", "new@example.com"), ("password", PASSWORD)]),
            ("/forgot", &[("email", &member.email)]),
            ("/signin/passkey", &[]),
            ("/signin/provider/0", &[]),
        ] {
            assert_throttled(&fixture.browser().with_network(same).post(path, fields).await);
        }
        let mut neighbor = fixture.browser().with_network(another);
        assert_redirects_to(&sign_in(&mut neighbor, &member.email, PASSWORD).await, "/keys");
        let mut inside = member.browser.on_node(fixture.node()).with_network(one);
        assert_eq!(inside.get("/keys").await.status, 200, "signed-in members are not affected");
    }
    assert_eq!(fixture.psql("select count(*) from tickets where email = 'new@example.com'").await, "0");
    assert_eq!(member.browser.get("/keys").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_guesses_cannot_exceed_the_limit() {
    let fixture = strict_fixture().await;
    let email = fixture.create_member().await.email;
    let guesses = (0..24).map(async |_| {
        let mut browser = browser_from_new_network(fixture);
        browser.csrf_token().await;
        sign_in(&mut browser, &email, "not the password").await.status
    });
    let statuses = join_all(guesses).await;
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), ATTEMPTS_PER_ACCOUNT, "{statuses:?}");
}

/// A stranger from a new network with an unknown email.
async fn sign_in_as_stranger(fixture: &PortalFixture) -> (Browser, String, u16) {
    let (mut browser, email) = (browser_from_new_network(fixture), fresh_email());
    let status = sign_in(&mut browser, &email, "not the password").await.status;
    (browser, email, status)
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_sign_ins_neither_stops_a_known_browser_nor_uses_up_attempts() {
    // A busy attempt that counted would be the only one.
    let fixture = PortalFixture::open(&[
        ("IPSEITY__PORTAL__PASSWORD_QUEUE_MAX", "1"),
        ("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_ACCOUNT_MAX", "1"),
        ("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_SUBNET_MAX", "1"),
    ])
    .await;
    let email = fixture.create_member().await.email;
    let mut known = browser_from_new_network(&fixture);
    assert_redirects_to(&sign_in(&mut known, &email, PASSWORD).await, "/keys");

    let flood = join_all((0..40).map(|_| async {
        let mut outcomes = Vec::new();
        for _ in 0..5 {
            outcomes.push(sign_in_as_stranger(&fixture).await);
        }
        outcomes
    }));
    let owner = async {
        for _ in 0..10 {
            assert_redirects_to(&sign_in(&mut known, &email, PASSWORD).await, "/keys");
        }
    };
    let (outcomes, ()) = tokio::join!(flood, owner);
    let busy: Vec<_> = outcomes.into_iter().flatten().filter(|(_, _, status)| *status == 503).collect();
    assert!(busy.len() > 20, "the flood is too small: {} rejected", busy.len());
    for (mut browser, email, _) in busy.into_iter().take(5) {
        assert_eq!(sign_in(&mut browser, &email, "not the password").await.status, 200, "a busy attempt counted");
        assert_throttled(&sign_in(&mut browser, &email, "not the password").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stolen_session_cannot_guess_the_password_from_many_networks() {
    let fixture = strict_fixture().await;
    let member = fixture.create_member().await;
    let forms: [(&str, &[(&str, &str)]); 3] = [
        ("/account/delete", &[("password", "not the password")]),
        ("/account/password", &[("current", "not the password"), ("password", NEW_PASSWORD)]),
        ("/account/email", &[("email", "thief@example.com"), ("password", "not the password")]),
    ];
    let mut thief = member.browser.on_node(fixture.node());
    for (attempt, (path, fields)) in forms.iter().cycle().take(2 * ATTEMPTS_PER_ACCOUNT).enumerate() {
        thief = thief.with_network(&format!("10.99.0.{attempt}"));
        let reply = thief.post(path, fields).await;
        if attempt < ATTEMPTS_PER_ACCOUNT {
            assert_eq!(reply.status, 200, "{path}");
        } else {
            assert_throttled(&reply);
        }
    }
    let mut owner = browser_from_new_network(fixture);
    assert_redirects_to(&sign_in(&mut owner, &member.email, PASSWORD).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_cookies_and_links_are_looked_up_a_limited_number_of_times() {
    const LOOKUPS: usize = 5;
    let lookups = LOOKUPS.to_string();
    let fixture = PortalFixture::open(&[("IPSEITY__PORTAL__UNKNOWN_LOOKUPS_PER_SUBNET_MAX", &lookups)]).await;
    let mut member = fixture.create_member().await;
    let mut known = fixture.browser();
    assert_redirects_to(&sign_in(&mut known, &member.email, PASSWORD).await, "/keys");
    assert_eq!(member.browser.get("/keys").await.status, 200);

    let mut visitor = fixture.browser();
    visitor.set_cookie(SESSION_COOKIE, &fresh_secret());
    for _ in 0..2 * LOOKUPS {
        assert_redirects_to(&visitor.get("/keys").await, "/signin");
    }
    // The cookies that were set before count too, such as that of the sign-in form.
    let mut statuses = Vec::new();
    for _ in 0..2 * LOOKUPS {
        visitor.set_cookie(SESSION_COOKIE, &fresh_secret());
        statuses.push(visitor.get("/keys").await.status);
    }
    assert!(statuses.starts_with(&[303]) && statuses.ends_with(&[429; LOOKUPS]), "{statuses:?}");
    assert_throttled(&visitor.get("/keys").await);
    assert_throttled(&visitor.get(&format!("/link/{}", fresh_secret())).await);
    assert_eq!(visitor.get("/signin").await.status, 200, "a page for everyone needs no lookup");

    assert_eq!(member.browser.get("/keys").await.status, 200, "a known session continues to work");
    assert_eq!(known.get("/keys").await.status, 200);
    visitor.set_cookie(DEVICE_COOKIE, &fresh_secret());
    assert_redirects_to(&sign_in(&mut visitor, &member.email, PASSWORD).await, "/keys");
    assert_eq!(visitor.get("/keys").await.status, 200, "a new session works");
    let mut elsewhere = browser_from_new_network(&fixture);
    elsewhere.set_cookie(SESSION_COOKIE, &fresh_secret());
    assert_redirects_to(&elsewhere.get("/keys").await, "/signin");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_actions_are_throttled_but_revocations_are_not() {
    let fixture = strict_fixture().await;
    let (mut member, mut neighbor) = (fixture.create_member().await, fixture.create_member().await);
    let key = member.create_key("one", Scope::Ip).await;
    let page = format!("/keys/{}", key.id);
    for number in 1..KEY_ACTIONS_PER_ACCOUNT {
        let renamed = member.browser.post(&format!("{page}/rename"), &[("name", &number.to_string())]).await;
        assert_redirects_to(&renamed, &page);
    }
    let history = format!("select count(*) from history where key_id = '{}'", key.id);
    let rows = fixture.psql(&history).await;
    for (path, fields) in [
        (format!("{page}/rename"), &[("name", "again")][..]),
        (format!("{page}/rotate"), &[("overlap_s", "0"), ("confirmed", "yes")]),
        (format!("{page}/reactivate"), &[]),
        (format!("{page}/resume"), &[]),
        ("/keys".to_owned(), &[("name", "two"), ("scope", "ip")]),
    ] {
        let reply = member.browser.post(&path, fields).await;
        assert_throttled(&reply);
        assert!(reply.text().contains("Too many changes"), "{}", reply.text());
    }
    assert_eq!(fixture.psql(&history).await, rows, "a throttled action changes nothing");
    assert_redirects_to(&member.browser.post(&format!("{page}/deactivate"), &[]).await, &page);
    assert_redirects_to(&member.browser.post(&format!("{page}/delete"), &[("typed", &key.id)]).await, "/keys");
    neighbor.create_key("another account", Scope::Ip).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_send_emails_are_throttled_per_account() {
    let fixture = strict_fixture().await;
    let (mut member, mut neighbor) = (fixture.create_member().await, fixture.create_member().await);
    let request_change = async |browser: &mut Browser| {
        let email = fresh_email();
        let reply = browser.post("/account/email", &[("email", &email), ("password", PASSWORD)]).await;
        (reply, fixture.psql(&format!("select count(*) from tickets where email = '{email}'")).await)
    };
    for _ in 0..CHANGES_PER_ACCOUNT {
        let (reply, queued) = request_change(&mut member.browser).await;
        assert_eq!((reply.status, queued.as_str()), (200, "1"), "{}", reply.text());
    }
    let (reply, queued) = request_change(&mut member.browser).await;
    assert_throttled(&reply);
    assert!(reply.text().contains("Too many changes") && queued == "0", "{}", reply.text());
    assert_throttled(&member.browser.post("/account/passkeys/begin", &[("password", PASSWORD)]).await);
    assert_eq!(request_change(&mut neighbor.browser).await.0.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_resume_within_a_minute_is_refused_with_the_time_to_wait() {
    let fixture = strict_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("busy", Scope::Ip).await;
    let page = format!("/keys/{}", key.id);
    let mut caller = fixture.node().client();
    let mut pause = async || {
        for _ in 0..301 {
            let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives");
            if reply.status != 200 {
                return reply.status;
            }
        }
        200
    };
    assert_eq!(pause().await, 429);
    let resumed = member.browser.post(&format!("{page}/resume"), &[]).await;
    assert_redirects_to(&resumed, &page);
    assert_eq!(pause().await, 429);
    let refused = member.browser.post(&format!("{page}/resume"), &[]).await;
    assert_eq!(refused.status, 200);
    assert!(refused.text().contains("You can resume a key once a minute. Try again in "), "{}", refused.text());
    assert_eq!(pause().await, 403, "the key is still paused");
    let by_operator = fixture.deployment.cli(&["key", "resume", &key.id]).await.expect("command runs");
    by_operator.ensure_success().expect("operators are not limited");
    assert_eq!(pause().await, 429);
}
