//! Geo files that change under a running node: valid ones are loaded, invalid ones are rejected and the previous
//! edition stays in use.
//!
//! `IPSEITY_RELOADS`, `IPSEITY_RELOAD_RATE` (requests per second) and `IPSEITY_RELOAD_S` increase the load.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipseity_domain::{Location, Scope};
use ipseity_testkit::fixtures::geo_database;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, TestClient, TestDir, eventually};
use serde_json::{Value, json};

use crate::fixture::{env_number, relaxed_timeouts};

const NETWORK: &str = "81.2.69.0/24";
const CLIENT: (&str, &str) = ("x-forwarded-for", "81.2.69.142");
const BUILT_S: u64 = 1_790_000_000;
const WORKERS: usize = 20;
const KEYS_PER_ACCOUNT: usize = 10;
/// Below the burst limit of 300 requests in 60 seconds.
const REQUESTS_PER_KEY: usize = 280;
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// An edition whose number several fields of one address contain.
fn edition_bytes(number: u32) -> Vec<u8> {
    let (city, region, postal) = (format!("City {number}"), format!("Region {number}"), number.to_string());
    let location = Location {
        city: Some(&city),
        region: Some(&region),
        postal_code: Some(&postal),
        country: Some("GB"),
        latitude: Some(latitude(number)),
        longitude: Some(-latitude(number)),
        timezone: Some("Europe/London"),
        ..Location::default()
    };
    geo_database::city_database(BUILT_S + u64::from(number), &[(NETWORK, location)]).expect("create a database")
}

fn latitude(number: u32) -> f64 {
    f64::from(number % 80) + 0.5
}

/// The edition of a response; an error if it mixes several.
fn edition_number(response: &Value) -> Result<u32, String> {
    let number = response["postal_code"].as_str().and_then(|postal| postal.parse().ok()).ok_or(response.to_string())?;
    let expected = [
        ("city", json!(format!("City {number}"))),
        ("region", json!(format!("Region {number}"))),
        ("latitude", json!(latitude(number))),
        ("longitude", json!(-latitude(number))),
        ("timezone", json!("Europe/London")),
    ];
    let is_consistent = expected.iter().all(|(field, value)| response[field] == *value);
    if is_consistent { Ok(number) } else { Err(format!("mixed editions: {response}")) }
}

/// Replaces a file atomically.
fn replace_file(file: &Path, bytes: &[u8]) {
    let temp_file = file.with_extension("next");
    fs::write(&temp_file, bytes).expect("write the file");
    fs::rename(temp_file, file).expect("replace the file");
}

async fn start_fixture(interval_ms: u64) -> (Deployment, TestDir, PathBuf) {
    let dir = TestDir::create().expect("create a directory");
    let file = dir.path().join("city.mmdb");
    replace_file(&file, &edition_bytes(0));
    let mut env = relaxed_timeouts();
    env.insert("IPSEITY__GEO__WATCH_INTERVAL_MS".to_owned(), interval_ms.to_string());
    let options = DeploymentOptions { env, geo_files: vec![file.clone()], ..DeploymentOptions::default() };
    (Deployment::start(options).await.expect("deployment starts"), dir, file)
}

async fn issue_keys(deployment: &Deployment, count: usize) -> Vec<IssuedKey> {
    let mut keys = Vec::new();
    for index in 0..count {
        let email = format!("owner{}@example.com", index / KEYS_PER_ACCOUNT);
        if index % KEYS_PER_ACCOUNT == 0 {
            deployment.create_account(&email).await.expect("create an account");
        }
        keys.push(deployment.issue_key(&email, Scope::Geo).await.expect("issue a key"));
    }
    keys
}

async fn lookup_edition(caller: &mut TestClient, key: &IssuedKey) -> Result<u32, String> {
    let headers = [("authorization", &*key.bearer()), CLIENT];
    let reply = caller.get("/api/v1/ip", &headers).await.map_err(|error| error.to_string())?;
    if reply.status != 200 {
        return Err(format!("status {}: {}", reply.status, reply.text()));
    }
    edition_number(&reply.json().map_err(|error| error.to_string())?)
}

/// Number of files that the node has loaded or rejected.
async fn reload_count(node: &Node, outcome: &str) -> u64 {
    let metrics = node.metrics().await.expect("read the metrics");
    let line = format!("ipseity_geo_reloads_total{{outcome=\"{outcome}\"}} ");
    let value = metrics.lines().find_map(|found| found.strip_prefix(&line)).expect("metric exists");
    value.parse().expect("valid count")
}

async fn wait_for_reloads(node: &Node, outcome: &str, count: u64) {
    let what = format!("{count} files {outcome}");
    eventually(&what, RELOAD_TIMEOUT, async || reload_count(node, outcome).await >= count)
        .await
        .expect("reload happens");
}

/// What one client saw until it was stopped.
#[derive(Default)]
struct ReloadObservations {
    editions: BTreeSet<u32>,
    requests: usize,
    failures: Vec<String>,
}

async fn run_client(
    mut caller: TestClient,
    keys: Vec<IssuedKey>,
    interval: Duration,
    stop: Arc<AtomicBool>,
) -> ReloadObservations {
    let mut observations = ReloadObservations::default();
    let mut tick = tokio::time::interval(interval);
    for key in keys.iter().flat_map(|key| std::iter::repeat_n(key, REQUESTS_PER_KEY)) {
        tick.tick().await;
        if stop.load(Ordering::Acquire) {
            return observations;
        }
        observations.requests += 1;
        match lookup_edition(&mut caller, key).await {
            Ok(number) => drop(observations.editions.insert(number)),
            Err(failure) => observations.failures.push(failure),
        }
    }
    observations
}

