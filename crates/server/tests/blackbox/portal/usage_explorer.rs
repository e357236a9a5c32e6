//! The usage explorer: its page and its files show what was sent, by range, key and outcome.

use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::{
    DeploymentOptions, IssuedKey, PostgresOptions, RedisOptions, TestClock, TestResponse, eventually,
};
use serde_json::Value;

use super::alert_emails::{DAILY_LIMIT, send_lookups, use_small_plan};
use super::browser::Browser;
use super::fixture::{PortalFixture, shared_fixture};

const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);
const HOUR_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;
const COLUMNS: [&str; 7] = [
    "admitted",
    "rejected_burst",
    "rejected_paused",
    "rejected_inactive",
    "rejected_day",
    "rejected_wrong_secret",
    "rejected_restricted",
];

/// The rows of the JSON file.
async fn json_rows(browser: &mut Browser, query: &str) -> Vec<Value> {
    let reply = browser.get(&format!("/usage.json?{query}")).await;
    assert_eq!(reply.status, 200, "{query}");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    reply.json().expect("body is JSON")["rows"].as_array().expect("rows are an array").clone()
}

/// The sums of the JSON file. Columns of other outcomes are missing and count as 0.
fn sums(rows: &[Value]) -> [u64; 7] {
    COLUMNS.map(|column| rows.iter().filter_map(|row| row[column].as_u64()).sum())
}

/// Rows of the CSV file, in the form of those of the JSON file.
fn csv_rows(reply: &TestResponse) -> Vec<Value> {
    let text = reply.text();
    let mut lines = text.trim_end().split("\r\n");
    let header: Vec<&str> = lines.next().expect("CSV has a header").split(',').collect();
    let to_value = |(index, cell): (usize, &str)| {
        let cell = cell.trim_matches('"');
        if index < 3 { Value::from(cell) } else { Value::from(cell.parse::<u64>().expect("cell is a number")) }
    };
    let to_row = |line: &str| {
        let cells = line.split(',').enumerate().map(to_value);
        Value::Object(header.iter().map(|name| (*name).to_owned()).zip(cells).collect())
    };
    lines.map(to_row).collect()
}

