//! What the connection between home and a remote node must not carry: credentials of the stores to the remote node, and
//! addresses of clients to home.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::sites::PORTAL_URL;
use ipseity_testkit::deployment::{DATABASE, LEDGER_URL_ENV, STORE_URL_ENV};
use ipseity_testkit::{
    CommandOutput, Deployment, DeploymentOptions, FaultConfig, Needle, Node, PrivacyFinding, PrivacySearch, eventually,
};

use super::fixture::{RemoteNode, Sites, delayed, read_metric};
use super::optimistic::{ADMITTED, open_key, optimistic_settings, start_optimistic_node};
use crate::fixture::{fresh_key, relaxed_timeouts};
use crate::privacy::canaries::{random_v4, random_v6};
use crate::privacy::process_memory::search_memory;

const WITHIN: Duration = Duration::from_secs(30);

/// Sends every kind of request from two addresses to a remote node, also during an outage.
async fn send_everything(sites: &Sites, remote: &RemoteNode, addresses: [IpAddr; 2]) {
    let (key, addresses) = (fresh_key(&sites.deployment, Scope::Full).await, addresses.map(|ip| ip.to_string()));
    let bearer = key.bearer();
    let get = async |path: &str, address: &str, is_with_key: bool| {
        let mut headers = vec![("x-forwarded-for", address)];
        headers.extend(is_with_key.then_some(("authorization", &*bearer)));
        remote.node.client().get(path, &headers).await.expect("response arrives")
    };
    let lookup = async |times: usize| {
        for address in addresses.iter().cycle().take(times) {
            let reply = get("/api/v1/ip", address, true).await;
            assert_eq!((reply.status, reply.text().contains(address)), (200, true), "{}", reply.text());
        }
    };
    lookup(6).await;
    for (path, status) in [("/", 200), ("/docs", 200), ("/api/v1/ip/demo", 200), ("/api/v1/ip", 401)] {
        for address in &addresses {
            assert_eq!(get(path, address, false).await.status, status, "{path}");
        }
    }

    remote.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
    eventually("the cut is noticed", WITHIN, async || !remote.is_connected().await).await.expect("cut is noticed");
    lookup(6).await;
    assert_eq!(get("/api/v1/ip/demo", &addresses[0], false).await.status, 200);
    remote.set_faults(delayed(10));
    eventually("the charges are reconciled", WITHIN, async || sites.charged(&key.id).await == 12)
        .await
        .expect("charges are reconciled");

    let deactivated = sites.deployment.cli(&["key", "deactivate", &key.id]).await;
    deactivated.and_then(CommandOutput::ensure_success).expect("key is deactivated");
    eventually("the key is rejected", WITHIN, async || get("/api/v1/ip", &addresses[0], true).await.status == 403)
        .await
        .expect("key is rejected");
}

/// An address of each family.
fn random_addresses() -> [IpAddr; 2] {
    [random_v4(129..=223).into(), random_v6().into()]
}

/// Addresses that the memory of a process does not contain. Of never-sent IPv4 addresses, one in 150 is found in it: four
/// bytes occur by coincidence.
fn absent_addresses(pid: u32) -> [IpAddr; 2] {
    loop {
        let addresses = random_addresses();
        let search = PrivacySearch::new(addresses.map(Needle::Address)).expect("search is valid");
        if search_memory(pid, &search).is_empty() {
            return addresses;
        }
    }
}

/// Searches the files, the environment and the memory of a node.
fn search_node(node: &Node, search: &PrivacySearch) -> Vec<PrivacyFinding> {
    let environ = Path::new("/proc").join(node.pid().to_string()).join("environ");
    let mut findings = search.search_bytes("environ", &fs::read(environ).expect("read the environment"));
    findings.extend(search.search_files(node.dir()).expect("search the files"));
    findings.extend(search_memory(node.pid(), search));
    findings
}

fn is_found(findings: &[PrivacyFinding], needle: &Needle) -> bool {
    findings.iter().any(|finding| finding.needle == *needle)
}

