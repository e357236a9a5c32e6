//! A node keeps no network of a sign-in attempt, of a caller or of a visitor with a ticket in memory: counters contain only
//! hashes and expire.
//!
//! Stacks and freed memory are overwritten when they are used again. A block that later requests happen not to use can keep one
//! network for minutes, so the tests send requests from many. A counter would keep all of them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::iter;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use futures_util::future::join_all;
use ipseity_domain::Scope;
use ipseity_testkit::{Deployment, DeploymentOptions, Needle, PrivacyFinding, PrivacySearch, TestDir, eventually};
use serde_json::json;

use crate::fixture::fresh_key;
use crate::portal::fixture::{PortalFixture, fresh_email};
use crate::restrictions::restrict;
use crate::tickets::{create_ticket, ticket_env, use_ticket};

/// Longer than the period of the test, the interval of the sweep and some searches on a busy machine.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(90);
const REQUESTS_OF_OTHERS: usize = 200;
const NETWORKS: usize = 40;
/// Networks that unused memory may still contain.
const REMAINING_MAX: usize = NETWORKS / 8;
/// Attempts at the same time. Passwords are verified by fewer threads, and a long queue is refused.
const CONCURRENT_ATTEMPTS: usize = 4;
const PAGE_BYTES: u64 = 4096;

/// A random address in 2001:db8::/32.
fn random_address() -> Ipv6Addr {
    Ipv6Addr::from_bits(0x2001_0db8 << 96 | fastrand::u128(..) >> 32)
}

/// The address, its /64, and the bytes and the text of the prefix.
fn needles(address: Ipv6Addr) -> Vec<Needle> {
    let network = Ipv6Addr::from_bits(address.to_bits() >> 64 << 64);
    let prefix = address.octets()[..8].to_vec();
    let [a, b, c, d, ..] = address.segments();
    vec![
        Needle::Address(IpAddr::V6(address)),
        Needle::Address(IpAddr::V6(network)),
        Needle::Bytes(prefix.iter().rev().copied().collect()),
        Needle::Bytes(prefix),
        Needle::Text(format!("{a:x}:{b:x}:{c:x}:{d:x}:")),
    ]
}

/// Searches the memory of a process that it can write to. Needs root.
pub(crate) fn search_memory(pid: u32, search: &PrivacySearch) -> Vec<PrivacyFinding> {
    let proc_file = |name: &str| File::open(format!("/proc/{pid}/{name}")).expect("open the file of the process");
    let (memory, page_map) = (proc_file("mem"), proc_file("pagemap"));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("list the memory");
    let mut findings = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (start, rest) = line.split_once('-').expect("line has a range");
        let (end, _) = rest.split_once(' ').expect("range has an end");
        let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).expect("valid address") / PAGE_BYTES);
        let mut entries = vec![0; usize::try_from((end - start) * 8).expect("region fits in memory")];
        page_map.read_exact_at(&mut entries, start * 8).expect("read the page map");
        // Most of the heap is reserved but never used. The two highest bits are set for pages in memory and in swap.
        let pages: Vec<_> = (start..end).zip(entries.chunks(8).map(|entry| entry[7] >> 6 != 0)).collect();
        for run in pages.chunk_by(|a, b| a.1 == b.1).filter(|run| run[0].1) {
            let mut bytes = vec![0; run.len() * usize::try_from(PAGE_BYTES).expect("size of a page")];
            // The process may have unmapped it in between.
            if memory.read_exact_at(&mut bytes, run[0].0 * PAGE_BYTES).is_ok() {
                findings.extend(search.search_bytes(line, &bytes));
            }
        }
    }
    findings
}

