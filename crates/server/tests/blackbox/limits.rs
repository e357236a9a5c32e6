//! The daily quota, the burst limit and keys per account: their headers, their edges and their clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::{DAY_S, Scope};
use http::Method;
use testkit::{Caller, CliOutput, Clock, House, HouseOptions, Issued, RedisOptions, Reply, eventually};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::errors::{Refused, base_url, follow};
use crate::lookup::ask;
use crate::shared::{fresh_key, house, patient};

/// A midnight in January 2027.
const FIRST_MIDNIGHT_S: u64 = 1_800_000_000 / DAY_S * DAY_S;

/// What the rate-limit headers of an answer say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_s: u64,
}

/// Reads the rate-limit headers: each once, each a whole number.
#[track_caller]
pub(crate) fn told(reply: &Reply) -> Told {
    let [limit, remaining, reset_s] = ["limit", "remaining", "reset"].map(|name| {
        let lines: Vec<_> = reply.headers.get_all(format!("x-ratelimit-{name}")).iter().collect();
        assert_eq!(lines.len(), 1, "X-RateLimit-{name} of a {}: {}", reply.status, reply.text());
        lines[0].to_str().ok().and_then(|value| value.parse().ok()).expect("a whole number")
    });
    Told { limit, remaining, reset_s }
}

/// A house whose counter store lives by a clock that tests set.
pub(crate) struct Clockwork {
    pub(crate) house: House,
    pub(crate) clock: Clock,
    /// The midnight that ends the day of this test.
    pub(crate) midnight_s: u64,
}

static CLOCKWORK: OnceCell<Mutex<Clockwork>> = OnceCell::const_new();

/// The house with the clock, for one test at a time: it is noon, the clock stands still, and no test has seen this day before.
pub(crate) async fn clockwork() -> MutexGuard<'static, Clockwork> {
    let open = async || {
        let clock = Clock::open().expect("a clock");
        let redis = RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() };
        let house = House::start(HouseOptions { env: patient(), redis, ..HouseOptions::default() }).await;
        Mutex::new(Clockwork { house: house.expect("a house"), clock, midnight_s: FIRST_MIDNIGHT_S })
    };
    let mut stage = CLOCKWORK.get_or_init(open).await.lock().await;
    stage.midnight_s += 2 * DAY_S;
    stage.set_ms(-43_200_000);
    stage
}

impl Clockwork {
    /// Sets the clock to so many milliseconds after midnight, or before.
    pub(crate) fn set_ms(&self, after_midnight_ms: i64) {
        self.clock.freeze_at_ms(i64::try_from(self.midnight_s * 1000).expect("a time") + after_midnight_ms);
    }

    /// Lets a key that was never used have so many requests of this day behind it.
    pub(crate) async fn use_day(&self, key: &Issued, admitted: u64) {
        let day = self.midnight_s / DAY_S - 1;
        let row = format!("insert into usage values ('{}', date '1970-01-01' + {day}, {admitted})", key.id);
        self.house.postgres.psql("ipseity", &row).await.expect("a row");
    }

    /// Lets the demo have so many requests of this day behind it.
    pub(crate) async fn use_demo(&self, admitted: u64) {
        let day = self.midnight_s / DAY_S - 1;
        let row = format!("insert into demo_usage values (date '1970-01-01' + {day}, {admitted}, 0)");
        self.house.postgres.psql("ipseity", &row).await.expect("a row");
        self.house.redis.flushall().await.expect("a counter store that asks the durable one");
    }
}

/// Asks so often, and holds every answer to 200.
async fn pass(caller: &mut Caller, key: &Issued, times: usize) {
    for time in 1..=times {
        let reply = ask(caller, key).await;
        assert_eq!(reply.status, 200, "request {time} of {times}: {}", reply.text());
    }
}