#[tokio::test(flavor = "multi_thread")]
async fn geo_reloads_under_load_fail_no_request_and_mix_no_data() {
    let (reload_total, rate, span_s) =
        (env_number("IPSEITY_RELOADS", 10), env_number("IPSEITY_RELOAD_RATE", 300), env_number("IPSEITY_RELOAD_S", 5));
    let (deployment, _folder, file) = start_fixture(50).await;
    let node = &deployment.nodes[0];
    // A third more than planned, in case reloads are slow.
    let requests_per_worker = (rate * span_s) as usize * 4 / 3 / WORKERS;
    let keys_per_worker = requests_per_worker / REQUESTS_PER_KEY + 1;
    let keys = issue_keys(&deployment, keys_per_worker * WORKERS).await;
    let stop = Arc::new(AtomicBool::new(false));
    let interval = Duration::from_secs(1) * u32::try_from(WORKERS).expect("number fits into u32") / rate;
    let workers: Vec<_> = keys
        .chunks(keys_per_worker)
        .map(|keys| tokio::spawn(run_client(node.client(), keys.to_vec(), interval, Arc::clone(&stop))))
        .collect();

    let started = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(span_s.into()) / reload_total);
    for number in 1..=reload_total {
        tick.tick().await;
        replace_file(&file, &edition_bytes(number));
        wait_for_reloads(node, "reloaded", number.into()).await;
    }
    tick.tick().await;
    stop.store(true, Ordering::Release);
    let took = started.elapsed();
    let mut all = ReloadObservations::default();
    for worker in workers {
        let observations = worker.await.expect("worker does not panic");
        all.requests += observations.requests;
        all.editions.extend(observations.editions);
        all.failures.extend(observations.failures);
    }
    let (requests, editions, failed) = (all.requests, all.editions.len(), all.failures.len());
    let measured = format!("{requests} requests over {took:.1?}, {editions} editions seen, {failed} failed or mixed");
    assert!(all.failures.is_empty(), "{measured}: {:?}", all.failures.first());
    // Each edition stays in use for a while, so that clients see nearly all.
    assert!(all.editions.len() > reload_total as usize * 8 / 10, "{measured}");
    assert_eq!(reload_count(node, "rejected").await, 0);
    if std::env::var_os("IPSEITY_RELOADS").is_some() {
        print_figures(&measured);
    }
}

#[expect(clippy::print_stderr, reason = "the figures are printed when a size is set")]
fn print_figures(measured: &str) {
    eprintln!("{measured}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_geo_file_is_logged_once_and_not_used() {
    let (deployment, dir, file) = start_fixture(1_000).await;
    let (node, key) = (&deployment.nodes[0], issue_keys(&deployment, 1).await.remove(0));
    let mut caller = node.client();
    let appeared = Instant::now();
    replace_file(&file, &edition_bytes(7));
    wait_for_reloads(node, "reloaded", 1).await;
    assert!(appeared.elapsed() < Duration::from_secs(5), "loaded {:?} after it appeared", appeared.elapsed());
    assert_eq!(lookup_edition(&mut caller, &key).await, Ok(7));

    let valid = edition_bytes(8);
    let location = Location { country: Some("FR"), ..Location::default() };
    let other_network =
        geo_database::city_database(BUILT_S + 9, &[("203.0.113.0/24", location)]).expect("create a database");
    let bad: [(&str, &dyn Fn()); 5] = [
        ("not a valid MMDB file", &|| {
            let file = fs::File::options().write(true).open(&file).expect("open the file");
            file.set_len(file.metadata().expect("read the length").len() / 2).expect("truncate the file");
        }),
        ("failed to read", &|| fs::remove_file(&file).expect("remove the file")),
        ("not a valid MMDB file", &|| replace_file(&file, &valid.iter().rev().copied().collect::<Vec<_>>())),
        ("older edition", &|| replace_file(&file, &edition_bytes(6))),
        ("covers none", &|| replace_file(&file, &other_network)),
    ];
    for (refused, (reason, break_file)) in (1..).zip(bad) {
        break_file();
        wait_for_reloads(node, "rejected", refused).await;
        assert_eq!(lookup_edition(&mut caller, &key).await, Ok(7), "{reason}");
        let log = node.log().expect("read the log");
        let refusals: Vec<_> = log.lines().filter(|line| line.contains("geo database rejected")).collect();
        assert!(refusals.last().is_some_and(|line| line.contains(reason)), "{reason}: {refusals:?}");
    }

    // A symbolic link to another file counts as a change.
    let (other_network, link) = (dir.path().join("eight.mmdb"), dir.path().join("link"));
    fs::write(&other_network, &valid).expect("write the file");
    std::os::unix::fs::symlink(&other_network, &link).expect("create a link");
    fs::rename(&link, &file).expect("replace the link");
    wait_for_reloads(node, "reloaded", 2).await;
    assert_eq!(lookup_edition(&mut caller, &key).await, Ok(8));
    assert_eq!(reload_count(node, "rejected").await, 5, "a rejected file is not rejected again at every poll");
    assert_eq!(node.log().expect("read the log").matches("geo database rejected").count(), 5);
}
