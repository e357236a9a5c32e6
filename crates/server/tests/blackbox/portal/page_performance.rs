//! Page times of an account with ten keys and a long history, compared with a short one; and the contents of CSV files.
//!
//! `IPSEITY_PAGE_MS` sets the maximum median. The default suits a debug build that runs next to other tests. `IPSEITY_PAGE_ACCOUNTS` adds
//! accounts of others, `IPSEITY_PAGE_REASONS` sets how many of the six reasons each key has rejections for on a day. `just portal-size`
//! sets them.

use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::browser::Browser;
use super::fixture::{PortalFixture, TestMember, shared_fixture};
use super::routes::{ROUTE_CASES, RouteCase};
use crate::fixture::env_number;

const PAGE_MEDIAN_MAX_MS: u32 = 200;
const LONG_DAYS: u32 = 400;
const SHORT_DAYS: u32 = 30;
const SAMPLES: usize = 15;
const ROUNDS: usize = 3;
/// By how much the fastest of all requests may differ: other load slows most requests of either side, and the fastest least.
const TOLERANCE: f64 = 0.25;
const TOLERANCE_MIN: Duration = Duration::from_millis(5);

/// So many that a statement ends before a command times out.
const ACCOUNTS_PER_STATEMENT: u32 = 250;

static OTHER_ACCOUNTS: OnceCell<()> = OnceCell::const_new();

/// Adds accounts with ten keys that have usage on each of 400 days, as a deployment of that age has it: in partitions by month. A
/// hundredth of the keys has rejections.
async fn add_other_accounts(fixture: &PortalFixture) {
    let accounts = env_number("IPSEITY_PAGE_ACCOUNTS", 0);
    if accounts == 0 {
        return;
    }
    let months =
        "make_month(whole, (date_trunc('month', now() at time zone 'utc') - make_interval(months => ago))::date)";
    fixture
        .psql(&format!(
            "drop table usage_before, refusals_before;
             select {months} from unnest(array['usage', 'refusals']) whole, generate_series(0, 14) ago"
        ))
        .await;
    for first in (1..=accounts).step_by(ACCOUNTS_PER_STATEMENT as usize) {
        let last = accounts.min(first + ACCOUNTS_PER_STATEMENT - 1);
        let day = "(now() at time zone 'utc')::date - day";
        let starts = "('[0:23]=' || array(select hour * 40 from generate_series(0, 23) hour)::text)::bigint[]";
        // Without triggers and checks of references, which would take most of the time.
        let sql = format!(
            "set session_replication_role = replica;
             create temporary table others as with added as (
                 insert into accounts (email) select 'other' || n || '@example.org' from generate_series({first}, {last}) n returning id)
             select id as account, 'o' || lpad((id * 10 + seat)::text, 9, '0') as key_id, seat from added, generate_series(1, 10) seat;
             insert into keys (id, account_id, seat, name, scope, digest) select key_id, account, seat, 'other', 'full', sha256(key_id::bytea) from others;
             insert into usage select key_id, {day}, 1000 from others, generate_series(0, {LONG_DAYS} - 1) day;
             insert into usage_hours select key_id, {day}, 'admitted', {starts} from others, generate_series(0, 30) day;
             insert into refusals select key_id, {day}, 'burst', 3 from others, generate_series(0, {LONG_DAYS} - 1) day where right(key_id, 2) = '77'"
        );
        fixture.psql(&sql).await;
    }
    for table in ["accounts", "keys", "usage", "usage_hours", "refusals"] {
        fixture.psql(&format!("analyze {table}")).await;
    }
}

