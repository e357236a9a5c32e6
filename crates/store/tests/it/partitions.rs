//! Monthly partitions of usage: created ahead, dropped after the retention, and migrated from the previous schema.

use ipseity_store::{KeyDailyUsage, RetentionPolicy};

use ipseity_domain::{DailyUsage, UtcDay};

use crate::fixture::StoreFixture;

const POLICY: RetentionPolicy = RetentionPolicy { usage_days: 31, hourly_usage_days: 30, history_days: 31 };

/// The partitions of usage, by name.
async fn usage_partitions(fixture: &StoreFixture) -> Vec<String> {
    let names = fixture
        .sql("select inhrelid::regclass from pg_inherits where inhparent = 'usage'::regclass order by 1::text")
        .await;
    names.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn partition_migration_keeps_rows_and_old_version_works() {
    let fixture = StoreFixture::open().await;
    // The schema before partitions.
    fixture
        .sql(
            "drop function tend_months; drop function make_month; drop table usage, refusals, usage_hours;
             create table usage (key_id text collate \"C\" not null references keys on delete cascade, day date not null,
                 admitted bigint not null check (admitted >= 0), primary key (key_id, day));
             create table refusals (key_id text collate \"C\" not null references keys on delete cascade, day date not null,
                 reason text not null, count bigint not null check (count > 0), primary key (key_id, day, reason));
             delete from _sqlx_migrations where version in (3, 24)",
        )
        .await;
    let key = fixture.create_key().await;
    let insert_usage =
        "insert into usage select id, current_date + d, 7 from keys, unnest(array[-500, -40, -1, 0, 90]) d";
    fixture.sql(insert_usage).await;
    fixture.sql("insert into refusals select id, current_date - 40, 'day', 2 from keys").await;
    fixture.store.migrate().await.expect("migrations succeed");
    assert_eq!(fixture.sql("select count(*), sum(admitted) from usage").await, "5|35");
    assert_eq!(fixture.sql("select count(*) from usage_before").await, "4", "only future rows are copied");
    assert_eq!(fixture.sql("select count(*) from usage_other").await, "1");

    // A node of the previous version, which creates no partitions and accepts future days.
    let today = UtcDay(fixture.sql("select current_date - date '1970-01-01'").await.parse().expect("day parses"));
    let counts = [KeyDailyUsage { key: key.id, usage: DailyUsage { day: today, count: 9 } }];
    fixture.store.usage().merge_counts(&counts).await.expect("usage is merged");
    for count in [3, 4] {
        let merge = format!(
            "insert into usage select id, current_date + 60, {count} from keys
             on conflict (key_id, day) do update set admitted = excluded.admitted"
        );
        fixture.sql(&merge).await;
    }
    assert_eq!(fixture.sql("select admitted from usage where day = current_date + 60").await, "4");

    fixture.store.apply_retention(POLICY).await.expect("retention run succeeds");
    let remaining = fixture.sql("select count(*) from usage where day < current_date - 62").await;
    assert_eq!(remaining, "0", "expired rows are deleted from the old partition");
    assert_eq!(fixture.sql("select count(*) from usage where day >= current_date - 31").await, "2", "other rows stay");
    assert_eq!(
        fixture.sql("select count(*) from usage where day > current_date").await,
        "0",
        "future rows are deleted"
    );
    fixture.store.keys().delete(ipseity_store::Actor::Operator, key.id).await.expect("account is deleted");
    assert_eq!(fixture.sql("select (select count(*) from usage), (select count(*) from refusals)").await, "0|0");
}

#[tokio::test]
async fn monthly_partitions_are_created_filled_and_dropped() {
    let fixture = StoreFixture::open().await;
    fixture.create_key().await;
    let next_month = "(date_trunc('month', current_date) + interval '1 month')::date";
    fixture.sql(&format!("insert into usage select id, {next_month}, 5 from keys")).await;
    assert_eq!(fixture.sql("select count(*) from usage_other").await, "1");
    for _ in 0..2 {
        fixture.sql("select tend_months(31)").await;
    }
    assert_eq!(fixture.sql("select count(*) from usage_other").await, "0");
    assert_eq!(fixture.sql(&format!("select admitted from usage where day = {next_month}")).await, "5");
    let partitions = usage_partitions(&fixture).await;
    assert_eq!(partitions.len(), 4, "the old partition, two future months, and the default: {partitions:?}");

    let make_last_month = "select make_month('usage', (date_trunc('month', current_date) - interval '1 month')::date)";
    fixture.sql(make_last_month).await;
    assert_eq!(usage_partitions(&fixture).await, partitions, "the old partition contains that month");
    fixture
        .sql(
            "alter table usage detach partition usage_before; drop table usage_before;
             select make_month('usage', date '2020-02-01');
             insert into usage select id, date '2020-02-29', 1 from keys",
        )
        .await;
    assert!(usage_partitions(&fixture).await.contains(&"usage_2020_02".to_owned()));
    fixture.store.apply_retention(POLICY).await.expect("retention run succeeds");
    assert!(
        !usage_partitions(&fixture).await.contains(&"usage_2020_02".to_owned()),
        "the partition is dropped with its rows"
    );
    let too_few = RetentionPolicy { usage_days: 30, ..POLICY };
    assert!(fixture.store.apply_retention(too_few).await.is_err(), "the minimum is 31 days");
}

#[tokio::test]
async fn node_role_can_maintain_partitions() {
    let fixture = StoreFixture::open().await;
    let restricted_store = fixture.node_store().await;
    restricted_store.apply_retention(POLICY).await.expect("retention run succeeds");
    fixture.create_key().await;
    fixture.sql("insert into usage select id, current_date + 40, 5 from keys").await;
    restricted_store.apply_retention(POLICY).await.expect("retention run succeeds");
    assert!(usage_partitions(&fixture).await.len() >= 4);
}

#[tokio::test]
async fn retention_keeps_evidence_of_a_current_pause() {
    let fixture = StoreFixture::open().await;
    fixture.create_key().await;
    fixture
        .sql(
            "update history set at = now() - interval '32 days';
             update keys set paused_at = now() - interval '40 days', burst_window = 7;
             insert into pauses select id, w, now() - interval '40 days', array_fill(1::smallint, array[60])
                 from keys, unnest(array[6, 7]) w;
             insert into demo_usage values (current_date - 40, 1, 1), (current_date, 1, 1)",
        )
        .await;
    fixture.store.apply_retention(POLICY).await.expect("retention run succeeds");
    let remaining = "select (select count(*) from history), (select string_agg(burst_window::text, ',') from pauses),
                       (select count(*) from demo_usage)";
    assert_eq!(fixture.sql(remaining).await, "0|7|1");
}
