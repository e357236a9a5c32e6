//! The portal's people: they sign up, come in by every door, make and change keys, read their pages, and get things wrong.

use std::time::Duration;

use domain::Scope;

use super::stage::{Stage, another};
use crate::portal::browser::{Browser, DEVICE, SESSION};
use crate::portal::stage::{PASSWORD, arrives, fresh_email, fresh_secret, minted_in};
use crate::portal::table::{Owner, ROWS};

const EVENT_MAX: Duration = Duration::from_secs(10);
const TRIES_MAX: usize = 5;

pub(crate) async fn live(stage: &Stage) {
    let mut browser = sign_up(stage).await;
    keys_of(stage, &mut browser).await;
    hear(stage, &browser).await;
    every_route(stage).await;
    bad_forms(stage, &mut browser).await;
    too_many_tries(stage).await;
}

/// Says something new of the browser's network before its next request.
fn move_on(stage: &Stage, browser: &mut Browser) {
    let mut lines = stage.canaries.lines();
    lines.push(("authorization".to_owned(), format!("Bearer {}", stage.keys[0])));
    browser.say(lines);
}

/// Nobody must find a visit's cookies.
fn note_cookies(stage: &Stage, browser: &Browser) {
    for cookie in [SESSION, DEVICE].into_iter().filter_map(|name| browser.cookie(name)) {
        stage.canaries.secret(cookie);
    }
}

/// From the first form to a session, with a password that is a canary too.
async fn sign_up(stage: &Stage) -> Browser {
    let (portal, email, password) = (&stage.portal, fresh_email(), stage.canaries.secret(&fresh_secret()));
    let mut browser = portal.browser();
    move_on(stage, &mut browser);
    let form = [("email", email.as_str()), ("password", password.as_str())];
    assert_eq!(browser.post("/signup", &form).await.status, 200);
    let link = portal.mailed_link(&email, "Confirm").await;
    move_on(stage, &mut browser);
    arrives(&browser.post(&link, &[]).await, "/keys");
    note_cookies(stage, &browser);
    let mut elsewhere = portal.browser();
    for (password, status) in [("not the password", 200), (&*password, 303)] {
        move_on(stage, &mut elsewhere);
        let reply = elsewhere.post("/signin", &[("email", &email), ("password", password)]).await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    note_cookies(stage, &elsewhere);
    // A key in the place of a password, and of a link.
    move_on(stage, &mut elsewhere);
    stage.note(elsewhere.post("/signin", &[("email", &email), ("password", &stage.keys[0])]).await.status);
    stage.note(elsewhere.post(&format!("/link/{}", stage.keys[0]), &[("password", &password)]).await.status);
    browser
}

/// Keys that pages show, this once: made, rolled, used.
async fn keys_of(stage: &Stage, browser: &mut Browser) {
    for scope in [Scope::Ip, Scope::Geo, Scope::Full] {
        move_on(stage, browser);
        let page = browser.post("/keys", &[("name", scope.name()), ("scope", scope.name())]).await;
        let made = minted_in(&page).expect("a page with a key");
        stage.canaries.key(&made.key);
        let path = format!("/api/v1/ip?key={}", made.key);
        let mut caller = stage.house().nodes[0].caller();
        let address = stage.canaries.address().to_string();
        let reply = caller.get(&path, &[("x-forwarded-for", &address)]).await.expect("an answer");
        assert!(reply.status == 200 && reply.json().expect("JSON").to_string().contains(&address), "{}", reply.text());
        move_on(stage, browser);
        let page = browser.post(&format!("/keys/{}/roll", made.id), &[("overlap_s", "3600")]).await;
        stage.canaries.key(&minted_in(&page).expect("a page with a key").key);
    }
}

/// An open page hears of a change.
async fn hear(stage: &Stage, browser: &Browser) {
    let node = stage.portal.node();
    let mut events = browser.listen(node, &format!("/events?key={}", stage.keys[0])).await;
    assert_eq!(events.status, 200);
    let mut other = browser.on(node);
    let page = other.post("/keys", &[("name", "heard"), ("scope", "ip")]).await;
    stage.canaries.key(&minted_in(&page).expect("a page with a key").key);
    let heard = tokio::time::timeout(EVENT_MAX, events.next()).await;
    heard.expect("an event in time").expect("a stream").expect("an event");
}

/// Every route, as an owner, as another member and as a stranger.
async fn every_route(stage: &Stage) {
    stage.canaries.secret(PASSWORD);
    let (bystander, _) = Owner::plant(&stage.portal).await;
    for row in ROWS.iter().filter(|row| !row.is_endless()) {
        let (owner, mut browser) = Owner::plant(&stage.portal).await;
        for owner in [&bystander, &owner] {
            move_on(stage, &mut browser);
            let reply = owner.visited_by(&mut browser, row).await;
            minted_in(&reply).into_iter().for_each(|made| drop(stage.canaries.key(&made.key)));
            stage.note(reply.status);
        }
        let mut stranger = stage.portal.browser();
        move_on(stage, &mut stranger);
        stage.note(owner.visited_by(&mut stranger, row).await.status);
    }
}

/// Forms that are foreign, stale, too long, or none.
async fn bad_forms(stage: &Stage, browser: &mut Browser) {
    for row in ROWS.iter().filter(|row| row.is_form()) {
        let path = row.path.replace("{id}", &stage.keys[3]).replace("{token}", &stage.keys[3]);
        let path = format!("{path}?key={}", stage.keys[0]);
        move_on(stage, browser);
        for headers in [&[("sec-fetch-site", "cross-site")][..], &[("origin", "https://example.org")], &[]] {
            stage.note(browser.post_with(&path, headers, &[("csrf", &stage.keys[0])]).await.status);
        }
        let address = stage.canaries.address();
        for (kind, body) in [
            ("application/json", format!("{{\"key\": \"{}\", \"ip\": \"{address}\"}}", stage.keys[0])),
            ("application/x-www-form-urlencoded", format!("csrf=%zz&{}={address}", stage.keys[0])),
            ("application/x-www-form-urlencoded", format!("csrf={}&{}", stage.keys[0], "x".repeat(40_000))),
        ] {
            stage.note(browser.post_body(&path, kind, body).await.status);
        }
    }
}

/// One network tries too often.
async fn too_many_tries(stage: &Stage) {
    let max = TRIES_MAX.to_string();
    let settings = another(&[("IPSEITY__PORTAL__TRIES_PER_NETWORK_MAX", &max)]);
    let mut node = stage.house().start_node(&settings).await.expect("a node");
    let mut browser = Browser::open(&node);
    move_on(stage, &mut browser);
    let mut last = 0;
    for _ in 0..=TRIES_MAX {
        last = browser.post("/signin", &[("email", "nobody@example.com"), ("password", &stage.keys[0])]).await.status;
    }
    assert_eq!(last, 429);
    stage.note(last);
    node.kill9();
    stage.keep_node(node);
}
