//! The daily quota, the burst limit and the number of keys per account: headers, boundaries and clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Method;
use ipseity_domain::{DAY_S, Scope};
use ipseity_testkit::{
    CommandOutput, Deployment, DeploymentOptions, IssuedKey, RedisOptions, TestClient, TestClock, TestResponse,
    eventually,
};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::errors::{ExpectedError, base_url, fetch_linked_page};
use crate::fixture::{fresh_key, relaxed_timeouts, shared_deployment};
use crate::lookup::lookup_with_key;

/// How far in the past the first day of the test clock is. Usage of days in PostgreSQL's future is ignored.
const FIRST_DAY_AGO: u64 = 100;

/// The test clock is frozen, but a charge takes some time after the arrival of its request.
const ARRIVAL_TOLERANCE_MS: i64 = 500;

/// Rate limit headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRateLimit {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_s: u64,
}

/// Parses the rate limit headers: each occurs once and is an integer.
#[track_caller]
pub(crate) fn rate_limit_headers(reply: &TestResponse) -> ReceivedRateLimit {
    let [limit, remaining, reset_s] = ["limit", "remaining", "reset"].map(|name| {
        let lines: Vec<_> = reply.headers.get_all(format!("x-ratelimit-{name}")).iter().collect();
        assert_eq!(lines.len(), 1, "X-RateLimit-{name} of a {}: {}", reply.status, reply.text());
        lines[0].to_str().ok().and_then(|value| value.parse().ok()).expect("whole number")
    });
    ReceivedRateLimit { limit, remaining, reset_s }
}

/// A deployment whose Redis uses a test clock.
pub(crate) struct FrozenClockFixture {
    pub(crate) deployment: Deployment,
    pub(crate) clock: TestClock,
    /// The midnight at the end of this test's day.
    pub(crate) midnight_s: u64,
}

static FROZEN_CLOCK: OnceCell<Mutex<FrozenClockFixture>> = OnceCell::const_new();

/// Locks the deployment with the test clock. It is noon, the clock is frozen, and no other test used this day.
pub(crate) async fn frozen_clock() -> MutexGuard<'static, FrozenClockFixture> {
    let open = async || {
        let clock = TestClock::open().expect("create a clock");
        let redis = RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() };
        let mut env = relaxed_timeouts();
        // A frozen clock looks as if it were set back all the time.
        env.insert("IPSEITY__LEDGER__CLOCK_FALL_MAX_MS".to_owned(), "0".to_owned());
        let deployment = Deployment::start(DeploymentOptions { env, redis, ..DeploymentOptions::default() }).await;
        Mutex::new(FrozenClockFixture {
            deployment: deployment.expect("deployment starts"),
            clock,
            midnight_s: (now_s() / DAY_S - FIRST_DAY_AGO) * DAY_S,
        })
    };
    let mut fixture = FROZEN_CLOCK.get_or_init(open).await.lock().await;
    fixture.midnight_s += 2 * DAY_S;
    fixture.set_after_midnight_ms(-43_200_000);
    fixture
}

impl FrozenClockFixture {
    /// Sets the clock to this many milliseconds after midnight, or before if negative.
    pub(crate) fn set_after_midnight_ms(&self, after_midnight_ms: i64) {
        self.clock.freeze_at_ms(i64::try_from(self.midnight_s * 1000).expect("time fits into i64") + after_midnight_ms);
    }

    /// Sets the usage of a new key for this day.
    pub(crate) async fn record_usage(&self, key: &IssuedKey, admitted: u64) {
        let day = self.midnight_s / DAY_S - 1;
        let row = format!("insert into usage values ('{}', date '1970-01-01' + {day}, {admitted})", key.id);
        self.deployment.postgres.psql("ipseity", &row).await.expect("insert the usage");
    }

    /// Sets the usage of the demo for this day.
    pub(crate) async fn record_demo_usage(&self, admitted: u64) {
        let day = self.midnight_s / DAY_S - 1;
        let row = format!("insert into demo_usage values (date '1970-01-01' + {day}, {admitted}, 0)");
        self.deployment.postgres.psql("ipseity", &row).await.expect("insert the usage");
        self.deployment.redis.flushall().await.expect("flush Redis");
    }
}

