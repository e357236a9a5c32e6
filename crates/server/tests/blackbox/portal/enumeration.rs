//! Account enumeration: known and unknown emails get the same response after the same time.

use std::time::{Duration, Instant};

use ipseity_testkit::TestResponse;
use tokio::sync::OnceCell;

use super::browser::Browser;
use super::fixture::{PortalFixture, fresh_email};

const SAMPLES: usize = 40;
/// A busy machine may slow one side in one round. A leak shows in every round.
const ROUNDS: usize = 3;
const TOLERANCE: f64 = 0.15;
const TOLERANCE_MIN: Duration = Duration::from_millis(3);

/// The forms, and their fields in addition to the email.
const AUTH_FORMS: [(&str, &[(&str, &str)]); 3] = [
    ("/signin", &[("password", "not the password")]),
    ("/signup", &[("password", "a brand-new password")]),
    ("/forgot", &[]),
];

static FIXTURE: OnceCell<PortalFixture> = OnceCell::const_new();

/// A fixture without password checks of other tests.
async fn idle_fixture() -> &'static PortalFixture {
    FIXTURE.get_or_init(async || PortalFixture::open(&[]).await).await
}

/// Creates accounts with or without a password.
async fn create_accounts(fixture: &PortalFixture, count: usize, has_password: bool) -> Vec<String> {
    let emails: Vec<_> = (0..count).map(|_| fresh_email()).collect();
    let hash = if has_password { format!("'{}'", fixture.password_hash().await) } else { "null".to_owned() };
    let rows: Vec<_> = emails.iter().map(|email| format!("('{email}', {hash})")).collect();
    fixture.psql(&format!("insert into accounts (email, password_hash) values {}", rows.join(", "))).await;
    emails
}

async fn submit_form(browser: &mut Browser, (path, fields): (&str, &[(&str, &str)]), email: &str) -> TestResponse {
    browser.post(path, &[fields, &[("email", email)]].concat()).await
}

/// A response without the parts that differ between any two.
fn comparable_text(reply: &TestResponse, email: &str) -> String {
    let mut headers: Vec<_> =
        reply.headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str())).collect();
    headers.sort_by_key(|(name, _)| name.as_str());
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("header is ASCII"))).collect();
    assert!(!reply.headers.contains_key("set-cookie"), "a failed sign-in sets no cookie");
    format!(
        "{}\n{}\n\n{}",
        reply.status,
        headers.join("\n"),
        reply.text().replace(email, "ADDRESS").replace(&email.to_lowercase(), "ADDRESS")
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn auth_responses_do_not_reveal_accounts() {
    let fixture = idle_fixture().await;
    let known = create_accounts(fixture, 1, true).await.remove(0);
    let invited = create_accounts(fixture, 1, false).await.remove(0);
    let unknown = fresh_email();
    let mut browser = fixture.browser();
    for form in AUTH_FORMS {
        let mut responses = Vec::new();
        for email in [&known, &invited, &unknown, &known.to_uppercase()] {
            responses.push(comparable_text(&submit_form(&mut browser, form, email).await, email));
        }
        for other in &responses[1..] {
            assert_eq!(*other, responses[0], "{}", form.0);
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Median times for known and unknown emails. Each side goes first equally often, since background work of one request, such as
/// an email, slows the next.
async fn measure_medians(
    fixture: &PortalFixture,
    browser: &mut Browser,
    form: (&str, &[(&str, &str)]),
) -> (Duration, Duration) {
    let known = create_accounts(fixture, SAMPLES, true).await;
    let mut times = (Vec::new(), Vec::new());
    for (index, known) in known.iter().enumerate() {
        let unknown = fresh_email();
        let order = if index % 2 == 0 { [true, false] } else { [false, true] };
        for is_known in order {
            let email = if is_known { known } else { &unknown };
            let started = Instant::now();
            let reply = submit_form(browser, form, email).await;
            let side = if is_known { &mut times.0 } else { &mut times.1 };
            side.push(started.elapsed());
            assert_eq!(reply.status, 200, "{}: {}", form.0, reply.text());
        }
    }
    (median(times.0), median(times.1))
}

#[tokio::test(flavor = "multi_thread")]
async fn auth_timing_does_not_reveal_accounts() {
    let fixture = idle_fixture().await;
    let mut browser = fixture.browser();
    for form in AUTH_FORMS {
        let (mut reports, mut is_same) = (Vec::new(), false);
        while !is_same && reports.len() < ROUNDS {
            let (known, unknown) = measure_medians(fixture, &mut browser, form).await;
            reports.push(format!("{}: known {known:.1?}, unknown {unknown:.1?}", form.0));
            is_same = known.abs_diff(unknown) <= TOLERANCE_MIN.max(known.max(unknown).mul_f64(TOLERANCE));
        }
        print_lines(&reports);
        assert!(is_same, "one side was slower in every round: {reports:?}");
    }
}

#[expect(clippy::print_stderr, reason = "the measured times are useful even if the test passes")]
fn print_lines(lines: &[String]) {
    lines.iter().for_each(|line| eprintln!("{line}"));
}
