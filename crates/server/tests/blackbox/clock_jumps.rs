//! Jumps of the counter store's clock: no day number is served twice, no key is stuck, and a jump back gives away one window at most.

use domain::{BURST_MAX, Scope};
use testkit::{Caller, Issued};

use crate::limits::{Told, clockwork, told};
use crate::lookup::ask;
use crate::shared::fresh_key;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const NOON_MS: i64 = -12 * HOUR_MS;

/// Asks once and is admitted.
async fn admitted(caller: &mut Caller, key: &Issued) -> Told {
    let reply = ask(caller, key).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    told(&reply)
}

/// Asks until the burst limit stops it; how many were admitted before.
async fn until_paused(caller: &mut Caller, key: &Issued) -> usize {
    for count in 0..=BURST_MAX {
        let reply = ask(caller, key).await;
        match reply.status {
            200 => {}
            429 => return count,
            other => panic!("answered {other}: {}", reply.text()),
        }
    }
    panic!("the burst limit never stopped it");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_every_jump_the_days_number_counts_on_and_no_key_is_stuck() {
    let stage = clockwork().await;
    let (mut caller, key) = (stage.house.nodes[0].caller(), fresh_key(&stage.house, Scope::Ip).await);
    let mut last = admitted(&mut caller, &key).await;
    // +1 h, −2 h, over midnight, back over it, +1 day, −1 day, and forward again by steps.
    for at_ms in [NOON_MS + HOUR_MS, NOON_MS - HOUR_MS, 1, -1, DAY_MS + 1, 1, DAY_MS / 2, 2 * DAY_MS, 2 * DAY_MS + 1] {
        stage.set_ms(at_ms);
        for _ in 0..3 {
            let now = admitted(&mut caller, &key).await;
            if now.reset_s == last.reset_s {
                assert_eq!(now.remaining, last.remaining - 1, "a number of a day was served twice at {at_ms}");
            } else {
                assert!(now.reset_s > last.reset_s, "a day came back at {at_ms}");
                assert_eq!(now.remaining, now.limit - 1, "a new day begins with its first request");
            }
            last = now;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_jump_back_gives_away_one_window_at_most() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    for back_ms in [2 * HOUR_MS, DAY_MS, 5_000, 1_001] {
        stage.set_ms(NOON_MS);
        let key = fresh_key(&stage.house, Scope::Ip).await;
        for _ in 0..BURST_MAX {
            admitted(&mut caller, &key).await;
        }
        stage.set_ms(NOON_MS - back_ms);
        assert_eq!(until_paused(&mut caller, &key).await, BURST_MAX, "after a jump back by {back_ms} ms");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_by_a_second_or_less_gives_nothing_away() {
    let stage = clockwork().await;
    let (mut caller, key) = (stage.house.nodes[0].caller(), fresh_key(&stage.house, Scope::Ip).await);
    for turn in 0..BURST_MAX {
        stage.set_ms(NOON_MS - if turn % 2 == 0 { 0 } else { 1_000 });
        admitted(&mut caller, &key).await;
    }
    assert_eq!(until_paused(&mut caller, &key).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_forward_pauses_nobody() {
    let stage = clockwork().await;
    let (mut caller, key) = (stage.house.nodes[0].caller(), fresh_key(&stage.house, Scope::Ip).await);
    for ahead_ms in [0, 60_000, HOUR_MS, DAY_MS] {
        stage.set_ms(NOON_MS + ahead_ms);
        for _ in 0..BURST_MAX {
            admitted(&mut caller, &key).await;
        }
    }
}
