//! Requests per hour, by PostgreSQL's clock.

use ipseity_domain::{DailyUsage, KeyId, UtcDay};
use ipseity_store::{Actor, KeyDailyUsage, RefusalCount, RefusalReason, RetentionPolicy};
use ipseity_testkit::TestClock;
use tokio::task::JoinSet;

use crate::fixture::{StoreFixture, generate_key};

const HOUR_MS: i64 = 3_600_000;
/// The order of `UsageRow::refused`.
const BURST: usize = 0;
const WRONG_SECRET: usize = 4;

/// An account with one key, and a PostgreSQL whose clock the test advances.
struct HoursFixture {
    fixture: StoreFixture,
    clock: TestClock,
    account_id: i64,
    key: KeyId,
    /// The day on which the test starts, at one minute past midnight.
    today: UtcDay,
}

impl HoursFixture {
    async fn open() -> Self {
        let clock = TestClock::open().expect("open clock");
        let fixture = StoreFixture::with_clock(&clock).await;
        let account = fixture.create_account().await;
        let key = fixture.create_key_for(&account).await.id;
        let now_ms = fixture.sql("select floor(extract(epoch from now()) * 1000)::bigint").await;
        let now_ms: i64 = now_ms.parse().expect("time is a number");
        clock.advance_ms(24 * HOUR_MS - now_ms % (24 * HOUR_MS) + 60_000);
        let today = UtcDay(u32::try_from(now_ms / (24 * HOUR_MS) + 1).expect("day fits"));
        Self { fixture, clock, account_id: account.id, key, today }
    }

    fn advance_hours(&self, hours: i64) {
        self.clock.advance_ms(hours * HOUR_MS);
    }

    fn day(&self, offset: u32) -> UtcDay {
        UtcDay(self.today.0 + offset)
    }

    async fn merge(&self, day: u32, count: u64) {
        let counts = [KeyDailyUsage { key: self.key, usage: DailyUsage { day: self.day(day), count } }];
        self.fixture.store.usage().merge_counts(&counts).await.expect("usage is merged");
    }

    async fn refuse(&self, day: u32, reason: RefusalReason, count: u64) {
        let refusals = [
            RefusalCount { key: self.key, day: self.day(day), reason, count },
            RefusalCount { key: generate_key().id, day: self.day(day), reason, count },
        ];
        self.fixture.store.usage().add_refusals(&refusals).await.expect("refusals are added");
    }