/// A member with ten keys that have usage, rejections and history on every day.
async fn member_with_history(fixture: &PortalFixture, days: u32) -> (TestMember, String) {
    OTHER_ACCOUNTS.get_or_init(|| add_other_accounts(fixture)).await;
    let member = fixture.create_member().await;
    let id = member.id;
    let today = "(now() at time zone 'utc')::date";
    let day = format!("{today} - day");
    let reasons = env_number("IPSEITY_PAGE_REASONS", 6);
    let sql = format!(
        "insert into keys (id, account_id, seat, name, scope, digest)
         select lpad({id} || 'k' || seat, 10, '0'), {id}, seat, 'key \"' || seat || '\", of many', 'full', sha256(({id} || 'k' || seat)::bytea)
         from generate_series(1, 10) seat;
         create temporary table own as
         select k.id as key_id, seat, day from keys k, generate_series(0, {days} - 1) day where k.account_id = {id};
         insert into usage select key_id, {day}, 1000 + seat * 7 + day from own;
         insert into refusals select key_id, {day}, reason, 100 + day % 5 + seat
             from own, unnest(array['burst', 'paused', 'inactive', 'day', 'wrong_secret', 'restricted']) with ordinality reasons (reason, number)
             where (day + number) % 6 < {reasons};
         insert into usage_hours select key_id, {day}, outcome, ('[0:23]=' || array(select hour * 3 + seat from generate_series(0, 23) hour)::text)::bigint[]
             from own, unnest(array['admitted', 'burst', 'paused', 'inactive', 'day', 'wrong_secret', 'restricted']) with ordinality outcomes (outcome, number)
             where day < 31 and (number = 1 or (day + number - 1) % 6 < {reasons});
         insert into history (key_id, at, act, actor)
             select key_id, now() - day * interval '1 day', act, 'owner' from own, unnest(array['paused', 'resumed']) act;
         insert into pauses (key_id, burst_window, paused_at, counts)
             select key_id, day, now() - day * interval '1 day', array_fill(5::smallint, array[60]) from own;
         insert into alert_channels (account_id, kind, url, alerts, secret)
             values ({id}, 'webhook', 'https://hooks.example/', array['paused'], sha256(''));
         insert into notices (account_id, kind, key_id, channel_id, message_id, details, mailed_at, expires_at)
             select {id}, 'alert_paused', key_id, c.id, gen_random_uuid(), jsonb_build_object('name', 'key'), now(), now()
             from own, alert_channels c where c.account_id = {id}"
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

/// Times of a page with a long and with a short history, requested alternately, in ascending order.
async fn sorted_times(long: (&mut Browser, &str), short: (&mut Browser, &str)) -> [Vec<Duration>; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..SAMPLES {
        times[0].push(time_page(long.0, long.1).await);
        times[1].push(time_page(short.0, short.1).await);
    }
    times.map(|mut times| {
        times.sort_unstable();
        times
    })
}

fn page_median_max() -> Duration {
    Duration::from_millis(env_number("IPSEITY_PAGE_MS", PAGE_MEDIAN_MAX_MS).into())
}

/// The usage explorer reads more rows the longer its range is, and most in hours.
#[tokio::test(flavor = "multi_thread")]
async fn usage_explorer_is_fast_at_any_range() {
    let (fixture, median_max) = (shared_fixture().await, page_median_max());
    let (mut member, key) = member_with_history(fixture, LONG_DAYS).await;
    let week_ago =
        fixture.psql("select (now() at time zone 'utc')::date - 20, (now() at time zone 'utc')::date - 14").await;
    let (from, to) = week_ago.split_once('|').expect("two days");
    let mut paths = vec![format!("/usage?from={from}&to={to}"), format!("/usage?range=400d&key={key}&outcome=burst")];
    for range in ["24h", "7d", "30d", "400d"] {
        paths.extend(["", ".csv", ".json"].map(|file| format!("/usage{file}?range={range}")));
    }
    let mut reports = Vec::new();
    for path in &paths {
        let mut medians = Vec::new();
        while medians.last().is_none_or(|median| *median > median_max) && medians.len() < ROUNDS {
            let mut times = Vec::new();
            for _ in 0..SAMPLES {
                times.push(time_page(&mut member.browser, path).await);
            }
            times.sort_unstable();
            medians.push(times[SAMPLES / 2]);
        }
        let is_fast = medians.last().is_some_and(|median| *median <= median_max);
        reports.push(format!("{path}: {medians:.1?}"));
        assert!(is_fast, "slower than {median_max:?} in every round: {reports:?}");
    }
    print_lines(&reports);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_history_does_not_slow_pages() {
    let median_max = page_median_max();
    let fixture = shared_fixture().await;
    let (mut long, long_key) = member_with_history(fixture, LONG_DAYS).await;
    let (mut short, short_key) = member_with_history(fixture, SHORT_DAYS).await;
    let channel = async |member: &TestMember| {
        fixture.psql(&format!("select id from alert_channels where account_id = {}", member.id)).await
    };
    let (long_channel, short_channel) = (channel(&long).await, channel(&short).await);
    let is_page = |row: &&RouteCase| !row.is_form() && !row.is_stream() && row.status == 200;
    let pages = ROUTE_CASES.iter().filter(is_page).filter(|row| !row.path.contains("{token}"));
    for path in pages.map(|row| row.path) {
        let (mut reports, mut is_fast, mut fastest) = (Vec::new(), false, [Duration::MAX; 2]);
        while !is_fast && reports.len() < ROUNDS {
            let [long_path, short_path] =
                [(&long_key, &long_channel), (&short_key, &short_channel)].map(|(key, channel)| {
                    let id = if path.starts_with("/account/alerts/") { channel } else { key };
                    path.replace("{id}", id).replace("{page}", "errors").replace("{epoch}", "1")
                });
            let times = sorted_times((&mut long.browser, &long_path), (&mut short.browser, &short_path)).await;
            let [long_median, short_median] = times.each_ref().map(|times| times[SAMPLES / 2]);
            fastest = [fastest[0].min(times[0][0]), fastest[1].min(times[1][0])];
            let [long_fastest, short_fastest] = fastest;
            reports.push(format!(
                "{path}: {long_median:.1?} with {LONG_DAYS} days, {short_median:.1?} with {SHORT_DAYS}; fastest {long_fastest:.1?}, {short_fastest:.1?}"
            ));
            let is_equal = long_fastest <= short_fastest + TOLERANCE_MIN.max(short_fastest.mul_f64(TOLERANCE));
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
            format!(
                "coalesce((select count from refusals r where (r.key_id, r.day) = (u.key_id, u.day) and reason = '{name}'), 0)"
            )
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
