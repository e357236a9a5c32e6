//! The rights of the role that nodes use.

use crate::fixture::StoreFixture;

/// Creates a temporary table with a trigger in place of a table that tend_months writes, and calls it. Returns whether the
/// trigger ran with the rights of the owner.
async fn gains_rights_of_the_owner(fixture: &StoreFixture) -> bool {
    fixture
        .sql(
            "select tend_months(31);
             do $$ declare newest text; begin
                 select max(c.relname) into newest from pg_inherits i join pg_class c on c.oid = i.inhrelid
                 where i.inhparent = 'public.usage'::regclass and c.relname like 'usage_2%';
                 execute format('drop table public.%I', newest);
             end $$",
        )
        .await;
    let attack = "set session authorization clerk;
         create temporary table usage_other (key_id text, day date, admitted bigint);
         create function pg_temp.take() returns trigger language plpgsql as
             $$ begin grant truncate on public.accounts to clerk; return null; end $$;
         create trigger taken before delete on usage_other for each statement execute function pg_temp.take();
         select tend_months(31)";
    // Without the rights of the owner, the trigger fails, if it runs at all.
    let _ = fixture.postgres.psql(crate::fixture::DATABASE, attack).await;
    fixture.sql("select has_table_privilege('clerk', 'accounts', 'truncate')").await == "t"
}

#[tokio::test]
async fn node_role_cannot_gain_rights_through_a_temporary_table() {
    let fixture = StoreFixture::open().await;
    fixture.node_store().await;
    assert!(!gains_rights_of_the_owner(&fixture).await);
    // The search path before, which shows that the attack works.
    fixture
        .sql("alter function tend_months set search_path = public; alter function make_month reset search_path")
        .await;
    assert!(gains_rights_of_the_owner(&fixture).await);
}

#[tokio::test]
async fn every_function_has_a_fixed_search_path_and_is_not_public() {
    let fixture = StoreFixture::open().await;
    let open_functions = "select string_agg(proname, ', ') from pg_proc
         where pronamespace = 'public'::regnamespace
             and (proconfig is null or not 'search_path=public, pg_temp' = any (proconfig)
                  or has_function_privilege('public', oid, 'execute'))";
    assert_eq!(fixture.sql(open_functions).await, "");
}

#[tokio::test]
async fn node_role_reads_and_writes_rows_but_owns_and_creates_nothing() {
    let fixture = StoreFixture::open().await;
    let store = fixture.node_store().await;
    store.check().await.expect("schema is readable");
    let key = fixture.create_key().await;
    assert!(store.keys().find_record(key.id).await.expect("query succeeds").is_some());
    assert!(store.inspect_server().await.expect("doctor can inspect").can_write);
    for refused in
        ["create table mine (a int)", "truncate accounts", "drop table accounts", "delete from _sqlx_migrations"]
    {
        let error = fixture.sql_error(&format!("set session authorization clerk; {refused}")).await;
        assert!(error.contains("permission denied") || error.contains("must be owner"), "{refused}: {error}");
    }
}
