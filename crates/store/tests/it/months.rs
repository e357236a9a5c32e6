//! Usage by month: made ahead, let go of when it is past its time, and brought there from the schema before.

use store::{Keep, RolledUp};

use domain::{Day, Used};

use crate::stage::Stage;

const KEEP: Keep = Keep { usage_days: 31, history_days: 31 };

/// The parts of usage, by name.
async fn parts(stage: &Stage) -> Vec<String> {
    let told = stage
        .sql("select inhrelid::regclass from pg_inherits where inhparent = 'usage'::regclass order by 1::text")
        .await;
    told.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn rows_of_before_stay_where_they_are_and_the_version_before_goes_on() {
    let stage = Stage::open().await;
    // As it was before months.
    stage
        .sql(
            "drop function tend_months; drop function make_month; drop table usage, refusals;
             create table usage (key_id text collate \"C\" not null references keys on delete cascade, day date not null,
                 admitted bigint not null check (admitted >= 0), primary key (key_id, day));
             create table refusals (key_id text collate \"C\" not null references keys on delete cascade, day date not null,
                 reason text not null, count bigint not null check (count > 0), primary key (key_id, day, reason));
             delete from _sqlx_migrations where version = 3",
        )
        .await;
    let key = stage.key().await;
    let far = "insert into usage select id, current_date + d, 7 from keys, unnest(array[-500, -40, -1, 0, 90]) d";
    stage.sql(far).await;
    stage.sql("insert into refusals select id, current_date - 40, 'day', 2 from keys").await;
    stage.store.migrate().await.expect("months");
    assert_eq!(stage.sql("select count(*), sum(admitted) from usage").await, "5|35");
    assert_eq!(stage.sql("select count(*) from usage_before").await, "4", "nothing is copied but the future");
    assert_eq!(stage.sql("select count(*) from usage_other").await, "1");

    // A node that never makes months, as those of the version before.
    let today = Day(stage.sql("select current_date - date '1970-01-01'").await.parse().expect("a day"));
    for (day, count) in [(today, 9), (Day(today.0 + 60), 3), (Day(today.0 + 60), 4)] {
        let rolled = [RolledUp { key: key.id, used: Used { day, count } }];
        stage.store.roll_up(&rolled).await.expect("a roll-up");
    }
    assert_eq!(stage.sql("select admitted from usage where day = current_date + 60").await, "4");

    stage.store.forget_past(KEEP).await.expect("a round");
    let left = stage.sql("select count(*) from usage where day < current_date - 62").await;
    assert_eq!(left, "0", "what is past its time is deleted from the part of before");
    assert_eq!(stage.sql("select count(*) from usage where day >= current_date - 31").await, "4", "the rest stays");
    stage.store.delete(store::By::Operator, key.id).await.expect("a deletion");
    assert_eq!(stage.sql("select (select count(*) from usage), (select count(*) from refusals)").await, "0|0");
}

#[tokio::test]
async fn months_come_and_go_and_what_waited_for_one_moves_there() {
    let stage = Stage::open().await;
    stage.key().await;
    let next = "(date_trunc('month', current_date) + interval '1 month')::date";
    stage.sql(&format!("insert into usage select id, {next}, 5 from keys")).await;
    assert_eq!(stage.sql("select count(*) from usage_other").await, "1");
    for _ in 0..2 {
        stage.store.forget_past(KEEP).await.expect("a round");
    }
    assert_eq!(stage.sql("select count(*) from usage_other").await, "0");
    assert_eq!(stage.sql(&format!("select admitted from usage where day = {next}")).await, "5");
    let made = parts(&stage).await;
    assert_eq!(made.len(), 4, "before, two months to come, and the part for others: {made:?}");

    let old = "select make_month('usage', (date_trunc('month', current_date) - interval '1 month')::date)";
    stage.sql(old).await;
    assert_eq!(parts(&stage).await, made, "the part of before holds that month");
    stage
        .sql(
            "alter table usage detach partition usage_before; drop table usage_before;
             select make_month('usage', date '2020-02-01');
             insert into usage select id, date '2020-02-29', 1 from keys",
        )
        .await;
    assert!(parts(&stage).await.contains(&"usage_2020_02".to_owned()));
    stage.store.forget_past(KEEP).await.expect("a round");
    assert!(!parts(&stage).await.contains(&"usage_2020_02".to_owned()), "it is gone with its rows");
    let too_few = Keep { usage_days: 30, ..KEEP };
    assert!(stage.store.forget_past(too_few).await.is_err(), "31 days at least");
}

#[tokio::test]
async fn a_role_that_may_only_write_rows_can_tend_months_too() {
    let stage = Stage::open().await;
    stage
        .sql(
            "create role clerk login; grant select, insert, update, delete on all tables in schema public to clerk;
             grant usage on all sequences in schema public to clerk",
        )
        .await;
    let clerk = stage.store_as("clerk");
    clerk.forget_past(KEEP).await.expect("a round");
    stage.key().await;
    stage.sql("insert into usage select id, current_date + 40, 5 from keys").await;
    clerk.forget_past(KEEP).await.expect("a round");
    assert!(parts(&stage).await.len() >= 4);
}

#[tokio::test]
async fn history_and_evidence_go_but_not_of_a_pause_that_holds() {
    let stage = Stage::open().await;
    stage.key().await;
    stage
        .sql(
            "update history set at = now() - interval '32 days';
             update keys set paused_at = now() - interval '40 days', burst_window = 7;
             insert into pauses select id, w, now() - interval '40 days', array_fill(1::smallint, array[60])
                 from keys, unnest(array[6, 7]) w;
             insert into demo_usage values (current_date - 40, 1, 1), (current_date, 1, 1)",
        )
        .await;
    stage.store.forget_past(KEEP).await.expect("a round");
    let left = "select (select count(*) from history), (select string_agg(burst_window::text, ',') from pauses),
                       (select count(*) from demo_usage)";
    assert_eq!(stage.sql(left).await, "0|7|1");
}
