//! A flood of sign-ins during steady lookups: lookups are hardly affected, and memory stays within the limit of the password pool.
//!
//! `IPSEITY_SIGNIN_S` sets the duration of a longer flood with production timeouts, which also checks lookup times.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::PlaintextKey;
use ipseity_testkit::{IssuedKey, Node, TestClient};
use tokio::task::JoinSet;
use tokio::time::interval;

use super::browser::{SAME_ORIGIN, SESSION_COOKIE};
use super::fixture::{PASSWORD, PortalFixture};

const SIGNINS_PER_S: u32 = 200;
const LOOKUPS_PER_S: u32 = 200;
const SHORT_S: u32 = 4;
const PRODUCTION_TIMEOUTS: [(&str, &str); 3] = [
    ("IPSEITY__LEDGER__TIMEOUT_MS", "50"),
    ("IPSEITY__STORE__TIMEOUT_MS", "1000"),
    ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "5000"),
];
/// Below the burst limit of 300 requests in 60 seconds.
const REQUESTS_PER_KEY: u32 = 280;
const KEYS_PER_ACCOUNT: usize = 10;
/// Enough accounts that none is throttled; otherwise the flood would be rejected early.
const ACCOUNTS: usize = 400;
/// Password threads of strangers, memory of each (argon2id with 19 MiB), and memory of connections and sessions.
const PASSWORD_THREADS: u64 = 2;
const HASH_KIB: u64 = 19 * 1024;
const OTHER_MEMORY_KIB: u64 = 16 * 1024;
/// Below this, the time measures the client's CPU share rather than the service.
const P99_NOISE_FLOOR: Duration = Duration::from_millis(5);

/// Creates members with keys directly in PostgreSQL.
async fn create_members_with_keys(fixture: &PortalFixture, keys: usize) -> (Vec<String>, Vec<IssuedKey>) {
    let hash = fixture.password_hash().await;
    let emails: Vec<_> = (0..ACCOUNTS).map(|number| format!("member{number}@example.com")).collect();
    let rows: Vec<_> = emails.iter().map(|email| format!("('{email}', '{hash}')")).collect();
    fixture.psql(&format!("insert into accounts (email, password_hash) values {}", rows.join(", "))).await;
    let keys: Vec<_> = (0..keys).map(|_| PlaintextKey::generate(|| fastrand::u8(..))).collect();
    let row = |(index, key): (usize, &PlaintextKey)| {
        let (email, slot) = (&emails[index / KEYS_PER_ACCOUNT], index % KEYS_PER_ACCOUNT + 1);
        let owner = format!("(select id from accounts where email = '{email}')");
        format!("('{}', {owner}, {slot}, 'load', 'geo', sha256('{}'))", key.to_api_key().id, key.expose())
    };
    let rows: Vec<_> = keys.iter().enumerate().map(row).collect();
    fixture
        .psql(&format!("insert into keys (id, account_id, seat, name, scope, digest) values {}", rows.join(", ")))
        .await;
    let issued = |key: &PlaintextKey| IssuedKey { id: key.to_api_key().id.to_string(), key: key.expose().to_owned() };
    (emails, keys.iter().map(issued).collect())
}

/// Clients with open connections, one per concurrent request.
struct ClientPool {
    node: std::net::SocketAddr,
    idle: Mutex<Vec<TestClient>>,
}

impl ClientPool {
    fn for_node(node: &Node) -> Arc<Self> {
        Arc::new(Self { node: node.http(), idle: Mutex::default() })
    }

    fn acquire(&self) -> TestClient {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| TestClient::new(self.node))
    }

    fn release(&self, caller: TestClient) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(caller);
    }
}

/// Sends lookups at a steady rate, independent of response times. Returns the times and the responses other than 200.
async fn measure_lookups(node: &Node, keys: &[IssuedKey], span_s: u32) -> (Vec<Duration>, Vec<String>) {
    let callers = ClientPool::for_node(node);
    let mut tick = interval(Duration::from_secs(1) / LOOKUPS_PER_S);
    let mut lookups = JoinSet::new();
    for key in keys.iter().cycle().take((LOOKUPS_PER_S * span_s) as usize) {
        tick.tick().await;
        let (callers, bearer) = (Arc::clone(&callers), key.bearer());
        lookups.spawn(async move {
            let mut caller = callers.acquire();
            let started = Instant::now();
            let reply = caller.get("/api/v1/ip", &[("authorization", &bearer)]).await;
            let took = started.elapsed();
            callers.release(caller);
            match reply {
                Ok(reply) if reply.status == 200 => Ok(took),
                Ok(reply) => Err(format!("{}: {}", reply.status, reply.text())),
                Err(error) => Err(error.to_string()),
            }
        });
    }
    let (times, failures): (Vec<_>, Vec<_>) = lookups.join_all().await.into_iter().partition(Result::is_ok);
    (times.into_iter().filter_map(Result::ok).collect(), failures.into_iter().filter_map(Result::err).collect())
}