/// Sends requests from many networks, and later from others, until the memory of the node no longer has the first ones.
async fn assert_networks_leave_the_memory(pid: u32, control: Ipv6Addr, send: impl AsyncFn(&[Ipv6Addr])) {
    let random_addresses = || iter::repeat_with(random_address).take(NETWORKS).collect::<Vec<_>>();
    let addresses = random_addresses();
    send(&addresses).await;

    let of_addresses = addresses.iter().map(|address| (*address, needles(*address))).collect::<Vec<_>>();
    let all_needles: Vec<_> =
        of_addresses.iter().flat_map(|(_, needles)| needles.clone()).chain(needles(control)).collect();
    let search = PrivacySearch::new(all_needles).expect("search is valid");
    let mut findings = Vec::new();
    let is_removed = eventually("the networks are not in memory", REMOVAL_TIMEOUT, async || {
        // Requests of others reuse the memory that the requests used.
        send(&random_addresses()).await;
        findings = search_memory(pid, &search);
        remaining(&of_addresses, &findings).len() <= REMAINING_MAX
    });
    let is_removed = is_removed.await.is_ok();
    let remaining = remaining(&of_addresses, &findings);
    assert!(is_removed, "{} of {NETWORKS} networks remain: {remaining:?}", remaining.len());
    for needle in [Needle::Address(IpAddr::V6(control)), Needle::Bytes(control.octets()[..8].to_vec())] {
        assert!(findings.iter().any(|finding| finding.needle == needle), "the search misses a configured address");
    }
}

/// The setting that makes a node keep an address.
fn with_control(control: Ipv6Addr) -> (&'static str, String) {
    ("IPSEITY__EDGE__TRUSTED_PROXIES", format!("127.0.0.0/8,{control}/128"))
}

#[tokio::test(flavor = "multi_thread")]
async fn networks_of_sign_in_attempts_leave_the_memory() {
    let control = random_address();
    let (name, trusted) = with_control(control);
    let settings = [("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PERIOD_S", "1"), (name, trusted.as_str())];
    let fixture = PortalFixture::open(&settings).await;
    let attempt = async |address: Ipv6Addr| {
        let mut browser = fixture.browser().with_network(&address.to_string());
        let reply = browser.post("/signin", &[("email", &fresh_email()), ("password", "not the password")]).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    let attempt_from_all = async |addresses: &[Ipv6Addr]| {
        for _ in 0..REQUESTS_OF_OTHERS {
            fixture.browser().with_network(&random_address().to_string()).get("/signin").await;
        }
        for some in addresses.chunks(CONCURRENT_ATTEMPTS) {
            join_all(some.iter().map(|address| attempt(*address))).await;
        }
    };
    assert_networks_leave_the_memory(fixture.node().pid(), control, attempt_from_all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn networks_of_counted_callers_leave_the_memory() {
    let control = random_address();
    let (dir, options) =
        (TestDir::create().expect("directory"), DeploymentOptions { nodes: 0, ..DeploymentOptions::default() });
    let deployment = Deployment::start(options).await.expect("deployment starts");
    let mut env = ticket_env(dir.path(), "http://localhost");
    env.extend([with_control(control)].map(|(name, value)| (name.to_owned(), value)));
    let node = deployment.start_node(&env).await.expect("node starts");
    let look_up_from_all = async |addresses: &[Ipv6Addr]| {
        let key = fresh_key(&deployment, Scope::Ip).await;
        restrict(&deployment, &key, &["--caller-limit", "30"]).await;
        let ticket = create_ticket(&node, &key, &json!({ "uses": 100 })).await;
        for address in addresses {
            let (address, bearer) = (address.to_string(), key.bearer());
            let from = [("x-forwarded-for", address.as_str())];
            let headers = [&[("authorization", bearer.as_str())], &from[..]].concat();
            let reply = node.client().get("/api/v1/ip", &headers).await.expect("response arrives");
            assert_eq!((reply.status, use_ticket(&node, &ticket, &from).await.status), (200, 200));
        }
    };
    assert_networks_leave_the_memory(node.pid(), control, look_up_from_all).await;
}

/// The addresses that were found, or their networks.
fn remaining(addresses: &[(Ipv6Addr, Vec<Needle>)], findings: &[PrivacyFinding]) -> BTreeSet<Ipv6Addr> {
    let is_found = |needles: &[Needle]| findings.iter().any(|finding| needles.contains(&finding.needle));
    addresses.iter().filter(|(_, needles)| is_found(needles)).map(|(address, _)| *address).collect()
}
