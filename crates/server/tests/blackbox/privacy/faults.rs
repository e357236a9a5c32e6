//! Stores that are slow, silent, cut off, lying or dead; handlers that panic; requests that take too long. Errors are what talks most.

use std::num::NonZeroU32;
use std::time::Duration;

use domain::{ClearKey, Scope};
use testkit::{Faults, Node};

use super::routes::{LOOKUP, borrowed};
use super::stage::{PROXIED, Stage, another, listen_to_redis};
use crate::portal::table::{Owner, ROWS};
use crate::shared::fresh_key;

/// What a line can suffer while it is asked over.
fn kinds() -> [Faults; 5] {
    let slow = Duration::from_millis(20);
    [
        Faults { delay: slow, jitter: slow, ..Faults::none() },
        Faults { bytes_per_second: NonZeroU32::new(20_000), ..Faults::none() },
        Faults { dropped_replies: 0.5, seed: 1, ..Faults::none() },
        Faults { half_open: true, ..Faults::none() },
        Faults { cut: true, ..Faults::none() },
    ]
}

pub(crate) async fn suffer(stage: &mut Stage) {
    panics(stage).await;
    time_out(stage).await;
    let (owner, _) = Owner::plant(&stage.portal).await;
    for (at, faults) in kinds().into_iter().enumerate() {
        lines(stage, at % PROXIED, faults, &owner).await;
    }
    stage.heals().await;
    stage.keep_redis().await;
    deaths(stage).await;
}

/// Every route panics, with all that it was sent.
async fn panics(stage: &Stage) {
    for node in stage.house().nodes.iter().take(PROXIED) {
        let mut caller = node.caller();
        for row in ROWS {
            let mut lines = stage.canaries.lines();
            lines.extend(
                [("x-panic", "now"), ("authorization", &*stage.keys[0])].map(|(n, v)| (n.to_owned(), v.to_owned())),
            );
            let reply = caller.get(&format!("{}?key={}", row.path, stage.keys[0]), &borrowed(&lines)).await;
            assert_eq!(reply.expect("an answer").status, 500, "no panic at {}", row.path);
        }
    }
    stage.note(500);
}

/// A request is held up until its time is over.
async fn time_out(stage: &Stage) {
    let settings =
        another(&[("IPSEITY_FAILPOINTS", "fill-before-write=3000"), ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "300")]);
    let mut node = stage.house().start_node(&settings).await.expect("a node");
    let key = stage.canaries.key(&fresh_key(stage.house(), Scope::Full).await.key);
    let reply = node.caller().get(&format!("{LOOKUP}?key={key}"), &borrowed(&stage.canaries.lines())).await;
    assert_eq!(reply.expect("an answer").status, 500);
    assert!(node.log().expect("a log").contains("took longer than"), "the request was not held up");
    node.kill9();
    stage.keep_node(node);
}

/// Asks a node over bad lines, for addresses and for pages.
async fn lines(stage: &Stage, at: usize, faults: Faults, owner: &Owner) {
    let (node, relays) = (&stage.house().nodes[at], stage.house().relays(at));
    for relay in [&relays.redis, &relays.postgres] {
        relay.set(faults);
        ask(stage, node).await;
        relay.heal();
    }
    relays.postgres.set(faults);
    let mut browser = stage.portal.browser().on(node);
    browser.say(stage.canaries.lines());
    for path in ["/signin", "/keys", "/usage", "/account"] {
        stage.note(browser.get(path).await.status);
    }
    let key = stage.keys[0].as_str();
    let form = [("email", owner.email.as_str()), ("password", key), ("csrf", key)];
    stage.note(browser.post_with("/signin", &[], &form).await.status);
    relays.postgres.heal();
    relays.postgres.reset();
}

/// Kills one store after the other, and both.
async fn deaths(stage: &mut Stage) {
    for (redis, postgres) in [(true, false), (false, true), (true, true)] {
        if redis {
            stage.portal.house.redis.kill9();
        }
        if postgres {
            stage.portal.house.postgres.kill9();
        }
        for node in stage.house().nodes.iter().take(PROXIED) {
            let failed = ask(stage, node).await;
            assert!(failed > 0 || !(redis && postgres), "both stores were away, and nothing failed");
        }
        if postgres {
            stage.portal.house.postgres.restart().await.expect("PostgreSQL is back");
        }
        if redis {
            stage.portal.house.redis.restart().await.expect("Redis is back");
            listen_to_redis(stage.house()).await;
        }
        stage.heals().await;
    }
}

/// Asks with every key, and with one that is unknown to all; tells how often the service failed.
async fn ask(stage: &Stage, node: &Node) -> usize {
    let unknown = stage.canaries.key(ClearKey::mint(|| fastrand::u8(..)).expose());
    let (mut caller, mut failed) = (node.caller(), 0);
    for key in stage.keys.iter().chain([&unknown]) {
        let lines = stage.canaries.lines();
        let reply = caller.get(&format!("{LOOKUP}?key={key}"), &borrowed(&lines)).await.expect("an answer");
        stage.note(reply.status);
        failed += usize::from(reply.status >= 500);
    }
    failed
}