/// A home node with passwords, and a site that was added with the password of the owner.
async fn start_with_passwords([node, owner, redis]: &[String; 3]) -> Sites {
    let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    let user = ["ACL", "SETUSER", "ipseity", "on", &format!(">{redis}"), "allkeys", "allchannels", "+@all"];
    deployment.redis.run_command(&user).await.expect("user is created");
    // PostgreSQL does not ask for the password, but the node has it.
    let with_password = |url: String, password: &str| url.replace('@', &format!(":{password}@"));
    let settings = [
        (STORE_URL_ENV, with_password(deployment.postgres.node_url(DATABASE), node)),
        (LEDGER_URL_ENV, deployment.redis.url().replace("://", &format!("://ipseity:{redis}@"))),
    ];
    let settings: Env = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let mut sites = Sites::start_at(deployment, 1, &settings).await;
    sites.owner_url = with_password(sites.deployment.postgres.url(DATABASE), owner);
    sites
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_node_never_has_a_credential_of_a_store() {
    let passwords = [(); 3].map(|()| format!("canary{:032x}", fastrand::u128(..)));
    let sites = start_with_passwords(&passwords).await;
    let dir = sites.add_site("syd").await;
    let remote = sites.start_node_of_site(&dir, delayed(10), optimistic_settings()).await;
    let [node, owner, redis] = passwords.map(Needle::Text);
    let control = Needle::Text(PORTAL_URL.to_owned());
    let search = PrivacySearch::new([&node, &owner, &redis, &control].map(Clone::clone)).expect("search is valid");
    let mut findings = search.search_files(&dir).expect("search the files");
    // What a message leaves in memory may be overwritten by later ones.
    for _ in 0..2 {
        send_everything(&sites, &remote, random_addresses()).await;
        findings.extend(search_node(&remote.node, &search));
    }
    assert!(read_metric(&remote.node, ADMITTED).await > 0, "the node got notices too");
    assert!(is_found(&findings, &control), "the search misses a setting");
    findings.retain(|finding| finding.needle != control);
    assert_eq!(findings, []);
    let at_home = search_node(&sites.deployment.nodes[0], &search);
    assert!(is_found(&at_home, &node) && is_found(&at_home, &redis), "the search misses a password at home");
}

/// Searches everything that home has or writes.
async fn search_home(sites: &Sites, search: &PrivacySearch) -> Vec<PrivacyFinding> {
    let (deployment, mut findings) = (&sites.deployment, Vec::new());
    for node in &deployment.nodes {
        findings.extend(search_memory(node.pid(), search));
        findings.extend(search.search_bytes("metrics", node.metrics().await.expect("metrics arrive").as_bytes()));
    }
    findings.extend(search.search_bytes("Redis", &deployment.redis.dump_all().await.expect("read the data of Redis")));
    findings.extend(search.search_bytes("PostgreSQL", &deployment.postgres.dump(DATABASE).await.expect("dump")));
    // Flushes memory to disk before the files are searched.
    deployment.postgres.psql(DATABASE, "checkpoint").await.expect("checkpoint succeeds");
    deployment.redis.run_command(&["SAVE"]).await.expect("save a snapshot");
    for dir in deployment.dirs() {
        findings.extend(search.search_files(dir).expect("search the files"));
    }
    findings
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_client_of_a_remote_node_never_reaches_home() {
    let options = DeploymentOptions { nodes: 0, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    deployment.redis.monitor().expect("start MONITOR");
    let settings = Env::from([("IPSEITY__LOG__LEVEL".to_owned(), "trace".to_owned())]);
    let sites = Sites::start_at(deployment, 1, &settings).await;
    let site = format!("canary-{:016x}", fastrand::u64(..));
    let waiting = sites.start_remote_node(&site, delayed(10)).await;
    let optimistic = start_optimistic_node(&sites, "syd", delayed(10)).await;
    open_key(&optimistic, &fresh_key(&sites.deployment, Scope::Ip).await).await;

    let home = sites.deployment.nodes[0].pid();
    let (addresses, control) = ([absent_addresses(home), absent_addresses(home)], Needle::Text(site));
    let needles = addresses.as_flattened().iter().copied().map(Needle::Address).chain([control.clone()]);
    let search = PrivacySearch::new(needles).expect("search is valid");
    let mut findings = Vec::new();
    for (remote, addresses) in [&waiting, &optimistic].into_iter().zip(addresses) {
        send_everything(&sites, remote, addresses).await;
        // What a request leaves in memory may be overwritten by later ones.
        findings.extend(search_memory(home, &search));
    }
    findings.extend(search_home(&sites, &search).await);
    let sources: Vec<_> =
        findings.iter().filter(|finding| finding.needle == control).map(|found| &found.source).collect();
    for source in [" rw-p ", "PostgreSQL", "/node.log", "/data/base/", "/monitor.log"] {
        assert!(sources.iter().any(|found| found.contains(source)), "the search misses the name of a site in {source}");
    }
    findings.retain(|finding| finding.needle != control);
    assert_eq!(findings, []);
}