/// Signs in at a steady rate from changing networks: with an unknown email, a wrong password and the correct one. Counts the
/// responses.
async fn flood_signins(fixture: &PortalFixture, emails: &[String], span_s: u32) -> BTreeMap<u16, usize> {
    let callers = ClientPool::for_node(fixture.node());
    let mut browser = fixture.browser();
    let token = browser.csrf_token().await;
    let cookie = format!("{SESSION_COOKIE}={}", browser.cookie(SESSION_COOKIE).expect("browser has a session cookie"));
    let mut tick = interval(Duration::from_secs(1) / SIGNINS_PER_S);
    let mut attempts = JoinSet::new();
    for number in 0..SIGNINS_PER_S * span_s {
        tick.tick().await;
        let member = &emails[number as usize / 3 % emails.len()];
        let (email, password) = match number % 3 {
            0 => (format!("unknown{number}@example.com"), PASSWORD),
            1 => (member.clone(), "not the password"),
            _ => (member.clone(), PASSWORD),
        };
        let [_, a, b, c] = number.to_be_bytes();
        let (callers, cookie, token) = (Arc::clone(&callers), cookie.clone(), token.clone());
        attempts.spawn(async move {
            let mut caller = callers.acquire();
            let network = format!("10.{a}.{b}.{c}");
            let headers = [("cookie", cookie.as_str()), ("x-forwarded-for", &network), SAME_ORIGIN];
            let fields = [("csrf", token.as_str()), ("email", &email), ("password", password)];
            let reply = caller.post_form("/signin", &headers, &fields).await.expect("response arrives");
            callers.release(caller);
            reply.status
        });
    }
    let mut counts = BTreeMap::new();
    for status in attempts.join_all().await {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index within a list"
    )]
    let index = (times.len() as f64 * share) as usize;
    times[index.min(times.len() - 1)]
}

/// A value of `/proc/PID/status`, in KiB.
fn status_kib(node: &Node, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", node.pid())).expect("process exists");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("status has the line");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("value is a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn signin_flood_barely_slows_lookups_and_bounds_memory() {
    let long_s: Option<u32> =
        std::env::var("IPSEITY_SIGNIN_S").ok().map(|value| value.parse().expect("IPSEITY_SIGNIN_S is a number"));
    let span_s = long_s.unwrap_or(SHORT_S);
    let fixture = PortalFixture::open(if long_s.is_some() { &PRODUCTION_TIMEOUTS } else { &[] }).await;
    let (emails, keys) =
        create_members_with_keys(&fixture, (LOOKUPS_PER_S * span_s * 2 / REQUESTS_PER_KEY + 1) as usize).await;
    let node = fixture.node();

    let (mut times_before, failures) = measure_lookups(node, &keys, span_s).await;
    assert_eq!(failures.first(), None, "of {} failures without a flood", failures.len());
    let rss_before = status_kib(node, "VmRSS");
    // Resets the peak.
    fs::write(format!("/proc/{}/clear_refs", node.pid()), "5").expect("process exists");
    let ((mut times_during, failures), signin_statuses) =
        tokio::join!(measure_lookups(node, &keys, span_s), flood_signins(&fixture, &emails, span_s));
    let (rss_peak, rss_after) = (status_kib(node, "VmHWM"), status_kib(node, "VmRSS"));

    let [before, during] =
        [&mut times_before, &mut times_during].map(|times| (percentile(times, 0.5), percentile(times, 0.99)));
    let figures = format!(
        "{} sign-ins over {span_s} s: {signin_statuses:?}; lookups p50 {:.1?} and p99 {:.1?} before, p50 {:.1?} and p99 {:.1?} during, {} failed; \
         {rss_before} KiB before, {rss_peak} KiB at the peak, {rss_after} KiB after",
        SIGNINS_PER_S * span_s,
        before.0,
        before.1,
        during.0,
        during.1,
        failures.len(),
    );
    print_figures(&figures);
    assert_eq!(failures.first(), None, "{figures}");
    let is_expected = signin_statuses.keys().all(|status| [200, 303, 503].contains(status));
    assert!(is_expected, "{figures}; log:\n{}", node.log().expect("log is readable"));
    assert!(rss_peak <= rss_before + PASSWORD_THREADS * HASH_KIB + OTHER_MEMORY_KIB, "{figures}");
    // While other tests run, times depend more on them than on the flood.
    if long_s.is_some() {
        assert!(during.1 <= P99_NOISE_FLOOR.max(before.1 * 2), "{figures}");
    }
}

#[expect(clippy::print_stderr, reason = "the measured values are useful even if the test passes")]
fn print_figures(figures: &str) {
    eprintln!("{figures}");
}