/// The numbers of the totals on the page.
fn page_totals(page: &str) -> Vec<u64> {
    let (_, stats) = page.split_once("<dl class=\"stats\">").expect("page has totals");
    let (stats, _) = stats.split_once("</dl>").expect("totals end");
    let numbers = stats.split("<dd>").skip(1).filter_map(|part| part.split('<').next());
    numbers.map(|number| number.replace(',', "").parse().expect("total is a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn page_csv_and_json_show_what_was_sent_by_key_and_outcome() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    use_small_plan(fixture, &member).await;
    let (shop, app) = (member.create_key("shop", Scope::Ip).await, member.create_key("app", Scope::Ip).await);
    assert_eq!(send_lookups(fixture, &shop, DAILY_LIMIT + 2).await, 429);
    assert_eq!(send_lookups(fixture, &app, 3).await, 200);
    assert_eq!(member.browser.post(&format!("/keys/{}/deactivate", app.id), &[]).await.status, 303);
    assert_eq!(send_lookups(fixture, &app, 4).await, 403);

    let (shop, app) = (shop.id, app.id);
    let admitted = DAILY_LIMIT as u64;
    // While Redis does not answer in time, pages show the flushed counts.
    let flushed = format!("select sum(admitted) from usage where key_id in ('{shop}', '{app}')");
    eventually("the counts are flushed", FLUSH_TIMEOUT, async || {
        fixture.psql(&flushed).await == (admitted + 3).to_string()
    })
    .await
    .expect("the counts are in PostgreSQL");
    let today = fixture.psql("select (now() at time zone 'utc')::date").await;
    let all = [admitted + 3, 0, 0, 4, 2, 0, 0];
    for range in [
        "range=24h".to_owned(),
        "range=7d".to_owned(),
        "range=30d".to_owned(),
        "range=400d".to_owned(),
        format!("from={today}&to={today}"),
    ] {
        for (filter, expected) in [
            (String::new(), all),
            (format!("&key={shop}"), [admitted, 0, 0, 0, 2, 0, 0]),
            (format!("&key={app}"), [3, 0, 0, 4, 0, 0, 0]),
            ("&outcome=admitted".to_owned(), [admitted + 3, 0, 0, 0, 0, 0, 0]),
            ("&outcome=day".to_owned(), [0, 0, 0, 0, 2, 0, 0]),
            (format!("&key={app}&outcome=inactive"), [0, 0, 0, 4, 0, 0, 0]),
            (format!("&key={app}&outcome=burst"), [0; 7]),
        ] {
            let query = format!("{range}{filter}");
            let browser = &mut member.browser;
            eventually(&query, FLUSH_TIMEOUT, async || sums(&json_rows(browser, &query).await) == expected)
                .await
                .expect("the numbers match");
            let rows = json_rows(browser, &query).await;
            let csv = browser.get(&format!("/usage.csv?{query}")).await;
            assert_eq!(csv_rows(&csv), rows, "{query}");
            let page = browser.get(&format!("/usage?{query}")).await.text();
            let rejected: u64 = expected[1..].iter().sum();
            let totals = match filter.split_once("outcome=") {
                None => vec![expected[0], rejected],
                Some((_, "admitted")) => vec![expected[0]],
                Some(_) => vec![rejected],
            };
            assert_eq!(page_totals(&page), totals, "{query}");
            let is_hourly = !["range=30d", "range=400d"].contains(&range.as_str());
            let unit = if range == "range=400d" {
                "week"
            } else if is_hourly {
                "hour"
            } else {
                "day"
            };
            assert!(page.contains(&format!("Numbers per {unit}")), "{query}");
            assert!(
                rows.iter().all(|row| row[if is_hourly { "hour" } else { "day" }].is_string()),
                "{query}: {rows:?}"
            );
        }
    }
    let daily_limit = member.browser.get(&format!("/usage?key={shop}")).await.text();
    assert!(
        daily_limit.contains("<line class=\"limit\"")
            && daily_limit.contains("Daily limit of this key: 10, the dashed line.")
    );
    assert!(member.browser.get(&format!("/keys/{shop}")).await.text().contains(&format!("href=\"/usage?key={shop}\"")));
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_and_invalid_ranges_are_rejected() {
    let fixture = shared_fixture().await;
    let mut other = fixture.create_member().await;
    let foreign = other.create_key("foreign", Scope::Ip).await;
    let mut member = fixture.create_member().await;
    for page in ["/usage", "/usage.csv", "/usage.json"] {
        for key in [foreign.id.as_str(), "zzzzzzzzzz", "short", "%00", "0123456789' or true"] {
            let key = key.replace(' ', "+");
            assert_eq!(member.browser.get(&format!("{page}?range=24h&key={key}")).await.status, 404, "{page}: {key}");
        }
        for (query, message) in [
            ("from=2020-02-30&to=2020-03-01", "Enter days as year, month and day"),
            ("from=2020-03-02&to=2020-03-01", "Swap them"),
            ("from=2020-01-01&to=2999-12-31", "be after today"),
            ("from=2010-01-01&to=2020-01-01", "at most 400 days"),
            ("from=2020-01-01", "Enter both"),
            ("range=forever", "Choose a range"),
            ("outcome=%3Cscript%3E", "Choose an outcome"),
        ] {
            let reply = member.browser.get(&format!("{page}?{query}")).await;
            assert_eq!(reply.status, 400, "{page}?{query}");
            assert!(reply.text().contains(message) && !reply.text().contains("<script>"), "{page}?{query}");
        }
        assert_eq!(member.browser.get(&format!("{page}?from=2019-01-01&to=2020-02-04")).await.status, 200);
    }
    let empty = member.browser.get("/usage?range=24h").await.text();
    assert!(empty.contains("No requests in this range") && empty.contains("Create a key"), "{empty}");
}

/// A deployment in which all processes share a clock.
async fn start_with_clock(clock: &TestClock) -> PortalFixture {
    let env = clock.env().map(|(name, value)| (name, value.display().to_string()));
    let mut settings: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
    settings.push(("IPSEITY__LEDGER__USAGE_FLUSH_INTERVAL_MS", "50"));
    let options = DeploymentOptions {
        postgres: PostgresOptions { clock: Some(clock.clone()), ..PostgresOptions::default() },
        redis: RedisOptions { clock: Some(clock.clone()), ..RedisOptions::default() },
        ..DeploymentOptions::default()
    };
    PortalFixture::with_options(options, &settings).await
}

async fn send_and_flush(fixture: &PortalFixture, key: &IssuedKey, times: usize, day_total: usize) {
    assert_eq!(send_lookups(fixture, key, times).await, 200);
    let flushed = "select coalesce(sum(admitted), 0) from usage where day = (now() at time zone 'utc')::date";
    eventually("usage is flushed", FLUSH_TIMEOUT, async || fixture.psql(flushed).await == day_total.to_string())
        .await
        .expect("happens in time");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_shown_in_their_hour() {
    let clock = TestClock::open().expect("open clock");
    let fixture = start_with_clock(&clock).await;
    let now_ms: i64 =
        fixture.psql("select floor(extract(epoch from now()) * 1000)::bigint").await.parse().expect("time is a number");
    // Ten past one, so that the day does not end during the test.
    clock.advance_ms(25 * HOUR_MS + 10 * MINUTE_MS - now_ms % (24 * HOUR_MS));
    let mut member = fixture.create_member().await;
    let key = member.create_key("shop", Scope::Ip).await;
    send_and_flush(&fixture, &key, 2, 2).await;
    clock.advance_ms(HOUR_MS);
    send_and_flush(&fixture, &key, 3, 5).await;
    clock.advance_ms(HOUR_MS);
    send_and_flush(&fixture, &key, 1, 6).await;
    clock.advance_ms(2 * HOUR_MS);
    let found = async |browser: &mut Browser, query: &str| {
        let rows = json_rows(browser, query).await;
        let hour = |row: &Value| row["hour"].as_str().map(|hour| hour[11..13].to_owned());
        rows.iter().map(|row| (hour(row).expect("row has an hour"), row["admitted"].as_u64())).collect::<Vec<_>>()
    };
    let expected = [("03", 1), ("02", 3), ("01", 2)].map(|(hour, count)| (hour.to_owned(), Some(count)));
    for query in ["range=24h", "range=7d"] {
        assert_eq!(found(&mut member.browser, query).await, expected, "{query}");
    }
    // Two hours past midnight on the next day: the last 24 hours begin at three o'clock.
    clock.advance_ms(21 * HOUR_MS);
    send_and_flush(&fixture, &key, 4, 4).await;
    let expected = [("02", 4), ("03", 1)].map(|(hour, count)| (hour.to_owned(), Some(count)));
    assert_eq!(found(&mut member.browser, "range=24h").await, expected);
    assert_eq!(found(&mut member.browser, "range=7d").await.len(), 4);
    let days = json_rows(&mut member.browser, "range=30d").await;
    assert_eq!(days.iter().map(|row| row["admitted"].as_u64()).collect::<Vec<_>>(), [Some(4), Some(6)]);
}
