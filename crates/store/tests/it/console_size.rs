//! The console's queries with the data of a large deployment. `IPSEITY_CONSOLE_ACCOUNTS=100000` seeds a million keys and checks how long
//! each query takes.

use std::time::{Duration, Instant};

use ipseity_domain::KeyId;
use ipseity_store::{AuditFilter, LimitRequestState, StoreError};
use ipseity_testkit::seed_console;

use crate::fixture::{DATABASE, StoreFixture};

/// Runs of each query. The slowest one is ignored: it opens a connection or reads from disk.
const RUNS: usize = 20;
const FULL_ACCOUNTS: u32 = 100_000;

/// Measures a query, and returns the median and the second longest time.
#[expect(clippy::print_stdout, reason = "the times are the result of a full run")]
async fn measure<T>(name: &str, mut query: impl AsyncFnMut() -> Result<T, StoreError>) -> [Duration; 2] {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        query().await.expect("query succeeds");
        times.push(started.elapsed());
    }
    times.sort_unstable();
    let (median, p95) = (times[RUNS / 2], times[RUNS - 2]);
    println!("{name:<42}{:>8.2} ms median {:>8.2} ms p95", median.as_secs_f64() * 1e3, p95.as_secs_f64() * 1e3);
    [median, p95]
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_fast_with_a_million_keys() {
    let accounts = std::env::var("IPSEITY_CONSOLE_ACCOUNTS").ok().and_then(|accounts| accounts.parse().ok());
    let accounts = accounts.unwrap_or(1_000);
    let fixture = StoreFixture::open().await;
    seed_console(&fixture.postgres, DATABASE, accounts).await.expect("database is seeded");
    let (store, console) = (&fixture.store, fixture.store.console());
    let mut slow = Vec::new();
    // A search must be fast nearly always. Of other queries, the median counts, because the machine may be busy.
    let mut check = |name: &'static str, [median, p95]: [Duration; 2], limit_ms| {
        let elapsed = if name == "search" { p95 } else { median };
        if elapsed > Duration::from_millis(limit_ms) {
            slow.push((name, elapsed));
        }
    };

    for text in ["500", "member", "a", "member500@example.com", "@example.com", "@mail7.example", "@none.example", "zz"]
    {
        check("search", measure(&format!("accounts {text}"), || console.search_accounts(text, 50)).await, 100);
    }
    for text in ["kkkkkk1000", "ips_kkkkkk1000", "p", "Production 5", "Key 77", "zz"] {
        check("search", measure(&format!("keys {text}"), || console.search_keys(text, 50)).await, 100);
    }
    check("overview", measure("overview", || console.overview()).await, 20);
    check("sign-ups", measure("sign-ups of 30 days", || console.sign_ups(30)).await, 20);
    check("accounts", measure("newest accounts", || console.newest_accounts(None, 100)).await, 20);
    check("invitations", measure("open invitations", || console.open_invitations()).await, 20);
    check("refusals", measure("refusals of 30 days", || console.refusals(30)).await, 20);
    check("emails", measure("unsent emails", || console.unsent_emails(100)).await, 20);
    check("nodes", measure("nodes", || store.nodes().list()).await, 20);
    let requests = store.limit_requests();
    check("requests", measure("limit requests", || requests.list(LimitRequestState::Open, 100)).await, 20);

    let all = AuditFilter::default();
    let month_ago = "select floor(extract(epoch from now()))::bigint - 30 * 86400";
    let since_s = fixture.sql(month_ago).await.parse().ok();
    let (log, key) = (store.audit_log(), KeyId::parse("kkkkkk7920"));
    for (name, filter) in [
        ("audit events", all),
        ("audit events before one in the middle", AuditFilter { before_id: Some(i64::from(accounts) * 5), ..all }),
        ("audit events of an account", AuditFilter { account_id: Some(7920 % i64::from(accounts)), ..all }),
        ("audit events of a key", AuditFilter { key, ..all }),
        ("audit events of an operator", AuditFilter { operator: Some("operator3"), ..all }),
        ("audit events of an unknown operator", AuditFilter { operator: Some("unknown"), ..all }),
        ("audit events of a frequent action", AuditFilter { action: Some("issued"), ..all }),
        ("audit events of a rare action", AuditFilter { action: Some("email_changed"), ..all }),
        ("audit events since a month", AuditFilter { since_s, ..all }),
    ] {
        check("audit", measure(name, || log.list(&filter, 100)).await, 20);
    }
    let since = AuditFilter { since_s, ..all };
    let first = measure("first audit events since a month", || log.list_oldest(&since, 100)).await;
    check("audit", first, 20);
    assert!(accounts < FULL_ACCOUNTS || slow.is_empty(), "{slow:?}");
}
