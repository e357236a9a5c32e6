//! Geo files that change under a running node: good ones are swapped in, bad ones cost nothing but freshness.
//!
//! `IPSEITY_SWAPS`, `IPSEITY_SWAP_RATE` (requests a second) and `IPSEITY_SWAP_S` make the load larger than a suite can afford.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use domain::{Place, Scope};
use serde_json::{Value, json};
use testkit::{Caller, Folder, House, HouseOptions, Issued, Node, atlas, eventually};

use crate::shared::{patient, setting};

const NETWORK: &str = "81.2.69.0/24";
const CLIENT: (&str, &str) = ("x-forwarded-for", "81.2.69.142");
const BUILT_S: u64 = 1_790_000_000;
const WORKERS: usize = 20;
const KEYS_PER_ACCOUNT: usize = 10;
/// A key is paused after 300 requests in a minute.
const REQUESTS_PER_KEY: usize = 280;
const PATIENCE: Duration = Duration::from_secs(30);

/// An edition whose number can be read from several fields of one address.
fn edition(number: u32) -> Vec<u8> {
    let (city, region, postal) = (format!("City {number}"), format!("Region {number}"), number.to_string());
    let place = Place {
        city: Some(&city),
        region: Some(&region),
        postal_code: Some(&postal),
        country: Some("GB"),
        latitude: Some(latitude(number)),
        longitude: Some(-latitude(number)),
        timezone: Some("Europe/London"),
        ..Place::default()
    };
    atlas::city(BUILT_S + u64::from(number), &[(NETWORK, place)]).expect("a database")
}

fn latitude(number: u32) -> f64 {
    f64::from(number % 80) + 0.5
}

/// The edition that an answer is from; an error if it is from more than one.
fn number(answer: &Value) -> Result<u32, String> {
    let number = answer["postal_code"].as_str().and_then(|postal| postal.parse().ok()).ok_or(answer.to_string())?;
    let expected = [
        ("city", json!(format!("City {number}"))),
        ("region", json!(format!("Region {number}"))),
        ("latitude", json!(latitude(number))),
        ("longitude", json!(-latitude(number))),
        ("timezone", json!("Europe/London")),
    ];
    let is_whole = expected.iter().all(|(field, value)| answer[field] == *value);
    if is_whole { Ok(number) } else { Err(format!("a mixture: {answer}")) }
}

/// Puts a file in another's place at once.
fn put(file: &Path, bytes: &[u8]) {
    let beside = file.with_extension("next");
    fs::write(&beside, bytes).expect("a file");
    fs::rename(beside, file).expect("a file in its place");
}

async fn scene(interval_ms: u64) -> (House, Folder, PathBuf) {
    let folder = Folder::open().expect("a folder");
    let file = folder.path().join("city.mmdb");
    put(&file, &edition(0));
    let mut env = patient();
    env.insert("IPSEITY__GEO__WATCH_INTERVAL_MS".to_owned(), interval_ms.to_string());
    let options = HouseOptions { env, geo_files: vec![file.clone()], ..HouseOptions::default() };
    (House::start(options).await.expect("a house"), folder, file)
}

async fn keys(house: &House, count: usize) -> Vec<Issued> {
    let mut keys = Vec::new();
    for index in 0..count {
        let email = format!("owner{}@example.com", index / KEYS_PER_ACCOUNT);
        if index % KEYS_PER_ACCOUNT == 0 {
            house.account(&email).await.expect("an account");
        }
        keys.push(house.issue(&email, Scope::Geo).await.expect("a key"));
    }
    keys
}

async fn ask(caller: &mut Caller, key: &Issued) -> Result<u32, String> {
    let headers = [("authorization", &*key.bearer()), CLIENT];
    let reply = caller.get("/api/v1/ip", &headers).await.map_err(|error| error.to_string())?;
    if reply.status != 200 {
        return Err(format!("status {}: {}", reply.status, reply.text()));
    }
    number(&reply.json().map_err(|error| error.to_string())?)
}

/// How many files the node has swapped in, or refused.
async fn reloads(node: &Node, outcome: &str) -> u64 {
    let metrics = node.metrics().await.expect("metrics");
    let line = format!("ipseity_geo_reloads_total{{outcome=\"{outcome}\"}} ");
    let value = metrics.lines().find_map(|found| found.strip_prefix(&line)).expect("the metric is there");
    value.parse().expect("a count")
}

async fn until_reloads(node: &Node, outcome: &str, count: u64) {
    let what = format!("{count} files {outcome}");
    eventually(&what, PATIENCE, async || reloads(node, outcome).await >= count).await.expect("a reload");
}

/// What one of many callers saw until it was told to stop.
#[derive(Default)]
struct Seen {
    editions: BTreeSet<u32>,
    requests: usize,
    failures: Vec<String>,
}

