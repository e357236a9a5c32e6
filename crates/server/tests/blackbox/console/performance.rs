//! Pages are fast with many accounts and keys. `just console-size` uses 100,000 accounts with a million keys.

use std::time::{Duration, Instant};

use ipseity_store::OperatorRole;
use ipseity_testkit::deployment::DATABASE;
use ipseity_testkit::seed_console;

use super::fixture::ConsoleFixture;
use super::routes::ROUTE_CASES;
use crate::fixture::env_number;
use crate::portal::browser::Browser;

/// A debug build, during other tests.
const PAGE_MEDIAN_MAX_MS: u32 = 1_000;
const SEARCH_P95_MAX_MS: u32 = 2_000;
const ACCOUNTS: u32 = 500;
const SAMPLES: usize = 21;

async fn time_page(browser: &mut Browser, path: &str) -> Duration {
    let started = Instant::now();
    let reply = browser.get(path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    started.elapsed()
}

#[expect(clippy::print_stdout, reason = "the measured times are a result")]
#[tokio::test(flavor = "multi_thread")]
async fn pages_are_fast_with_many_accounts() {
    let accounts = env_number("IPSEITY_CONSOLE_ACCOUNTS", ACCOUNTS);
    let page_max = Duration::from_millis(env_number("IPSEITY_CONSOLE_PAGE_MS", PAGE_MEDIAN_MAX_MS).into());
    let search_max = Duration::from_millis(env_number("IPSEITY_CONSOLE_SEARCH_MS", SEARCH_P95_MAX_MS).into());
    let fixture = ConsoleFixture::open(&[]).await;
    seed_console(&fixture.portal.deployment.postgres, DATABASE, accounts).await.expect("database is filled");
    let account = fixture.psql("select max(id) / 2 from accounts").await;
    let key = fixture.psql(&format!("select min(id) from keys where account_id = {account}")).await;
    let mut admin = fixture.sign_in(OperatorRole::Admin).await.browser;
    let mut lines = Vec::new();
    let is_page = |path: &str| !path.contains("{token}") && !path.ends_with(".csv");
    let pages = ROUTE_CASES.iter().filter(|case| !case.is_form() && case.status == 200 && is_page(case.path));
    let audit = ["/audit?operator=unknown", "/audit?action=paused"].map(str::to_owned);
    let paths = pages.map(|case| {
        let id = if case.path.starts_with("/keys/") { &key } else { &account };
        case.path.replace("{id}", id)
    });
    for path in paths.chain(audit) {
        let mut times = Vec::new();
        for _ in 0..SAMPLES {
            times.push(time_page(&mut admin, &path).await);
        }
        times.sort_unstable();
        lines.push(format!("{path}: median {:.1?}", times[SAMPLES / 2]));
        assert!(times[SAMPLES / 2] <= page_max, "slower than {page_max:?}: {lines:?}");
    }
    let mut times = Vec::new();
    for search in 0..SAMPLES {
        let email = fixture.psql(&format!("select left(email, 6) from accounts offset {} limit 1", search * 7)).await;
        let name = fixture.psql(&format!("select left(name, 4) from keys offset {} limit 1", search * 31)).await;
        for text in [email, name, key.clone(), account.clone(), "@example.com".to_owned()] {
            let query = text.replace('@', "%40").replace(' ', "+");
            times.push(time_page(&mut admin, &format!("/search?q={query}")).await);
        }
    }
    times.sort_unstable();
    let p95 = times[times.len() * 95 / 100];
    lines.push(format!("search: median {:.1?}, p95 {p95:.1?}", times[times.len() / 2]));
    for line in &lines {
        println!("{line}");
    }
    assert!(p95 <= search_max, "slower than {search_max:?}: {lines:?}");
}