/// Sends this many requests, which must all return 200.
async fn assert_admitted(caller: &mut TestClient, key: &IssuedKey, times: usize) {
    for request_number in 1..=times {
        let reply = lookup_with_key(caller, key).await;
        assert_eq!(reply.status, 200, "request {request_number} of {times}: {}", reply.text());
    }
}

async fn resume_key(deployment: &Deployment, key: &IssuedKey) {
    deployment.cli(&["key", "resume", &key.id]).await.and_then(CommandOutput::ensure_success).expect("resume the key");
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("time is after 1970").as_secs()
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_decreases_by_one_per_request() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Geo).await;
    for remaining in [9_999, 9_998, 9_997] {
        let expected = ReceivedRateLimit { limit: 10_000, remaining, reset_s: fixture.midnight_s };
        assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await), expected);
    }
    let head =
        caller.send(Method::HEAD, "/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives");
    assert_eq!((rate_limit_headers(&head).remaining, head.body.len()), (9_996, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn reset_header_is_the_next_utc_midnight() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Ip).await;
    let before_s = now_s();
    let reset_s = rate_limit_headers(&lookup_with_key(&mut deployment.nodes[0].client(), &key).await).reset_s;
    // Midnight may pass in between.
    assert!([before_s, now_s()].map(|now| (now / DAY_S + 1) * DAY_S).contains(&reset_s), "{reset_s}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_rate_limit_header_formats_agree() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    fixture.record_usage(&key, 9_999).await;
    for (status, burst) in [(200, ", \"burst\";r=299;t=60"), (429, "")] {
        let reply = lookup_with_key(&mut caller, &key).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("ratelimit-policy"), Some("\"day\";q=10000;w=86400, \"burst\";q=300;w=60"));
        assert_eq!(reply.header("ratelimit"), Some(&*format!("\"day\";r=0;t=43200{burst}")));
    }
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    assert_admitted(&mut caller, &key, 300).await;
    let reply = lookup_with_key(&mut caller, &key).await;
    assert_eq!(reply.header("ratelimit-policy"), Some("\"burst\";q=300;w=60"));
    assert_eq!(reply.header("ratelimit"), Some("\"burst\";r=0;t=60"));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_10001_of_a_day_is_rejected_until_midnight() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    fixture.record_usage(&key, 9_999).await;
    let exhausted = ReceivedRateLimit { limit: 10_000, remaining: 0, reset_s: fixture.midnight_s };
    let last = lookup_with_key(&mut caller, &key).await;
    assert_eq!((last.status, rate_limit_headers(&last)), (200, exhausted));
    // Retry-After is in seconds of the same clock, and never 0 before midnight.
    for (until_midnight_ms, retry_after) in [(43_200_000, "43200"), (59_500, "60"), (1_000, "1"), (1, "1")] {
        fixture.set_after_midnight_ms(-until_midnight_ms);
        let reply = lookup_with_key(&mut caller, &key).await;
        let body = ExpectedError::DAILY_QUOTA.assert_matches(&reply);
        assert_eq!((rate_limit_headers(&reply), reply.header("retry-after")), (exhausted, Some(retry_after)));
        fetch_linked_page(&fixture.deployment.nodes[0], &body["enterprise"]).await;
    }
    fixture.set_after_midnight_ms(0);
    let first = lookup_with_key(&mut caller, &key).await;
    let expected = ReceivedRateLimit { limit: 10_000, remaining: 9_999, reset_s: fixture.midnight_s + DAY_S };
    assert_eq!((first.status, rate_limit_headers(&first)), (200, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_moving_back_does_not_reset_the_daily_quota() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    assert_admitted(&mut caller, &key, 2).await;
    fixture.set_after_midnight_ms(-(86_400_000 + 43_200_000));
    let expected = ReceivedRateLimit { limit: 10_000, remaining: 9_997, reset_s: fixture.midnight_s };
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_301_within_60_seconds_pauses_the_key() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Ip).await;
    let mut caller = deployment.nodes[0].client();
    assert_admitted(&mut caller, &key, 300).await;
    let before_s = now_s();
    let reply = lookup_with_key(&mut caller, &key).await;
    let after_s = now_s();
    let message = ExpectedError::BURST_LIMIT.assert_matches(&reply)["message"].to_string();
    assert!(message.contains("300 requests in 60 s") && message.contains("paused"), "{message}");
    let ReceivedRateLimit { limit, remaining, reset_s } = rate_limit_headers(&reply);
    assert_eq!((limit, remaining, reply.header("retry-after")), (300, 0, Some("60")));
    assert!((before_s + 60..=after_s + 60).contains(&reset_s), "{reset_s} is not 60 seconds away");
    let dashboard = format!("{}/keys", base_url(&deployment.nodes[0]));
    let keys_page = caller.get("/keys", &[]).await.expect("response arrives");
    assert_eq!(
        (keys_page.status, keys_page.header("location")),
        (303, Some("/signin?next=/keys")),
        "a key is only visible to its owner"
    );
    for _ in 0..3 {
        let message =
            ExpectedError::PAUSED_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await)["message"].to_string();
        assert!(message.contains("paused") && message.contains("300") && message.contains(&dashboard), "{message}");
    }
    resume_key(deployment, &key).await;
    assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn burst_refusal_has_exact_reset_and_retry_after() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Full).await;
    assert_admitted(&mut caller, &key, 300).await;
    fixture.set_after_midnight_ms(-43_200_000 + 59_999 - ARRIVAL_TOLERANCE_MS);
    let reply = lookup_with_key(&mut caller, &key).await;
    ExpectedError::BURST_LIMIT.assert_matches(&reply);
    let expected = ReceivedRateLimit { limit: 300, remaining: 0, reset_s: fixture.midnight_s - 43_200 + 59 + 60 };
    assert_eq!((rate_limit_headers(&reply), reply.header("retry-after")), (expected, Some("60")));
    // A pause does not end with time, not even on a new day.
    fixture.set_after_midnight_ms(3_600_000);
    ExpectedError::PAUSED_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_bursts_of_300_more_than_60_seconds_apart_pass() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    for at_ms in [500, 61_000] {
        fixture.set_after_midnight_ms(-43_200_000 + at_ms);
        assert_admitted(&mut caller, &key, 300).await;
    }
    ExpectedError::BURST_LIMIT.assert_matches(&lookup_with_key(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn burst_window_is_not_aligned_to_calendar_minutes() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    for (at_ms, times) in [(59_900, 150), (60_100, 150)] {
        fixture.set_after_midnight_ms(-43_200_000 + at_ms);
        assert_admitted(&mut caller, &key, times).await;
    }
    fixture.set_after_midnight_ms(-43_200_000 + 119_899 - ARRIVAL_TOLERANCE_MS);
    ExpectedError::BURST_LIMIT.assert_matches(&lookup_with_key(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_leaves_the_burst_window_after_60_seconds() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    for at_ms in [0, 20_000, 40_000, 60_000, 80_000] {
        fixture.set_after_midnight_ms(-43_200_000 + at_ms);
        assert_admitted(&mut caller, &key, 100).await;
    }
    fixture.set_after_midnight_ms(-43_200_000 + 99_999 - ARRIVAL_TOLERANCE_MS);
    ExpectedError::BURST_LIMIT.assert_matches(&lookup_with_key(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_key_gets_a_new_burst_window_and_keeps_its_usage() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    assert_admitted(&mut caller, &key, 300).await;
    ExpectedError::BURST_LIMIT.assert_matches(&lookup_with_key(&mut caller, &key).await);
    resume_key(&fixture.deployment, &key).await;
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await).remaining, 10_000 - 301);
    assert_admitted(&mut caller, &key, 299).await;
    ExpectedError::BURST_LIMIT.assert_matches(&lookup_with_key(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn quota_refusals_still_count_toward_the_burst_limit() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    fixture.record_usage(&key, 9_990).await;
    assert_admitted(&mut caller, &key, 10).await;
    for _ in 0..290 {
        assert_eq!(
            ExpectedError::DAILY_QUOTA.assert_matches(&lookup_with_key(&mut caller, &key).await)["error"],
            "rate_limit_exceeded"
        );
    }
    ExpectedError::BURST_LIMIT.assert_matches(&lookup_with_key(&mut caller, &key).await);
    ExpectedError::PAUSED_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_rejections_do_not_reach_redis() {
    let fixture = frozen_clock().await;
    let mut caller = fixture.deployment.nodes[0].client();
    let key = fresh_key(&fixture.deployment, Scope::Ip).await;
    fixture
        .deployment
        .cli(&["key", "deactivate", &key.id])
        .await
        .and_then(CommandOutput::ensure_success)
        .expect("deactivate the key");
    let script_calls = async || {
        fixture.deployment.redis.command_calls().await.expect("read the command counts").get("evalsha").copied()
    };
    // A busy machine may not manage 100 rejections within a second at first.
    let mut is_cached = false;
    for _ in 0..20 {
        let before = script_calls().await;
        for _ in 0..150 {
            ExpectedError::INACTIVE_KEY.assert_matches(&lookup_with_key(&mut caller, &key).await);
        }
        is_cached = script_calls().await.zip(before).is_some_and(|(after, before)| after - before < 120);
        if is_cached {
            break;
        }
    }
    assert!(is_cached, "every rejection was looked up in Redis");
    fixture
        .deployment
        .cli(&["key", "reactivate", &key.id])
        .await
        .and_then(CommandOutput::ensure_success)
        .expect("reactivate the key");
    let is_admitted = async || lookup_with_key(&mut caller, &key).await.status == 200;
    eventually("the key works again", Duration::from_secs(3), is_admitted).await.expect("key works again");
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_sets_the_daily_limit_but_not_the_burst_limit() {
    let fixture = frozen_clock().await;
    let run = async |arguments: &[&str]| {
        fixture.deployment.cli(arguments).await.and_then(CommandOutput::ensure_success).expect("command succeeds");
    };
    run(&["plan", "add", "team", "--daily-limit", "20000"]).await;
    run(&["plan", "add", "tiny", "--daily-limit", "2"]).await;
    run(&["account", "create", "--email", "team@example.com", "--plan", "team"]).await;
    let key = fixture.deployment.issue_key("team@example.com", Scope::Ip).await.expect("issue a key");
    let mut caller = fixture.deployment.nodes[0].client();
    let expected = ReceivedRateLimit { limit: 20_000, remaining: 19_999, reset_s: fixture.midnight_s };
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &key).await), expected);
    run(&["account", "plan", "--email", "team@example.com", "--plan", "free"]).await;
    assert_eq!(
        rate_limit_headers(&lookup_with_key(&mut caller, &key).await),
        ReceivedRateLimit { limit: 10_000, remaining: 9_998, ..expected }
    );
    run(&["account", "plan", "--email", "team@example.com", "--plan", "tiny"]).await;
    let reply = lookup_with_key(&mut caller, &key).await;
    ExpectedError::DAILY_QUOTA.assert_matches(&reply);
    assert_eq!(rate_limit_headers(&reply), ReceivedRateLimit { limit: 2, remaining: 0, ..expected });
    run(&["account", "plan", "--email", "team@example.com", "--plan", "team"]).await;
    assert_admitted(&mut caller, &key, 297).await;
    let reply = lookup_with_key(&mut caller, &key).await;
    ExpectedError::BURST_LIMIT.assert_matches(&reply);
    assert_eq!(rate_limit_headers(&reply).limit, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_one_account_are_limited_separately() {
    let fixture = frozen_clock().await;
    fixture.deployment.create_account("two@example.com").await.expect("create an account");
    let first = fixture.deployment.issue_key("two@example.com", Scope::Ip).await.expect("issue a key");
    let second = fixture.deployment.issue_key("two@example.com", Scope::Ip).await.expect("issue a key");
    let mut caller = fixture.deployment.nodes[0].client();
    assert_admitted(&mut caller, &first, 300).await;
    ExpectedError::BURST_LIMIT.assert_matches(&lookup_with_key(&mut caller, &first).await);
    assert_eq!(rate_limit_headers(&lookup_with_key(&mut caller, &second).await).remaining, 9_999);
}

#[tokio::test(flavor = "multi_thread")]
async fn account_has_at_most_ten_keys() {
    let deployment = shared_deployment().await;
    deployment.create_account("ten@example.com").await.expect("create an account");
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(deployment.issue_key("ten@example.com", Scope::Ip).await.expect("issue a key"));
    }
    let eleventh = ["key", "issue", "--account", "ten@example.com", "--scope", "ip", "--name", "one more", "--json"];
    let refused = deployment.cli(&eleventh).await.expect("command runs");
    assert!(!refused.is_success() && refused.stdout.is_empty() && refused.stderr.contains("10"), "{}", refused.stderr);
    deployment
        .cli(&["key", "delete", &keys[3].id, "--yes"])
        .await
        .and_then(CommandOutput::ensure_success)
        .expect("delete the key");
    deployment.cli(&eleventh).await.and_then(CommandOutput::ensure_success).expect("issue a key");
}