    /// Day, hour, reason and count of each row of the key.
    async fn hours(&self) -> Vec<(u32, u8, Option<usize>, u64)> {
        let days = self.day(0)..=self.day(9);
        let rows = self.fixture.store.usage().list_hours(self.account_id, Some(self.key), days).await;
        let rows = rows.expect("hours are listed");
        rows.iter().map(|row| (row.day.0 - self.today.0, row.hour, row.refusal, row.count)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hour_has_the_requests_that_were_flushed_in_it() {
    let hours = HoursFixture::open().await;
    for (advance, counts) in [(10, vec![5, 5, 9, 7]), (2, vec![9, 12, 11]), (1, vec![20]), (0, vec![20, 21])] {
        hours.advance_hours(advance);
        for count in counts {
            hours.merge(0, count).await;
        }
        hours.refuse(0, RefusalReason::Burst, 2).await;
    }
    hours.refuse(0, RefusalReason::WrongSecret, 7).await;
    let expected = [
        (0, 10, None, 9),
        (0, 12, None, 3),
        (0, 13, None, 9),
        (0, 10, Some(BURST), 2),
        (0, 12, Some(BURST), 2),
        (0, 13, Some(BURST), 4),
        (0, 13, Some(WRONG_SECRET), 7),
    ];
    assert_eq!(hours.hours().await, expected);
    let store = &hours.fixture.store;
    let days = hours.day(0)..=hours.day(1);
    let all = store.usage().list_hours(hours.account_id, None, days.clone()).await.expect("hours are listed");
    assert_eq!(all.len(), expected.len(), "all keys of the account");
    for (account_id, key) in [(0, None), (0, Some(hours.key)), (hours.account_id, Some(generate_key().id))] {
        let others = store.usage().list_hours(account_id, key, days.clone()).await.expect("hours are listed");
        assert_eq!(others, [], "of others");
    }
    let later = store.usage().list_hours(hours.account_id, None, hours.day(1)..=hours.day(2)).await;
    assert_eq!(later.expect("hours are listed"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_around_midnight_stay_on_their_day() {
    let hours = HoursFixture::open().await;
    hours.advance_hours(22);
    hours.merge(0, 4).await;
    hours.refuse(0, RefusalReason::Burst, 1).await;
    hours.advance_hours(2);
    // Late for the day before, now, and by a Redis whose clock is ahead.
    hours.merge(0, 6).await;
    hours.refuse(0, RefusalReason::Burst, 2).await;
    hours.merge(1, 3).await;
    hours.merge(2, 8).await;
    let expected = [
        (0, 22, None, 4),
        (0, 23, None, 2),
        (0, 22, Some(BURST), 1),
        (0, 23, Some(BURST), 2),
        (1, 0, None, 3),
        (2, 0, None, 8),
    ];
    assert_eq!(hours.hours().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_flushes_count_each_request_in_one_hour() {
    let hours = HoursFixture::open().await;
    let day = hours.today;
    let mut expected = Vec::new();
    for hour in 0..4_u64 {
        let mut nodes = JoinSet::new();
        for node in 0..4 {
            let (store, key) = (hours.fixture.store.clone(), hours.key);
            nodes.spawn(async move {
                for round in 0..10 {
                    // Several nodes sweep the same counts, in different orders.
                    let count = 1_000 * hour + 100 + (round * 7 + node) % 10;
                    let counts = [KeyDailyUsage { key, usage: DailyUsage { day, count } }];
                    store.usage().merge_counts(&counts).await.expect("usage is merged");
                    let refusals = [RefusalCount { key, day, reason: RefusalReason::Burst, count: 1 }];
                    store.usage().add_refusals(&refusals).await.expect("refusals are added");
                }
            });
        }
        nodes.join_all().await;
        expected.push(if hour == 0 { 109 } else { 1_000 });
        hours.advance_hours(1);
    }
    let rows = hours.hours().await;
    let counts = |refusal| rows.iter().filter(move |row| row.2 == refusal).map(|row| row.3).collect::<Vec<_>>();
    assert_eq!(counts(None), expected);
    assert_eq!(counts(Some(BURST)), [40; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_work_next_to_nodes_that_know_none() {
    let hours = HoursFixture::open().await;
    let sql = async |sql: &str| hours.fixture.sql(sql).await;
    hours.advance_hours(10);
    // A node of a version without hours.
    sql(&format!(
        "insert into usage (key_id, day, admitted) select '{}', (now() at time zone 'UTC')::date, 30",
        hours.key
    ))
    .await;
    assert_eq!(hours.hours().await, [], "its counts have no hour");
    hours.merge(0, 34).await;
    assert_eq!(hours.hours().await, [(0, 10, None, 4)]);
    hours.advance_hours(2);
    sql("update usage set admitted = 40").await;
    hours.merge(0, 45).await;
    assert_eq!(hours.hours().await, [(0, 10, None, 10), (0, 12, None, 5)], "its counts are in the last known hour");
    // A transaction that began in an earlier hour and waited.
    sql("update usage set hour = 15").await;
    hours.merge(0, 46).await;
    assert_eq!(hours.hours().await, [(0, 10, None, 10), (0, 12, None, 6)]);
    assert_eq!(sql("select hour, starts_hour from usage").await, "15|f");
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_expire_after_30_days_and_with_their_key() {
    let hours = HoursFixture::open().await;
    let (store, sql) = (&hours.fixture.store, async |sql: &str| hours.fixture.sql(sql).await);
    sql("insert into usage_hours select id, (now() at time zone 'UTC')::date - day, 'admitted', '{0}'
         from keys, unnest(array[400, 31, 30, 0, -1, -2]) day")
    .await;
    let policy = RetentionPolicy { usage_days: 400, hourly_usage_days: 30, history_days: 400 };
    store.apply_retention(policy).await.expect("retention run succeeds");
    let kept = "select string_agg(((now() at time zone 'UTC')::date - day)::text, ',' order by day) from usage_hours";
    assert_eq!(sql(kept).await, "30,0,-1");
    let other = hours.fixture.create_key().await.id;
    sql("insert into usage_hours select id, current_date, 'burst', '{0}' from keys").await;
    store.keys().delete(Actor::Operator, hours.key).await.expect("key is deleted");
    assert_eq!(sql("select string_agg(key_id, ',') from usage_hours").await, other.as_str());
    let account = store.keys().find_account(other).await.expect("query succeeds").expect("account exists");
    store.accounts().delete(account.id, None).await.expect("account is deleted");
    assert_eq!(sql("select count(*) from usage_hours").await, "0");
}
