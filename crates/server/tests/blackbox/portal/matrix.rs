//! Two accounts and a stranger on every route, with every method: nobody sees or changes what is another's.

use std::collections::BTreeSet;

use ::portal::ROUTES;
use http::Method;

use super::browser::Browser;
use super::stage::{Stage, arrives, stage};
use super::table::{Owner, ROWS, Row};

#[test]
fn every_route_has_a_row_and_every_row_a_route() {
    let routes: BTreeSet<_> = ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
    let rows: BTreeSet<_> = ROWS.iter().map(Row::name).collect();
    assert_eq!(rows.len(), ROWS.len(), "a row stands twice");
    let untried: Vec<_> = routes.difference(&rows).collect();
    assert!(untried.is_empty(), "no row tries {untried:?}");
    let unknown: Vec<_> = rows.difference(&routes).collect();
    assert!(unknown.is_empty(), "no route is tried by {unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_sees_all_that_an_owner_has() {
    let stage = stage().await;
    let (owner, mut browser) = Owner::plant(stage).await;
    assert_eq!(browser.post("/account/passkeys/begin", &[]).await.status, 200);
    let text = stage.snapshot(&owner.email, &browser).await;
    let kinds: BTreeSet<_> = text.lines().filter_map(|line| line.split('|').next()).collect();
    assert_eq!(kinds, ["account", "ceremony", "key", "passkey", "session", "ticket"].into());
    assert_eq!(browser.post(&format!("/keys/{}/deactivate", owner.key), &[]).await.status, 303);
    assert_ne!(stage.snapshot(&owner.email, &browser).await, text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_sent_to_the_door_and_changes_nothing() {
    let stage = stage().await;
    let (owner, browser) = Owner::plant(stage).await;
    let before = stage.snapshot(&owner.email, &browser).await;
    for row in ROWS.iter().filter(|row| row.is_for_members()) {
        let reply = owner.visited_by(&mut stage.browser(), row).await;
        arrives(&reply, "/signin");
        owner.is_unknown_to(&reply, &row.name());
        assert_eq!(stage.snapshot(&owner.email, &browser).await, before, "{}", row.name());
    }
}

/// Lets one member use every route on another's things, with a token of their own.
async fn intrude(stage: &Stage, intruder: &mut Browser, owner: &Owner) {
    let before = stage.snapshot(&owner.email, intruder).await;
    for row in ROWS.iter().filter(|row| row.is_for_members() && row.names_a_thing()) {
        let reply = owner.visited_by(intruder, row).await;
        assert_eq!(reply.status, 404, "{}: {}", row.name(), reply.text());
        owner.is_unknown_to(&reply, &row.name());
        assert_eq!(stage.snapshot(&owner.email, intruder).await, before, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn anothers_things_do_not_exist_in_either_direction() {
    let stage = stage().await;
    let ((one, mut ones), (other, mut others)) = (Owner::plant(stage).await, Owner::plant(stage).await);
    intrude(stage, &mut others, &one).await;
    intrude(stage, &mut ones, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_members_routes_show_and_change_their_own_account_alone() {
    let stage = stage().await;
    let (bystander, elsewhere) = Owner::plant(stage).await;
    let before = stage.snapshot(&bystander.email, &elsewhere).await;
    for row in ROWS.iter().filter(|row| row.is_for_members() && !row.is_endless()) {
        // A new member for each: many of these end a session or an account.
        let (owner, mut browser) = Owner::plant(stage).await;
        let reply = owner.visited_by(&mut browser, row).await;
        assert_eq!(reply.status, row.status, "{}: {}", row.name(), reply.text());
        bystander.is_unknown_to(&reply, &row.name());
        assert_eq!(stage.snapshot(&bystander.email, &elsewhere).await, before, "{}", row.name());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_a_path_does_not_have_is_refused_and_changes_nothing() {
    let stage = stage().await;
    let (owner, mut browser) = Owner::plant(stage).await;
    let before = stage.snapshot(&owner.email, &browser).await;
    let mut tried = BTreeSet::new();
    for row in ROWS.iter().filter(|row| tried.insert(row.path)) {
        let path = owner.path(row);
        for method in
            [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
        {
            if has(row.path, &method) {
                continue;
            }
            let reply = match method {
                Method::POST => browser.post(&path, &[]).await,
                _ => browser.send(method.clone(), &path).await,
            };
            assert!([404, 405].contains(&reply.status), "{method} {path}: {}", reply.status);
        }
        assert_eq!(stage.snapshot(&owner.email, &browser).await, before, "{}", row.path);
    }
}

fn has(path: &str, method: &Method) -> bool {
    let method = if *method == Method::HEAD { "get" } else { &method.as_str().to_lowercase() };
    ROWS.iter().any(|row| row.path == path && row.method == method)
}
