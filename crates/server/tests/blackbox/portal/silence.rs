//! Nobody learns who has an account: known and unknown addresses get the same answer, in the same time.

use std::time::{Duration, Instant};

use testkit::Reply;
use tokio::sync::OnceCell;

use super::browser::Browser;
use super::stage::{Stage, fresh_email};

const TRIES: usize = 40;
/// A machine that does many things at once may favour one side once; a leak favours it every time.
const ROUNDS: usize = 3;
const SAME_SHARE: f64 = 0.15;
const SAME_MIN: Duration = Duration::from_millis(3);

/// The doors, and what is typed there beside the address.
const DOORS: [(&str, &[(&str, &str)]); 3] = [
    ("/signin", &[("password", "not the password")]),
    ("/signup", &[("password", "a brand-new password")]),
    ("/forgot", &[]),
];

static STAGE: OnceCell<Stage> = OnceCell::const_new();

/// A stage where nobody else's passwords are checked.
async fn quiet() -> &'static Stage {
    STAGE.get_or_init(async || Stage::open(&[]).await).await
}

/// Accounts that have a password, or none yet.
async fn members(stage: &Stage, count: usize, has_password: bool) -> Vec<String> {
    let emails: Vec<_> = (0..count).map(|_| fresh_email()).collect();
    let hash = if has_password { format!("'{}'", stage.password_hash().await) } else { "null".to_owned() };
    let rows: Vec<_> = emails.iter().map(|email| format!("('{email}', {hash})")).collect();
    stage.psql(&format!("insert into accounts (email, password_hash) values {}", rows.join(", "))).await;
    emails
}

async fn knock(browser: &mut Browser, (path, fields): (&str, &[(&str, &str)]), email: &str) -> Reply {
    browser.post(path, &[fields, &[("email", email)]].concat()).await
}

/// An answer without what differs between any two.
fn essence(reply: &Reply, email: &str) -> String {
    let mut headers: Vec<_> =
        reply.headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&name.as_str())).collect();
    headers.sort_by_key(|(name, _)| name.as_str());
    let headers: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
    assert!(!reply.headers.contains_key("set-cookie"), "no cookie is set by whoever does not sign in");
    format!("{}\n{}\n\n{}", reply.status, headers.join("\n"), reply.text().replace(email, "ADDRESS"))
}

#[tokio::test(flavor = "multi_thread")]
async fn known_and_unknown_addresses_get_the_same_answer() {
    let stage = quiet().await;
    let known = members(stage, 1, true).await.remove(0);
    let invited = members(stage, 1, false).await.remove(0);
    let unknown = fresh_email();
    let mut browser = stage.browser();
    for door in DOORS {
        let mut answers = Vec::new();
        for email in [&known, &invited, &unknown, &known.to_uppercase()] {
            answers.push(essence(&knock(&mut browser, door, email).await, email));
        }
        for other in &answers[1..] {
            assert_eq!(*other, answers[0], "{}", door.0);
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Medians of the times for known and unknown addresses. Each side goes first as often as the other: what one leaves to be done, such as a mail, is
/// done while the next waits.
async fn measure(stage: &Stage, browser: &mut Browser, door: (&str, &[(&str, &str)])) -> (Duration, Duration) {
    let known = members(stage, TRIES, true).await;
    let mut times = (Vec::new(), Vec::new());
    for (at, known) in known.iter().enumerate() {
        let unknown = fresh_email();
        let order = if at % 2 == 0 { [true, false] } else { [false, true] };
        for is_known in order {
            let email = if is_known { known } else { &unknown };
            let started = Instant::now();
            let reply = knock(browser, door, email).await;
            let side = if is_known { &mut times.0 } else { &mut times.1 };
            side.push(started.elapsed());
            assert_eq!(reply.status, 200, "{}: {}", door.0, reply.text());
        }
    }
    (median(times.0), median(times.1))
}

#[tokio::test(flavor = "multi_thread")]
async fn known_and_unknown_addresses_take_the_same_time() {
    let stage = quiet().await;
    let mut browser = stage.browser();
    for door in DOORS {
        let (mut told, mut is_same) = (Vec::new(), false);
        while !is_same && told.len() < ROUNDS {
            let (known, unknown) = measure(stage, &mut browser, door).await;
            told.push(format!("{}: known {known:.1?}, unknown {unknown:.1?}", door.0));
            is_same = known.abs_diff(unknown) <= SAME_MIN.max(known.max(unknown).mul_f64(SAME_SHARE));
        }
        report(&told);
        assert!(is_same, "every time one side took longer: {told:?}");
    }
}

#[expect(clippy::print_stderr, reason = "the figures are worth knowing, met or not")]
fn report(told: &[String]) {
    told.iter().for_each(|line| eprintln!("{line}"));
}
