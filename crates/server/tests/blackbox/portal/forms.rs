//! No form is taken but from the page that the same visit was shown.

use super::browser::{Browser, OWN_PAGE};
use super::stage::{PASSWORD, Stage, arrives, stage};
use super::table::{Owner, ROWS, Row};

/// Headers with which browsers tell of a form that another site sent.
const FOREIGN: [&[(&str, &str)]; 4] = [
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site")],
    &[("origin", "https://evil.example")],
    &[("origin", "null")],
];

/// Somebody who signed in, out and in again, their browser, and the tokens that it was shown before.
async fn come_and_go(stage: &Stage) -> (Owner, Browser, Vec<String>) {
    let (owner, _) = Owner::plant(stage).await;
    let credentials = [("email", owner.email.as_str()), ("password", PASSWORD)];
    let mut browser = stage.browser();
    let mut stale = vec![browser.token().await];
    arrives(&browser.post("/signin", &credentials).await, "/keys");
    stale.push(browser.token().await);
    arrives(&browser.post("/signout", &[]).await, "/signin");
    stale.push(browser.token().await);
    arrives(&browser.post("/signin", &credentials).await, "/keys");
    (owner, browser, stale)
}

/// Sends a row's form without a right to, in every way, and holds each to a refusal.
async fn refuse(browser: &mut Browser, row: &Row, owner: &Owner, bad_tokens: &[String]) {
    let (name, path, fields) = (row.name(), owner.path(row), owner.fields(row));
    let token = browser.token().await;
    let bare = browser.post_with(&path, &[OWN_PAGE], &fields).await;
    assert_eq!(bare.status, 403, "{name} without a token: {}", bare.text());
    for bad in bad_tokens {
        let reply = browser.post_with(&path, &[OWN_PAGE], &[&fields[..], &[("csrf", bad)]].concat()).await;
        assert_eq!(reply.status, 403, "{name} with another token: {}", reply.text());
    }
    let whole = [&fields[..], &[("csrf", &token)]].concat();
    for headers in FOREIGN {
        let reply = browser.post_with(&path, headers, &whole).await;
        assert_eq!(reply.status, 403, "{name} with {headers:?}: {}", reply.text());
    }
    let beside = browser.post_with(&format!("{path}?csrf={token}"), &[OWN_PAGE], &fields).await;
    assert_eq!(beside.status, 403, "{name} with its token in the address");
    for kind in ["text/plain", "application/json"] {
        let reply = browser.post_body(&path, kind, format!("csrf={token}")).await;
        assert_eq!(reply.status, 403, "{name} as {kind}");
    }
}

fn forms(for_members: bool) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.is_form() && row.is_for_members() == for_members)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_members_form_needs_the_token_of_this_very_session() {
    let stage = stage().await;
    let (owner, mut browser, stale) = come_and_go(stage).await;
    let mut other = stage.plant_member().await;
    let bad = [stale, vec![String::new(), "0".repeat(32), other.browser.token().await]].concat();
    let before = stage.snapshot(&owner.email, &browser).await;
    for row in forms(true) {
        refuse(&mut browser, row, &owner, &bad).await;
        assert_eq!(stage.snapshot(&owner.email, &browser).await, before, "{}", row.name());
    }
    assert_eq!(browser.get("/keys").await.status, 200, "the session goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_form_needs_the_token_of_this_very_visit() {
    let stage = stage().await;
    let (owner, mut browser, mut bad) = come_and_go(stage).await;
    bad.extend([browser.token().await, stage.browser().token().await, String::new()]);
    arrives(&browser.post("/signout", &[]).await, "/signin");
    let before = stage.snapshot(&owner.email, &browser).await;
    for row in forms(false) {
        refuse(&mut browser, row, &owner, &bad).await;
        // Without cookies there is no visit whose token could be right.
        let token = browser.token().await;
        let whole = [&owner.fields(row)[..], &[("csrf", &token)]].concat();
        let reply = stage.browser().post_with(&owner.path(row), &[OWN_PAGE], &whole).await;
        assert_eq!(reply.status, 403, "{} without a cookie", row.name());
        assert_eq!(stage.snapshot(&owner.email, &browser).await, before, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_token_and_from_its_own_page_every_form_is_taken() {
    let stage = stage().await;
    for row in ROWS.iter().filter(|row| row.is_form()) {
        let (owner, mut browser) = Owner::plant(stage).await;
        let refused = browser.post_with(&owner.path(row), &[OWN_PAGE], &owner.fields(row)).await;
        let reply = owner.visited_by(&mut browser, row).await;
        assert_eq!(reply.status, row.status, "{}: {}", row.name(), reply.text());
        // Some are refused for another reason; that is told on another page.
        assert_ne!(reply.body, refused.body, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_tells_no_more_than_its_origin_is_believed() {
    let stage = stage().await;
    let (_, mut browser) = Owner::plant(stage).await;
    let token = browser.token().await;
    let own = format!("https://{}", stage.node().http());
    let fields = [("name", "by its origin"), ("scope", "ip"), ("csrf", &token)];
    for headers in [&[("origin", own.as_str())][..], &[]] {
        assert_eq!(browser.post_with("/keys", headers, &fields).await.status, 200, "{headers:?}");
    }
}
