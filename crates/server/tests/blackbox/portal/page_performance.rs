//! Page times of an account with ten keys and a long history, compared with a short one; and the contents of CSV files.
//!
//! `IPSEITY_PAGE_MS` sets the maximum median. The default suits a debug build that runs next to other tests.

use std::time::{Duration, Instant};

use super::browser::Browser;
use super::fixture::{PortalFixture, TestMember, shared_fixture};
use super::routes::{ROUTE_CASES, RouteCase};

const PAGE_MEDIAN_MAX_MS: u64 = 200;
const LONG_DAYS: u32 = 400;
const SHORT_DAYS: u32 = 30;
const SAMPLES: usize = 15;
/// A busy machine may slow one side in one round. A page that slows with its history does so in every round.
const ROUNDS: usize = 3;
const TOLERANCE: f64 = 0.25;
const TOLERANCE_MIN: Duration = Duration::from_millis(5);

/// A member with ten keys that have usage, rejections and history on every day.
async fn member_with_history(fixture: &PortalFixture, days: u32) -> (TestMember, String) {
    let member = fixture.create_member().await;
    let id = member.id;
    let today = "(now() at time zone 'utc')::date";
    let day = format!("{today} - day");
    let sql = format!(
        "insert into keys (id, account_id, seat, name, scope, digest)
         select lpad({id} || 'k' || seat, 10, '0'), {id}, seat, 'key \"' || seat || '\", of many', 'full', sha256(({id} || 'k' || seat)::bytea)
         from generate_series(1, 10) seat;
         create temporary table own as
         select k.id as key_id, seat, day from keys k, generate_series(0, {days} - 1) day where k.account_id = {id};
         insert into usage select key_id, {day}, 1000 + seat * 7 + day from own;
         insert into refusals select key_id, {day}, reason, 1 + day % 5 + seat
             from own, unnest(array['burst', 'paused', 'inactive', 'day', 'wrong_secret', 'restricted']) reason;
         insert into history (key_id, at, act, actor)
             select key_id, now() - day * interval '1 day', act, 'owner' from own, unnest(array['paused', 'resumed']) act;
         insert into pauses (key_id, burst_window, paused_at, counts)
             select key_id, day, now() - day * interval '1 day', array_fill(5::smallint, array[60]) from own"
    );
    fixture.psql(&sql).await;
    let key = fixture.psql(&format!("select id from keys where account_id = {id} order by seat limit 1")).await;
    (member, key)
}

async fn time_page(browser: &mut Browser, path: &str) -> Duration {
    let started = Instant::now();
    let reply = browser.get(path).await;
    let elapsed = started.elapsed();
    assert_eq!(reply.status, 200, "{path}");
    elapsed
}

/// Median times of a page with a long and with a short history, requested alternately.
async fn median_times(long: (&mut Browser, &str), short: (&mut Browser, &str)) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..SAMPLES {
        times[0].push(time_page(long.0, long.1).await);
        times[1].push(time_page(short.0, short.1).await);
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[SAMPLES / 2]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn long_history_does_not_slow_pages() {
    let median_max = std::env::var("IPSEITY_PAGE_MS")
        .map_or(PAGE_MEDIAN_MAX_MS, |value| value.parse().expect("IPSEITY_PAGE_MS is a number"));
    let median_max = Duration::from_millis(median_max);
    let fixture = shared_fixture().await;
    let (mut long, long_key) = member_with_history(fixture, LONG_DAYS).await;
    let (mut short, short_key) = member_with_history(fixture, SHORT_DAYS).await;
    let is_page = |row: &&RouteCase| !row.is_form() && !row.is_stream() && row.status == 200;
    let pages = ROUTE_CASES.iter().filter(is_page).filter(|row| !row.path.contains("{token}"));
    for path in pages.map(|row| row.path) {
        let (mut reports, mut is_fast) = (Vec::new(), false);
        while !is_fast && reports.len() < ROUNDS {
            let [long_path, short_path] = [&long_key, &short_key]
                .map(|key| path.replace("{id}", key).replace("{page}", "errors").replace("{epoch}", "1"));
            let [long_median, short_median] =
                median_times((&mut long.browser, &long_path), (&mut short.browser, &short_path)).await;
            reports
                .push(format!("{path}: {long_median:.1?} with {LONG_DAYS} days, {short_median:.1?} with {SHORT_DAYS}"));
            let is_equal = long_median <= short_median + TOLERANCE_MIN.max(short_median.mul_f64(TOLERANCE));
            is_fast = is_equal && long_median <= median_max;
        }
        print_lines(&reports);
        assert!(is_fast, "slower than {median_max:?} or than a short history in every round: {reports:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_csv_matches_the_database() {
    let fixture = shared_fixture().await;
    let (mut member, key) = member_with_history(fixture, SHORT_DAYS + 5).await;
    let expected = |keys: &str| {
        let reason = |name: &str| {
            format!("(select count from refusals r where (r.key_id, r.day) = (u.key_id, u.day) and reason = '{name}')")
        };
        let refused =
            ["burst", "paused", "inactive", "day", "wrong_secret", "restricted"].map(reason).join(" || ',' || ");
        format!(
            "select u.day || ',' || k.id || ',\"' || replace(k.name, '\"', '\"\"') || '\",' || u.admitted || ',' || {refused}
             from usage u join keys k on k.id = u.key_id
             where {keys} and u.day > (now() at time zone 'utc')::date - {SHORT_DAYS} order by u.day desc, k.id"
        )
    };
    let all = fixture.psql(&expected(&format!("k.account_id = {}", member.id))).await;
    let one = fixture.psql(&expected(&format!("k.id = '{key}'"))).await;
    for (path, rows, count) in [("/usage.csv", all, 300), (&format!("/keys/{key}/usage.csv"), one, 30)] {
        let reply = member.browser.get(path).await;
        assert_eq!(reply.header("content-type"), Some("text/csv; charset=utf-8"));
        assert!(
            reply.header("content-disposition").is_some_and(|value| value.starts_with("attachment; filename=")),
            "{path}"
        );
        let text = reply.text();
        let (header, lines) = text.split_once("\r\n").expect("CSV has a header");
        assert_eq!(
            header,
            "day,key,name,admitted,rejected_burst,rejected_paused,rejected_inactive,rejected_day,rejected_wrong_secret,rejected_restricted"
        );
        let (found, expected): (Vec<_>, Vec<_>) = (lines.lines().collect(), rows.lines().collect());
        assert_eq!((found.len(), expected.len()), (count, count), "{path}");
        assert_eq!(found, expected, "{path}");
    }
}

#[expect(clippy::print_stderr, reason = "the measured times are useful even if the test passes")]
fn print_lines(lines: &[String]) {
    lines.iter().for_each(|line| eprintln!("{line}"));
}
