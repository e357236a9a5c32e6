//! Certificates of a running node: reloaded under load, selected by server name, rejected if invalid, and issued and renewed with ACME.
//!
//! `IPSEITY_CERTIFICATES` sets a larger number of reloads.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipseity_testkit::certificate::{TestCa, Validity};
use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{
    Deployment, Http3TestClient, Node, Pebble, ReservedPort, StreamTestClient, TestClient, TestDir, eventually,
};
use tokio::task::JoinSet;

use crate::fixture::{env_number, shared_deployment};

const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);
const WATCH_INTERVAL_MS: u64 = 20;

/// A node with separate certificate files, and the CA that signs them.
struct CertificateFixture {
    node: Node,
    authority: TestCa,
    dir: TestDir,
}

fn edge_env(settings: &[(&str, String)]) -> Env {
    settings.iter().map(|(name, value)| (format!("IPSEITY__EDGE__{name}"), value.clone())).collect()
}

async fn start_fixture(deployment: &Deployment) -> CertificateFixture {
    let folder = TestDir::create().expect("create directory");
    let authority = TestCa::create(&folder.path().join("authority.pem")).expect("create CA");
    replace_pair(&folder, &authority, "localhost", Validity::Current);
    let env = edge_env(&[
        ("CERTIFICATE_FILE", path_in(&folder, "server.pem")),
        ("PRIVATE_KEY_FILE", path_in(&folder, "server.key")),
        ("CERTIFICATE_WATCH_INTERVAL_MS", WATCH_INTERVAL_MS.to_string()),
    ]);
    let node = deployment.start_node(&env).await.expect("start node");
    CertificateFixture { node, authority, dir: folder }
}

fn path_in(folder: &TestDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Replaces the certificate and its key, file by file. Returns the serial number.
fn replace_pair(folder: &TestDir, authority: &TestCa, name: &str, validity: Validity) -> String {
    let issued = authority.issue_certificate(&[name, "127.0.0.1"], validity).expect("issue certificate");
    for (file, text) in [("server.key", &issued.private_key), ("server.pem", &issued.chain)] {
        let temp_file = folder.path().join("temporary");
        fs::write(&temp_file, text).expect("write file");
        fs::rename(&temp_file, folder.path().join(file)).expect("rename file");
    }
    issued.serial
}

/// The serial number of the certificate that a node serves for a name, read by OpenSSL.
async fn served_serial(node: &Node, name: &str) -> String {
    let script = format!(
        "openssl s_client -connect {} -servername {name} </dev/null 2>/dev/null | openssl x509 -noout -serial",
        node.https()
    );
    let output = tokio::process::Command::new("sh").args(["-c", &script]).output().await.expect("run program");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.strip_prefix("serial=").unwrap_or_default().to_lowercase()
}

pub(crate) async fn metric_value(node: &Node, line: &str) -> i64 {
    let metrics = node.metrics().await.expect("read metrics");
    let value = metrics.lines().find_map(|found| found.strip_prefix(line)).unwrap_or_else(|| panic!("no {line}"));
    value.trim().parse().expect("number")
}

async fn reload_count(node: &Node, outcome: &str) -> i64 {
    metric_value(node, &format!("ipseity_certificate_reloads_total{{outcome=\"{outcome}\"}}")).await
}

fn now_s() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("clock after 1970").as_secs()).expect("fits")
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_reloads_under_load_break_no_connections() {
    let replacements = env_number("IPSEITY_CERTIFICATES", 10);
    let fixture = start_fixture(shared_deployment().await).await;
    let (node, stop) = (&fixture.node, Arc::new(AtomicBool::new(false)));
    let authority = fixture.dir.path().join("authority.pem");
    let mut workers = JoinSet::new();
    for protocol in [StreamProtocol::Http11, StreamProtocol::Http2] {
        let (server, stop) = (node.https(), Arc::clone(&stop));
        let mut reused = StreamTestClient::new(server, protocol, Some(&authority)).expect("client");
        let authority = authority.clone();
        workers.spawn(async move {
            let mut handshakes = 0;
            while !stop.load(Ordering::Acquire) {
                assert_eq!(reused.get("/api/v1/meta", &[]).await.expect("response").status, 200);
                let mut fresh = StreamTestClient::new(server, protocol, Some(&authority)).expect("client");
                assert_eq!(fresh.get("/api/v1/meta", &[]).await.expect("response").status, 200);
                handshakes += 1;
            }
            assert_eq!(reused.connections_opened, 1, "a connection was dropped");
            handshakes
        });
    }
    let (server, until, trusted) = (node.https(), Arc::clone(&stop), authority.clone());
    workers.spawn(async move {
        let options = || Http3TestOptions::localhost(server, &trusted);
        let mut reused = Http3TestClient::connect(options()).await.expect("connect");
        let mut handshakes = 0;
        while !until.load(Ordering::Acquire) {
            assert_eq!(reused.get("/api/v1/meta", &[]).await.expect("response").status, 200);
            let mut fresh = Http3TestClient::connect(options()).await.expect("connect");
            assert_eq!(fresh.get("/api/v1/meta", &[]).await.expect("response").status, 200);
            fresh.close_now();
            handshakes += 1;
        }
        handshakes
    });
    for number in 1..=replacements {
        replace_pair(&fixture.dir, &fixture.authority, "localhost", Validity::Current);
        let what = format!("replacement {number}");
        eventually(&what, RELOAD_TIMEOUT, async || reload_count(node, "reloaded").await >= number.into())
            .await
            .expect("happens in time");
    }
    stop.store(true, Ordering::Release);
    let handshakes = workers.join_all().await;
    print_figures(&format!(
        "{replacements} certificates, handshakes over HTTP/1.1, HTTP/2 and HTTP/3 in any order: {handshakes:?}"
    ));
    assert_eq!(metric_value(node, "ipseity_tls_handshake_failures_total").await, 0);
}

