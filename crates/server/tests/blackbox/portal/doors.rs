//! Sessions: what opens one, what ends one, and what is known of it.

use testkit::{Needle, Search};

use super::browser::{Browser, DEVICE, SESSION};
use super::stage::{Member, NEW_PASSWORD, PASSWORD, Stage, arrives, fresh_secret, stage};

async fn sign_in(browser: &mut Browser, email: &str, password: &str) {
    arrives(&browser.post("/signin", &[("email", email), ("password", password)]).await, "/keys");
}

/// Holds a cookie to being worth nothing: whoever presents it is a stranger.
async fn is_worthless(stage: &Stage, value: &str, why: &str) {
    let mut thief = stage.browser();
    thief.set_cookie(SESSION, value);
    for path in ["/keys", "/account", "/events", "/usage.csv"] {
        let reply = thief.get(path).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/signin")), "{why}: {path}");
    }
}

fn session_of(browser: &Browser) -> String {
    browser.cookie(SESSION).expect("a session").to_owned()
}

/// The number of a browser's session, as its owner's list names it.
async fn number_of(stage: &Stage, browser: &Browser) -> String {
    stage.psql(&format!("select id from sessions where digest = sha256('{}')", session_of(browser))).await
}

/// Somebody with a second browser that is signed in, too.
async fn twice_signed_in(stage: &Stage) -> (Member, Browser) {
    let member = stage.plant_member().await;
    let mut second = stage.browser();
    sign_in(&mut second, &member.email, PASSWORD).await;
    (member, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_from_before_a_sign_in_is_worth_nothing_after_it() {
    let stage = stage().await;
    let member = stage.plant_member().await;
    let (planted, device) = (fresh_secret(), fresh_secret());
    let mut victim = stage.browser();
    victim.set_cookie(SESSION, &planted);
    sign_in(&mut victim, &member.email, PASSWORD).await;
    assert_ne!(victim.cookie(SESSION), Some(planted.as_str()));
    is_worthless(stage, &planted, "planted before a sign-in").await;

    let first = session_of(&victim);
    victim.set_cookie(DEVICE, &device);
    sign_in(&mut victim, &member.email, PASSWORD).await;
    is_worthless(stage, &first, "of the sign-in before").await;

    let second = session_of(&victim);
    let link = stage.plant_reset(&member.email).await;
    arrives(&victim.post(&link, &[("password", NEW_PASSWORD)]).await, "/keys");
    is_worthless(stage, &second, "from before a new password by mail").await;
    assert_eq!(victim.get("/keys").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_is_worth_nothing_after_a_sign_out() {
    let stage = stage().await;
    let (mut member, mut second) = twice_signed_in(stage).await;
    let ended = session_of(&second);
    arrives(&second.post("/signout", &[]).await, "/signin");
    assert_ne!(second.cookie(SESSION), Some(ended.as_str()), "the browser begins a new visit");
    is_worthless(stage, &ended, "signed out").await;
    assert_eq!(member.browser.get("/keys").await.status, 200, "other sessions go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_can_be_ended_from_another() {
    let stage = stage().await;
    let (mut member, second) = twice_signed_in(stage).await;
    let path = format!("/account/sessions/{}/end", number_of(stage, &second).await);
    arrives(&member.browser.post(&path, &[]).await, "/account");
    is_worthless(stage, &session_of(&second), "ended from another").await;
    assert_eq!(member.browser.post(&path, &[]).await.status, 404, "it is no more");

    let mut third = stage.browser();
    sign_in(&mut third, &member.email, PASSWORD).await;
    arrives(&member.browser.post("/account/sessions/end-others", &[]).await, "/account");
    is_worthless(stage, &session_of(&third), "ended with all others").await;

    let (own, path) = (session_of(&member.browser), number_of(stage, &member.browser).await);
    arrives(&member.browser.post(&format!("/account/sessions/{path}/end"), &[]).await, "/signin");
    is_worthless(stage, &own, "ended by itself").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_password_ends_every_other_session_and_the_old_password() {
    let stage = stage().await;
    let (mut member, second) = twice_signed_in(stage).await;
    let wrong = [("current", "not the password"), ("password", NEW_PASSWORD)];
    assert_eq!(member.browser.post("/account/password", &wrong).await.status, 200);
    let right = [("current", PASSWORD), ("password", NEW_PASSWORD)];
    arrives(&member.browser.post("/account/password", &right).await, "/account");
    is_worthless(stage, &session_of(&second), "from before a new password").await;
    assert_eq!(member.browser.get("/keys").await.status, 200, "the one that changed it goes on");
    let mut again = stage.browser();
    let old = again.post("/signin", &[("email", &member.email), ("password", PASSWORD)]).await;
    assert_eq!(old.status, 200, "the old password opens nothing");
    sign_in(&mut again, &member.email, NEW_PASSWORD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_account_leaves_neither_a_session_nor_a_row() {
    let stage = stage().await;
    let (mut member, mut second) = twice_signed_in(stage).await;
    let key = member.make_key("short-lived", domain::Scope::Ip).await;
    let link = stage.plant_reset(&member.email).await;
    assert_eq!(member.browser.post("/account/delete", &[("password", "not the password")]).await.status, 200);
    assert_eq!(second.get("/keys").await.status, 200);
    arrives(&member.browser.post("/account/delete", &[("password", PASSWORD)]).await, "/signin");
    is_worthless(stage, &session_of(&second), "of a deleted account").await;
    assert_eq!(second.get(&link).await.status, 410);
    assert_eq!(stage.snapshot(&member.email, &second).await, "", "rows that outlive their account");
    assert_eq!(stage.psql(&format!("select count(*) from keys where account_id = {}", member.id)).await, "0");
    let refused = stage.node().caller().get("/api/v1/ip", &[("authorization", &key.bearer())]).await;
    assert_eq!(refused.expect("an answer").status, 401, "its key is refused on the next request");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_session_ends() {
    let stage = stage().await;
    let mut member = stage.plant_member().await;
    let idle = |days: u32| {
        format!("update sessions set seen_at = now() - interval '{days} days' where account_id = {}", member.id)
    };
    stage.psql(&idle(29)).await;
    assert_eq!(member.browser.get("/keys").await.status, 200);
    stage.psql(&idle(30)).await;
    is_worthless(stage, &session_of(&member.browser), "idle for 30 days").await;
    arrives(&member.browser.get("/keys").await, "/signin");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_opens_a_door_is_nowhere_in_clear() {
    let stage = stage().await;
    let mut member = stage.sign_up().await;
    let email = member.email.clone();
    let key = member.make_key("secret", domain::Scope::Ip).await;
    assert_eq!(stage.browser().post("/forgot", &[("email", &email)]).await.status, 200);
    let link = stage.mailed_link(&email, "password").await;
    let token = link.trim_start_matches("/link/").to_owned();
    let form = member.browser.token().await;
    let device = member.browser.cookie(DEVICE).expect("a known device").to_owned();
    let secrets = [session_of(&member.browser), device, token, form, key.key, PASSWORD.to_owned()];

    let known = |secret: &str| format!("select count(*) from sessions where digest = sha256('{secret}')");
    assert_eq!(stage.psql(&known(&secrets[0])).await, "1", "a session is known by its digest");
    let search = Search::open(secrets.clone().map(Needle::Text)).expect("a search");
    let dump = stage.house.postgres.dump("ipseity").await.expect("a dump");
    assert_eq!(search.bytes("the database", &dump), []);
    let silent = Search::open(secrets.into_iter().chain([email]).map(Needle::Text)).expect("a search");
    for (place, log) in [("the node's log", stage.node().log()), ("PostgreSQL's log", stage.house.postgres.log())] {
        assert_eq!(silent.bytes(place, log.expect("a log").as_bytes()), []);
    }
}
