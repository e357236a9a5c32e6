//! Bounds on tries: enough to stop a guesser, none that locks an owner out.

use testkit::Reply;
use tokio::sync::OnceCell;

use super::browser::Browser;
use super::stage::{NEW_PASSWORD, PASSWORD, Stage, arrives, fresh_email};

const PER_ACCOUNT: usize = 3;
const PER_NETWORK: usize = 8;
const PERIOD_S: u64 = 600;

static STAGE: OnceCell<Stage> = OnceCell::const_new();

/// A stage with small bounds.
async fn strict() -> &'static Stage {
    let open = async || {
        let (account, network) = (PER_ACCOUNT.to_string(), PER_NETWORK.to_string());
        let settings = [
            ("IPSEITY__PORTAL__TRIES_PER_ACCOUNT_MAX", account.as_str()),
            ("IPSEITY__PORTAL__TRIES_PER_NETWORK_MAX", &network),
        ];
        Stage::open(&settings).await
    };
    STAGE.get_or_init(open).await
}

/// A browser from a network that no other is from.
fn stranger(stage: &Stage) -> Browser {
    let [a, b, c] = [fastrand::u8(..), fastrand::u8(..), fastrand::u8(..)];
    stage.browser().in_network(&format!("10.{a}.{b}.{c}"))
}

async fn sign_in(browser: &mut Browser, email: &str, password: &str) -> Reply {
    browser.post("/signin", &[("email", email), ("password", password)]).await
}

#[track_caller]
fn is_throttled(reply: &Reply) {
    assert_eq!(reply.status, 429, "{}", reply.text());
    let seconds: u64 = reply.header("retry-after").and_then(|value| value.parse().ok()).expect("when to come back");
    assert!((1..=PERIOD_S).contains(&seconds), "{seconds}");
}

/// Spends all tries on an account, each from another network.
async fn spend_tries(stage: &Stage, email: &str) {
    for _ in 0..PER_ACCOUNT {
        assert_eq!(sign_in(&mut stranger(stage), email, "not the password").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guesser_is_stopped_and_the_owner_is_not() {
    let stage = strict().await;
    let email = stage.plant_member().await.email;
    let mut known = stranger(stage);
    arrives(&sign_in(&mut known, &email, PASSWORD).await, "/keys");
    arrives(&known.post("/signout", &[]).await, "/signin");

    spend_tries(stage, &email).await;
    is_throttled(&sign_in(&mut stranger(stage), &email, PASSWORD).await);
    is_throttled(&sign_in(&mut stranger(stage), &email.to_uppercase(), PASSWORD).await);
    // The browser that signed in before has tries of its own, wherever it is now.
    let mut elsewhere = known.on(stage.node()).in_network("192.0.2.77");
    arrives(&sign_in(&mut elsewhere, &email, PASSWORD).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_by_mail_is_a_way_in_for_an_owner_without_a_known_browser() {
    let stage = strict().await;
    let email = stage.plant_member().await.email;
    spend_tries(stage, &email).await;
    let mut owner = stranger(stage);
    is_throttled(&sign_in(&mut owner, &email, PASSWORD).await);
    assert_eq!(owner.post("/forgot", &[("email", &email)]).await.status, 200);
    let link = stage.mailed_link(&email, "password").await;
    arrives(&owner.post(&link, &[("password", NEW_PASSWORD)]).await, "/keys");
    arrives(&owner.post("/signout", &[]).await, "/signin");
    arrives(&sign_in(&mut owner, &email, NEW_PASSWORD).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_an_account_is_throttled_like_one_with() {
    let stage = strict().await;
    let email = fresh_email();
    spend_tries(stage, &email).await;
    is_throttled(&sign_in(&mut stranger(stage), &email, "not the password").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_browser_is_no_way_around_the_bound() {
    let stage = strict().await;
    let (email, other) = (stage.plant_member().await.email, stage.plant_member().await.email);
    let mut known = stranger(stage);
    arrives(&sign_in(&mut known, &email, PASSWORD).await, "/keys");
    let mut tries = 0;
    while sign_in(&mut known, &email, "not the password").await.status == 200 {
        tries += 1;
        assert!(tries <= PER_ACCOUNT, "a known browser tries for ever");
    }
    is_throttled(&sign_in(&mut known, &email, "not the password").await);
    // It is known to its own account alone.
    spend_tries(stage, &other).await;
    is_throttled(&sign_in(&mut known, &other, PASSWORD).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_password_is_never_one_too_many() {
    let stage = strict().await;
    let email = stage.plant_member().await.email;
    let mut known = stranger(stage);
    for _ in 0..=PER_NETWORK + PER_ACCOUNT {
        arrives(&sign_in(&mut known, &email, PASSWORD).await, "/keys");
        arrives(&known.post("/signout", &[]).await, "/signin");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_has_its_bound_and_others_do_not_feel_it() {
    let stage = strict().await;
    let mut member = stage.plant_member().await;
    // One customer has a whole /64.
    let networks = [
        ["198.51.100.7", "198.51.100.7", "198.51.100.8"],
        ["2001:db8:1:2::1", "2001:db8:1:2:ffff::1", "2001:db8:1:3::1"],
    ];
    for [one, same, another] in networks {
        for _ in 0..PER_NETWORK {
            let mut browser = stage.browser().in_network(one);
            assert_eq!(sign_in(&mut browser, &fresh_email(), "not the password").await.status, 200);
        }
        for (path, fields) in [
            ("/signin", &[("email", member.email.as_str()), ("password", PASSWORD)][..]),
            ("/signup", &[("email", "new@example.com"), ("password", PASSWORD)]),
            ("/forgot", &[("email", &member.email)]),
            ("/signin/passkey", &[]),
        ] {
            is_throttled(&stage.browser().in_network(same).post(path, fields).await);
        }
        let mut neighbour = stage.browser().in_network(another);
        arrives(&sign_in(&mut neighbour, &member.email, PASSWORD).await, "/keys");
        let mut inside = member.browser.on(stage.node()).in_network(one);
        assert_eq!(inside.get("/keys").await.status, 200, "whoever is signed in stays so");
    }
    assert_eq!(stage.psql("select count(*) from tickets where email = 'new@example.com'").await, "0");
    assert_eq!(member.browser.get("/keys").await.status, 200);
}