#[expect(clippy::print_stderr, reason = "prints the figures for review")]
fn print_figures(line: &str) {
    eprintln!("{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_certificate_never_replaces_a_valid_one() {
    let fixture = start_fixture(shared_deployment().await).await;
    let (node, folder) = (&fixture.node, &fixture.dir);
    let good = replace_pair(folder, &fixture.authority, "localhost", Validity::Current);
    eventually("the new certificate is served", RELOAD_TIMEOUT, async || {
        served_serial(node, "localhost").await == good
    })
    .await
    .expect("happens in time");
    let replaced = reload_count(node, "reloaded").await;
    let (certificate, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
    let other = fixture.authority.issue_certificate(&["localhost"], Validity::Current).expect("issue certificate");
    // The node may find the files between two writes, so no step passes a valid pair.
    let invalid_files: [(&str, &dyn Fn()); 7] = [
        ("has expired", &|| drop(replace_pair(folder, &fixture.authority, "localhost", Validity::Expired))),
        ("is not valid yet", &|| drop(replace_pair(folder, &fixture.authority, "localhost", Validity::NotYetValid))),
        ("does not belong to", &|| fs::write(&key, &other.private_key).expect("write file")),
        ("has no valid PEM certificate", &|| fs::write(&certificate, "").expect("write file")),
        ("failed to read", &|| fs::remove_file(&certificate).expect("remove file")),
        ("failed to load the certificate", &|| {
            fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
                .expect("write file");
        }),
        ("has no valid PEM private key", &|| fs::write(&key, &other.private_key[..80]).expect("write file")),
    ];
    for (refusal_count, (reason, break_file)) in (1..).zip(invalid_files) {
        break_file();
        eventually(reason, RELOAD_TIMEOUT, async || reload_count(node, "rejected").await >= refusal_count)
            .await
            .expect("happens in time");
        assert_eq!(served_serial(node, "localhost").await, good, "{reason}");
        let log = node.log().expect("read log");
        let refusals: Vec<_> = log.lines().filter(|line| line.contains("certificate rejected")).collect();
        assert!(refusals.last().is_some_and(|line| line.contains(reason)), "{reason}: {refusals:?}");
    }
    assert_eq!(reload_count(node, "reloaded").await, replaced);
    let good = replace_pair(folder, &fixture.authority, "localhost", Validity::Current);
    eventually("a valid certificate is served again", RELOAD_TIMEOUT, async || {
        served_serial(node, "localhost").await == good
    })
    .await
    .expect("happens in time");
    assert_eq!(reload_count(node, "rejected").await, 7, "an invalid file is rejected only once");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_selected_by_server_name() {
    let deployment = shared_deployment().await;
    let folder = TestDir::create().expect("create directory");
    let authority = TestCa::create(&folder.path().join("authority.pem")).expect("create CA");
    let first = replace_pair(&folder, &authority, "first.example", Validity::Current);
    let mut serials = Vec::new();
    let mut tables = String::from("[edge]\n");
    for (index, name) in ["second.example", "*.wild.example"].into_iter().enumerate() {
        let issued = authority.issue_certificate(&[name], Validity::Current).expect("issue certificate");
        let (certificate, key) =
            (folder.path().join(format!("{index}.pem")), folder.path().join(format!("{index}.key")));
        fs::write(&certificate, &issued.chain).expect("write file");
        fs::write(&key, &issued.private_key).expect("write file");
        tables += &format!("[[edge.certificates]]\ncertificate_file = {certificate:?}\nprivate_key_file = {key:?}\n");
        serials.push(issued.serial);
    }
    let config = folder.path().join("ipseity.toml");
    fs::write(&config, tables).expect("write file");
    let env = edge_env(&[
        ("CERTIFICATE_FILE", path_in(&folder, "server.pem")),
        ("PRIVATE_KEY_FILE", path_in(&folder, "server.key")),
    ]);
    let node = deployment.start_node_with_config(&env, &config).await.expect("start node");
    let expected = [
        ("first.example", &first),
        ("second.example", &serials[0]),
        ("SECOND.example", &serials[0]),
        ("a.wild.example", &serials[1]),
        ("a.b.wild.example", &first),
        ("wild.example", &first),
        ("unknown.example", &first),
    ];
    for (name, serial) in expected {
        assert_eq!(served_serial(&node, name).await, *serial, "{name}");
    }
    let now_s = now_s();
    for name in ["first.example", "second.example", "*.wild.example"] {
        let expires_at_s =
            metric_value(&node, &format!("ipseity_certificate_expiry_timestamp_seconds{{name=\"{name}\"}}")).await;
        let days = (expires_at_s - now_s) / 86_400;
        assert!((88..=90).contains(&days), "{name}: {days} days");
    }
}

/// A node that orders its certificate from Pebble and renews it at every check.
async fn start_node_with_pebble(
    deployment: &Deployment,
    challenge: &str,
    folder: &Path,
) -> (Pebble, Node, [ReservedPort; 2]) {
    let ports = [ReservedPort::reserve_free().expect("free port"), ReservedPort::reserve_free().expect("free port")];
    let pebble = Pebble::start(ports[0].number(), ports[1].number()).await.expect("start Pebble");
    let mut env = edge_env(&[
        ("HTTP", ports[0].address().to_string()),
        ("HTTPS", ports[1].address().to_string()),
        ("CERTIFICATE_FILE", String::new()),
        ("PRIVATE_KEY_FILE", String::new()),
        ("CERTIFICATE_WATCH_INTERVAL_MS", WATCH_INTERVAL_MS.to_string()),
    ]);
    let acme = [
        ("DOMAINS", "ipseity.example,www.ipseity.example".to_owned()),
        ("DIRECTORY_URL", pebble.directory_url()),
        ("CONTACT", "mailto:owner@ipseity.example".to_owned()),
        ("ACCEPT_TERMS", "true".to_owned()),
        ("CHALLENGE", challenge.to_owned()),
        ("DIR", folder.display().to_string()),
        ("CA_FILE", pebble.ca_file().display().to_string()),
        ("CHECK_INTERVAL_S", "1".to_owned()),
        ("RENEW_BEFORE_H", "1000000".to_owned()),
    ];
    env.extend(acme.map(|(name, value)| (format!("IPSEITY__ACME__{name}"), value)));
    let node = deployment.start_node(&env).await.expect("start node");
    (pebble, node, ports)
}

#[tokio::test(flavor = "multi_thread")]
async fn acme_certificate_is_issued_and_renewed_automatically() {
    let deployment = shared_deployment().await;
    for challenge in ["tls-alpn-01", "http-01"] {
        let folder = TestDir::create().expect("create directory");
        let (pebble, node, ports) = start_node_with_pebble(deployment, challenge, folder.path()).await;
        let issued = "ipseity_acme_orders_total{outcome=\"issued\"}";
        let what = format!("{challenge}: three certificates");
        let done = eventually(&what, RELOAD_TIMEOUT, async || metric_value(&node, issued).await >= 3).await;
        assert!(done.is_ok(), "{}\n{}", node.log().expect("read log"), pebble.log().expect("read log"));
        let s_client = format!(
            "openssl s_client -connect {} -servername www.ipseity.example </dev/null 2>/dev/null",
            ports[1].address()
        );
        let script = format!("{s_client} | openssl x509 -noout -issuer -ext subjectAltName");
        let output = tokio::process::Command::new("sh").args(["-c", &script]).output().await.expect("run program");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Pebble") && text.contains("DNS:www.ipseity.example"), "{text}");
        let expiry = "ipseity_certificate_expiry_timestamp_seconds{name=\"ipseity.example\"}";
        assert!(metric_value(&node, expiry).await > now_s());
        let reply = TestClient::new(ports[0].address())
            .get("/.well-known/acme-challenge/unknown", &[])
            .await
            .expect("response");
        assert_eq!(
            (reply.status, &reply.json().expect("valid JSON")["error"]),
            (404, &"not_found".into()),
            "{challenge}"
        );
        let log = node.log().expect("read log");
        assert!(!log.contains("owner@"), "a contact was logged");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(folder.path().join("private.key")).expect("read metadata").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }
}
