//! Jumps of Redis' clock: no day's quota is granted twice, no key gets stuck, and a jump back grants at most one extra
//! window.

use ipseity_domain::{BURST_LIMIT, Scope};
use ipseity_testkit::{IssuedKey, TestClient};

use crate::fixture::fresh_key;
use crate::limits::{ReceivedRateLimit, frozen_clock, rate_limit_headers};
use crate::lookup::lookup_with_key;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const NOON_MS: i64 = -12 * HOUR_MS;

/// Sends one request, which must be admitted.
async fn lookup_admitted(caller: &mut TestClient, key: &IssuedKey) -> ReceivedRateLimit {
    let reply = lookup_with_key(caller, key).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    rate_limit_headers(&reply)
}

/// Sends requests until the burst limit rejects one; returns the number of admitted requests.
async fn admitted_until_paused(caller: &mut TestClient, key: &IssuedKey) -> usize {
    for count in 0..=BURST_LIMIT {
        let reply = lookup_with_key(caller, key).await;
        match reply.status {
            200 => {}
            429 => return count,
            other => panic!("status {other}: {}", reply.text()),
        }
    }
    panic!("the burst limit was never reached");
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_count_survives_every_clock_jump() {
    let fixture = frozen_clock().await;
    let (mut caller, key) = (fixture.deployment.nodes[0].client(), fresh_key(&fixture.deployment, Scope::Ip).await);
    let mut last = lookup_admitted(&mut caller, &key).await;
    // +1 h, −2 h, past midnight and back, +1 day, −1 day, and forward in steps.
    for at_ms in [NOON_MS + HOUR_MS, NOON_MS - HOUR_MS, 1, -1, DAY_MS + 1, 1, DAY_MS / 2, 2 * DAY_MS, 2 * DAY_MS + 1] {
        fixture.set_after_midnight_ms(at_ms);
        for _ in 0..3 {
            let now = lookup_admitted(&mut caller, &key).await;
            if now.reset_s == last.reset_s {
                assert_eq!(now.remaining, last.remaining - 1, "a request number occurred twice at {at_ms}");
            } else {
                assert!(now.reset_s > last.reset_s, "the day went back at {at_ms}");
                assert_eq!(now.remaining, now.limit - 1, "a new day starts with its first request");
            }
            last = now;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_jump_back_grants_at_most_one_extra_window() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    for back_ms in [2 * HOUR_MS, DAY_MS, 5_000, 1_001] {
        fixture.set_after_midnight_ms(NOON_MS);
        let key = fresh_key(&fixture.deployment, Scope::Ip).await;
        for _ in 0..BURST_LIMIT {
            lookup_admitted(&mut caller, &key).await;
        }
        fixture.set_after_midnight_ms(NOON_MS - back_ms);
        assert_eq!(admitted_until_paused(&mut caller, &key).await, BURST_LIMIT, "after a jump back by {back_ms} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_jump_back_within_a_second_grants_nothing() {
    let fixture = frozen_clock().await;
    let (mut caller, key) = (fixture.deployment.nodes[0].client(), fresh_key(&fixture.deployment, Scope::Ip).await);
    for index in 0..BURST_LIMIT {
        fixture.set_after_midnight_ms(NOON_MS - if index % 2 == 0 { 0 } else { 1_000 });
        lookup_admitted(&mut caller, &key).await;
    }
    assert_eq!(admitted_until_paused(&mut caller, &key).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_jump_forward_pauses_no_key() {
    let fixture = frozen_clock().await;
    let (mut caller, key) = (fixture.deployment.nodes[0].client(), fresh_key(&fixture.deployment, Scope::Ip).await);
    for ahead_ms in [0, 60_000, HOUR_MS, DAY_MS] {
        fixture.set_after_midnight_ms(NOON_MS + ahead_ms);
        for _ in 0..BURST_LIMIT {
            lookup_admitted(&mut caller, &key).await;
        }
    }
}