async fn call(mut caller: Caller, keys: Vec<Issued>, pause: Duration, stop: Arc<AtomicBool>) -> Seen {
    let mut seen = Seen::default();
    let mut tick = tokio::time::interval(pause);
    for key in keys.iter().flat_map(|key| std::iter::repeat_n(key, REQUESTS_PER_KEY)) {
        tick.tick().await;
        if stop.load(Ordering::Acquire) {
            return seen;
        }
        seen.requests += 1;
        match ask(&mut caller, key).await {
            Ok(number) => drop(seen.editions.insert(number)),
            Err(failure) => seen.failures.push(failure),
        }
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn editions_swapped_under_load_fail_no_request_and_mix_in_no_answer() {
    let (swaps, rate, span_s) =
        (setting("IPSEITY_SWAPS", 10), setting("IPSEITY_SWAP_RATE", 300), setting("IPSEITY_SWAP_S", 5));
    let (house, _folder, file) = scene(50).await;
    let node = &house.nodes[0];
    // A third more than the plan, for swaps that take their time.
    let requests_per_worker = (rate * span_s) as usize * 4 / 3 / WORKERS;
    let keys_per_worker = requests_per_worker / REQUESTS_PER_KEY + 1;
    let keys = keys(&house, keys_per_worker * WORKERS).await;
    let stop = Arc::new(AtomicBool::new(false));
    let pause = Duration::from_secs(1) * u32::try_from(WORKERS).expect("few") / rate;
    let workers: Vec<_> = keys
        .chunks(keys_per_worker)
        .map(|keys| tokio::spawn(call(node.caller(), keys.to_vec(), pause, Arc::clone(&stop))))
        .collect();

    let started = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_secs(span_s.into()) / swaps);
    for number in 1..=swaps {
        tick.tick().await;
        put(&file, &edition(number));
        until_reloads(node, "swapped", number.into()).await;
    }
    tick.tick().await;
    stop.store(true, Ordering::Release);
    let took = started.elapsed();
    let mut all = Seen::default();
    for worker in workers {
        let seen = worker.await.expect("a worker");
        all.requests += seen.requests;
        all.editions.extend(seen.editions);
        all.failures.extend(seen.failures);
    }
    let (requests, editions, failed) = (all.requests, all.editions.len(), all.failures.len());
    let measured = format!("{requests} requests over {took:.1?}, {editions} editions seen, {failed} failed or mixed");
    assert!(all.failures.is_empty(), "{measured}: {:?}", all.failures.first());
    // Each edition is in use for a while, so that callers see nearly all.
    assert!(all.editions.len() > swaps as usize * 8 / 10, "{measured}");
    assert_eq!(reloads(node, "refused").await, 0);
    if std::env::var_os("IPSEITY_SWAPS").is_some() {
        report(&measured);
    }
}

#[expect(clippy::print_stderr, reason = "whoever asks for another size wants to know what it came to")]
fn report(measured: &str) {
    eprintln!("{measured}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_used_is_told_once_and_changes_no_answer() {
    let (house, folder, file) = scene(1_000).await;
    let (node, key) = (&house.nodes[0], keys(&house, 1).await.remove(0));
    let mut caller = node.caller();
    let appeared = Instant::now();
    put(&file, &edition(7));
    until_reloads(node, "swapped", 1).await;
    assert!(appeared.elapsed() < Duration::from_secs(5), "swapped in {:?} after it appeared", appeared.elapsed());
    assert_eq!(ask(&mut caller, &key).await, Ok(7));

    let whole = edition(8);
    let place = Place { country: Some("FR"), ..Place::default() };
    let elsewhere = atlas::city(BUILT_S + 9, &[("203.0.113.0/24", place)]).expect("a database");
    let bad: [(&str, &dyn Fn()); 5] = [
        ("not a sound MMDB file", &|| {
            let file = fs::File::options().write(true).open(&file).expect("the file");
            file.set_len(file.metadata().expect("its length").len() / 2).expect("truncated in place");
        }),
        ("cannot be read", &|| fs::remove_file(&file).expect("deleted")),
        ("not a sound MMDB file", &|| put(&file, &whole.iter().rev().copied().collect::<Vec<_>>())),
        ("older edition", &|| put(&file, &edition(6))),
        ("knows none", &|| put(&file, &elsewhere)),
    ];
    for (refused, (says, spoil)) in (1..).zip(bad) {
        spoil();
        until_reloads(node, "refused", refused).await;
        assert_eq!(ask(&mut caller, &key).await, Ok(7), "{says}");
        let log = node.log().expect("a log");
        let told: Vec<_> = log.lines().filter(|line| line.contains("a geo file was refused")).collect();
        assert!(told.last().is_some_and(|line| line.contains(says)), "{says}: {told:?}");
    }

    // A link that is turned to another file counts as a change of the file.
    let (elsewhere, link) = (folder.path().join("eight.mmdb"), folder.path().join("link"));
    fs::write(&elsewhere, &whole).expect("a file");
    std::os::unix::fs::symlink(&elsewhere, &link).expect("a link");
    fs::rename(&link, &file).expect("the link in its place");
    until_reloads(node, "swapped", 2).await;
    assert_eq!(ask(&mut caller, &key).await, Ok(8));
    assert_eq!(reloads(node, "refused").await, 5, "what was refused is not refused again with every look");
    assert_eq!(node.log().expect("a log").matches("a geo file was refused").count(), 5);
}
