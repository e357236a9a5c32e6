//! Pages of an account with ten keys and a long history: as quick as with a short one, and true to the rows.
//!
//! `IPSEITY_PAGE_MS` names the bound on a page's median; without it, one that a build which is not for speed can meet beside other tests.

use std::time::{Duration, Instant};

use super::browser::Browser;
use super::stage::{Member, Stage, stage};
use super::table::ROWS;

const PAGE_MS: u64 = 200;
const LONG_DAYS: u32 = 400;
const SHORT_DAYS: u32 = 30;
const TRIES: usize = 15;
/// A busy machine may slow one side once; pages that grow with their history are slower every time.
const ROUNDS: usize = 3;
const SAME_SHARE: f64 = 0.25;
const SAME_MIN: Duration = Duration::from_millis(5);

/// A member with ten keys that were used, refused and changed on every day.
async fn veteran(stage: &Stage, days: u32) -> (Member, String) {
    let member = stage.plant_member().await;
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
             from own, unnest(array['burst', 'paused', 'inactive', 'day', 'wrong_secret']) reason;
         insert into history (key_id, at, act, actor)
             select key_id, now() - day * interval '1 day', act, 'owner' from own, unnest(array['paused', 'resumed']) act;
         insert into pauses (key_id, burst_window, paused_at, counts)
             select key_id, day, now() - day * interval '1 day', array_fill(5::smallint, array[60]) from own"
    );
    stage.psql(&sql).await;
    let key = stage.psql(&format!("select id from keys where account_id = {id} order by seat limit 1")).await;
    (member, key)
}

async fn time(browser: &mut Browser, path: &str) -> Duration {
    let started = Instant::now();
    let reply = browser.get(path).await;
    let took = started.elapsed();
    assert_eq!(reply.status, 200, "{path}");
    took
}

/// Medians of a page with a long and with a short history, asked for in turn.
async fn medians(long: (&mut Browser, &str), short: (&mut Browser, &str)) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..TRIES {
        times[0].push(time(long.0, long.1).await);
        times[1].push(time(short.0, short.1).await);
    }
    times.map(|mut times| {
        times.sort_unstable();
        times[TRIES / 2]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_makes_no_page_slower() {
    let bound = std::env::var("IPSEITY_PAGE_MS").map_or(PAGE_MS, |value| value.parse().expect("milliseconds"));
    let bound = Duration::from_millis(bound);
    let stage = stage().await;
    let (mut long, long_key) = veteran(stage, LONG_DAYS).await;
    let (mut short, short_key) = veteran(stage, SHORT_DAYS).await;
    let pages = ROWS.iter().filter(|row| !row.is_form() && !row.is_endless() && !row.path.contains("{token}"));
    for path in pages.map(|row| row.path) {
        let (mut told, mut is_quick) = (Vec::new(), false);
        while !is_quick && told.len() < ROUNDS {
            let [of_long, of_short] =
                [&long_key, &short_key].map(|key| path.replace("{id}", key).replace("{page}", "errors"));
            let [of_400, of_30] = medians((&mut long.browser, &of_long), (&mut short.browser, &of_short)).await;
            told.push(format!("{path}: {of_400:.1?} with {LONG_DAYS} days, {of_30:.1?} with {SHORT_DAYS}"));
            let is_equal = of_400 <= of_30 + SAME_MIN.max(of_30.mul_f64(SAME_SHARE));
            is_quick = is_equal && of_400 <= bound;
        }
        report(&told);
        assert!(is_quick, "slower than {bound:?} or than a short history, each time: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_csv_says_what_the_rows_say() {
    let stage = stage().await;
    let (mut member, key) = veteran(stage, SHORT_DAYS + 5).await;
    let expected = |keys: &str| {
        let reason = |name: &str| {
            format!("(select count from refusals r where (r.key_id, r.day) = (u.key_id, u.day) and reason = '{name}')")
        };
        let refused = ["burst", "paused", "inactive", "day", "wrong_secret"].map(reason).join(" || ',' || ");
        format!(
            "select u.day || ',' || k.id || ',\"' || replace(k.name, '\"', '\"\"') || '\",' || u.admitted || ',' || {refused}
             from usage u join keys k on k.id = u.key_id
             where {keys} and u.day > (now() at time zone 'utc')::date - {SHORT_DAYS} order by u.day desc, k.id"
        )
    };
    let all = stage.psql(&expected(&format!("k.account_id = {}", member.id))).await;
    let one = stage.psql(&expected(&format!("k.id = '{key}'"))).await;
    for (path, rows, count) in [("/usage.csv", all, 300), (&format!("/keys/{key}/usage.csv"), one, 30)] {
        let reply = member.browser.get(path).await;
        assert_eq!(reply.header("content-type"), Some("text/csv; charset=utf-8"));
        assert!(
            reply.header("content-disposition").is_some_and(|value| value.starts_with("attachment; filename=")),
            "{path}"
        );
        let text = reply.text();
        let (head, lines) = text.split_once("\r\n").expect("a head");
        assert_eq!(
            head,
            "day,key,name,admitted,refused_burst,refused_paused,refused_inactive,refused_day,refused_wrong_secret"
        );
        let (found, expected): (Vec<_>, Vec<_>) = (lines.lines().collect(), rows.lines().collect());
        assert_eq!((found.len(), expected.len()), (count, count), "{path}");
        assert_eq!(found, expected, "{path}");
    }
}

#[expect(clippy::print_stderr, reason = "the figures are worth knowing, met or not")]
fn report(told: &[String]) {
    told.iter().for_each(|line| eprintln!("{line}"));
}
