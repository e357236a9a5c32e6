//! The network of a sign-in attempt leaves the memory of a node: counters contain only hashes and expire, and later requests
//! overwrite the rest.

use std::fs::{self, File};
use std::iter;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use futures_util::future::join_all;
use ipseity_testkit::{Needle, PrivacyFinding, PrivacySearch, eventually};

use crate::portal::fixture::{PortalFixture, fresh_email};

/// Longer than the period of the test, the interval of the sweep and some searches on a busy machine.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(90);
const REQUESTS_OF_OTHERS: usize = 200;
const ATTEMPTS_OF_OTHERS: usize = 4;
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

#[tokio::test(flavor = "multi_thread")]
async fn network_of_a_sign_in_attempt_leaves_the_memory() {
    let (control, address) = (random_address(), random_address());
    let trusted = format!("127.0.0.0/8,{control}/128");
    let settings =
        [("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PERIOD_S", "1"), ("IPSEITY__EDGE__TRUSTED_PROXIES", trusted.as_str())];
    let fixture = PortalFixture::open(&settings).await;
    let attempt = async |address: Ipv6Addr| {
        let mut browser = fixture.browser().with_network(&address.to_string());
        let reply = browser.post("/signin", &[("email", &fresh_email()), ("password", "not the password")]).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    attempt(address).await;

    let is_control = |needle: &Needle| needles(control).contains(needle);
    let search = PrivacySearch::new([control, address].map(needles).concat()).expect("search is valid");
    let mut findings = Vec::new();
    let is_removed = eventually("the network is not in memory", REMOVAL_TIMEOUT, async || {
        // Requests of others reuse the memory that the request used.
        for _ in 0..REQUESTS_OF_OTHERS {
            fixture.browser().with_network(&random_address().to_string()).get("/signin").await;
        }
        // At the same time, so that each thread of the node takes part.
        join_all(iter::repeat_with(|| attempt(random_address())).take(ATTEMPTS_OF_OTHERS)).await;
        findings = search_memory(fixture.node().pid(), &search);
        findings.iter().all(|finding| is_control(&finding.needle))
    });
    let is_removed = is_removed.await.is_ok();
    let of_the_client: Vec<_> = findings.iter().filter(|finding| !is_control(&finding.needle)).collect();
    assert!(is_removed, "found: {of_the_client:#?}");
    for needle in [Needle::Address(IpAddr::V6(control)), Needle::Bytes(control.octets()[..8].to_vec())] {
        assert!(findings.iter().any(|finding| finding.needle == needle), "the search misses a configured address");
    }
}