async fn resume(house: &House, key: &Issued) {
    house.cli(&["key", "resume", &key.id]).await.and_then(CliOutput::success).expect("resumed");
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_counts_down_by_one() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Geo).await;
    for remaining in [9_999, 9_998, 9_997] {
        let expected = Told { limit: 10_000, remaining, reset_s: stage.midnight_s };
        assert_eq!(told(&ask(&mut caller, &key).await), expected);
    }
    let head = caller.send(Method::HEAD, "/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("an answer");
    assert_eq!((told(&head).remaining, head.body.len()), (9_996, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_real_clock_the_reset_is_the_next_midnight() {
    let house = house().await;
    let key = fresh_key(house, Scope::Ip).await;
    let before_s = now_s();
    let reset_s = told(&ask(&mut house.nodes[0].caller(), &key).await).reset_s;
    // Midnight may come in between.
    assert!([before_s, now_s()].map(|now| (now / DAY_S + 1) * DAY_S).contains(&reset_s), "{reset_s}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_dialects_of_the_limits_agree() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    stage.use_day(&key, 9_999).await;
    for status in [200, 429] {
        let reply = ask(&mut caller, &key).await;
        assert_eq!(reply.status, status);
        assert_eq!(reply.header("ratelimit-policy"), Some("\"day\";q=10000;w=86400"));
        assert_eq!(reply.header("ratelimit"), Some("\"day\";r=0;t=43200"));
    }
    let key = fresh_key(&stage.house, Scope::Ip).await;
    pass(&mut caller, &key, 300).await;
    let reply = ask(&mut caller, &key).await;
    assert_eq!(reply.header("ratelimit-policy"), Some("\"burst\";q=300;w=60"));
    assert_eq!(reply.header("ratelimit"), Some("\"burst\";r=0;t=60"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ten_thousandth_request_of_a_day_passes_and_the_next_is_refused_until_midnight() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    stage.use_day(&key, 9_999).await;
    let spent = Told { limit: 10_000, remaining: 0, reset_s: stage.midnight_s };
    let last = ask(&mut caller, &key).await;
    assert_eq!((last.status, told(&last)), (200, spent));
    // Retry-After counts whole seconds of the same clock, and is never 0 before midnight.
    for (until_midnight_ms, retry_after) in [(43_200_000, "43200"), (59_500, "60"), (1_000, "1"), (1, "1")] {
        stage.set_ms(-until_midnight_ms);
        let reply = ask(&mut caller, &key).await;
        let body = Refused::DAY.holds(&reply);
        assert_eq!((told(&reply), reply.header("retry-after")), (spent, Some(retry_after)));
        follow(&stage.house.nodes[0], &body["enterprise"]).await;
    }
    stage.set_ms(0);
    let first = ask(&mut caller, &key).await;
    let expected = Told { limit: 10_000, remaining: 9_999, reset_s: stage.midnight_s + DAY_S };
    assert_eq!((first.status, told(&first)), (200, expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_back_reopens_no_day() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    pass(&mut caller, &key, 2).await;
    stage.set_ms(-(86_400_000 + 43_200_000));
    let expected = Told { limit: 10_000, remaining: 9_997, reset_s: stage.midnight_s };
    assert_eq!(told(&ask(&mut caller, &key).await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_301st_request_in_a_minute_pauses_the_key_until_it_is_resumed() {
    let house = house().await;
    let key = fresh_key(house, Scope::Ip).await;
    let mut caller = house.nodes[0].caller();
    pass(&mut caller, &key, 300).await;
    let before_s = now_s();
    let reply = ask(&mut caller, &key).await;
    let after_s = now_s();
    let message = Refused::BURST.holds(&reply)["message"].to_string();
    assert!(message.contains("300 requests in a minute") && message.contains("paused"), "{message}");
    let Told { limit, remaining, reset_s } = told(&reply);
    assert_eq!((limit, remaining, reply.header("retry-after")), (300, 0, Some("60")));
    assert!((before_s + 60..=after_s + 60).contains(&reset_s), "{reset_s} is not a minute away");
    let dashboard = format!("{}/keys", base_url(&house.nodes[0]));
    let door = caller.get("/keys", &[]).await.expect("an answer");
    assert_eq!((door.status, door.header("location")), (303, Some("/signin")), "only its owner sees a key");
    for _ in 0..3 {
        let message = Refused::PAUSED.holds(&ask(&mut caller, &key).await)["message"].to_string();
        assert!(message.contains("paused") && message.contains("300") && message.contains(&dashboard), "{message}");
    }
    resume(house, &key).await;
    assert_eq!(ask(&mut caller, &key).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_burst_answer_is_exact_to_the_second() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Full).await;
    pass(&mut caller, &key, 300).await;
    stage.set_ms(-43_200_000 + 59_999);
    let reply = ask(&mut caller, &key).await;
    Refused::BURST.holds(&reply);
    let expected = Told { limit: 300, remaining: 0, reset_s: stage.midnight_s - 43_200 + 59 + 60 };
    assert_eq!((told(&reply), reply.header("retry-after")), (expected, Some("60")));
    // Time heals no pause, not even a new day.
    stage.set_ms(3_600_000);
    Refused::PAUSED.holds(&ask(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_at_half_a_second_and_three_hundred_at_61_seconds_never_pause() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    for at_ms in [500, 61_000] {
        stage.set_ms(-43_200_000 + at_ms);
        pass(&mut caller, &key, 300).await;
    }
    Refused::BURST.holds(&ask(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_minute_is_any_60_seconds_and_not_the_calendars() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    for (at_ms, times) in [(59_900, 150), (60_100, 150)] {
        stage.set_ms(-43_200_000 + at_ms);
        pass(&mut caller, &key, times).await;
    }
    stage.set_ms(-43_200_000 + 119_899);
    Refused::BURST.holds(&ask(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_slides_and_each_request_leaves_it_after_60_seconds() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    for at_ms in [0, 20_000, 40_000, 60_000, 80_000] {
        stage.set_ms(-43_200_000 + at_ms);
        pass(&mut caller, &key, 100).await;
    }
    stage.set_ms(-43_200_000 + 99_999);
    Refused::BURST.holds(&ask(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_key_starts_a_new_window_and_keeps_its_day() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    pass(&mut caller, &key, 300).await;
    Refused::BURST.holds(&ask(&mut caller, &key).await);
    resume(&stage.house, &key).await;
    assert_eq!(told(&ask(&mut caller, &key).await).remaining, 10_000 - 301);
    pass(&mut caller, &key, 299).await;
    Refused::BURST.holds(&ask(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_refused_for_the_day_still_counts_for_the_burst() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    stage.use_day(&key, 9_990).await;
    pass(&mut caller, &key, 10).await;
    for _ in 0..290 {
        assert_eq!(Refused::DAY.holds(&ask(&mut caller, &key).await)["error"], "rate_limit_exceeded");
    }
    Refused::BURST.holds(&ask(&mut caller, &key).await);
    Refused::PAUSED.holds(&ask(&mut caller, &key).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_a_refused_key_costs_the_counter_store_nothing() {
    let stage = clockwork().await;
    let mut caller = stage.house.nodes[0].caller();
    let key = fresh_key(&stage.house, Scope::Ip).await;
    stage.house.cli(&["key", "deactivate", &key.id]).await.and_then(CliOutput::success).expect("deactivated");
    let scripts = async || stage.house.redis.command_calls().await.expect("calls").get("evalsha").copied();
    // A busy machine may not manage 100 refusals within a second at once.
    let mut is_remembered = false;
    for _ in 0..20 {
        let before = scripts().await;
        for _ in 0..150 {
            Refused::INACTIVE.holds(&ask(&mut caller, &key).await);
        }
        is_remembered = scripts().await.zip(before).is_some_and(|(after, before)| after - before < 120);
        if is_remembered {
            break;
        }
    }
    assert!(is_remembered, "every refusal was asked for");
    stage.house.cli(&["key", "reactivate", &key.id]).await.and_then(CliOutput::success).expect("reactivated");
    let answers = async || ask(&mut caller, &key).await.status == 200;
    eventually("the key answers again", Duration::from_secs(3), answers).await.expect("forgotten");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_plan_has_its_own_day_and_the_same_burst() {
    let stage = clockwork().await;
    let run = async |arguments: &[&str]| {
        stage.house.cli(arguments).await.and_then(CliOutput::success).expect("done");
    };
    run(&["plan", "add", "team", "--daily-limit", "20000"]).await;
    run(&["plan", "add", "tiny", "--daily-limit", "2"]).await;
    run(&["account", "create", "--email", "team@example.com", "--plan", "team"]).await;
    let key = stage.house.issue("team@example.com", Scope::Ip).await.expect("a key");
    let mut caller = stage.house.nodes[0].caller();
    let expected = Told { limit: 20_000, remaining: 19_999, reset_s: stage.midnight_s };
    assert_eq!(told(&ask(&mut caller, &key).await), expected);
    run(&["account", "plan", "--email", "team@example.com", "--plan", "free"]).await;
    assert_eq!(told(&ask(&mut caller, &key).await), Told { limit: 10_000, remaining: 9_998, ..expected });
    run(&["account", "plan", "--email", "team@example.com", "--plan", "tiny"]).await;
    let reply = ask(&mut caller, &key).await;
    Refused::DAY.holds(&reply);
    assert_eq!(told(&reply), Told { limit: 2, remaining: 0, ..expected });
    run(&["account", "plan", "--email", "team@example.com", "--plan", "team"]).await;
    pass(&mut caller, &key, 297).await;
    let reply = ask(&mut caller, &key).await;
    Refused::BURST.holds(&reply);
    assert_eq!(told(&reply).limit, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_one_account_are_counted_apart() {
    let stage = clockwork().await;
    stage.house.account("two@example.com").await.expect("an account");
    let first = stage.house.issue("two@example.com", Scope::Ip).await.expect("a key");
    let second = stage.house.issue("two@example.com", Scope::Ip).await.expect("a key");
    let mut caller = stage.house.nodes[0].caller();
    pass(&mut caller, &first, 300).await;
    Refused::BURST.holds(&ask(&mut caller, &first).await);
    assert_eq!(told(&ask(&mut caller, &second).await).remaining, 9_999);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_holds_ten_keys() {
    let house = house().await;
    house.account("ten@example.com").await.expect("an account");
    let mut keys = Vec::new();
    for _ in 0..10 {
        keys.push(house.issue("ten@example.com", Scope::Ip).await.expect("a key"));
    }
    let eleventh = ["key", "issue", "--account", "ten@example.com", "--scope", "ip", "--name", "one more", "--json"];
    let refused = house.cli(&eleventh).await.expect("an outcome");
    assert!(!refused.is_success() && refused.stdout.is_empty() && refused.stderr.contains("10"), "{}", refused.stderr);
    house.cli(&["key", "delete", &keys[3].id]).await.and_then(CliOutput::success).expect("deleted");
    house.cli(&eleventh).await.and_then(CliOutput::success).expect("a seat is free again");
}
