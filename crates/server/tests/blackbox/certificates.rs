//! Certificates of a running node: replaced under load, chosen by name, refused when unfit, issued and renewed by an authority.
//!
//! `IPSEITY_CERTIFICATES` makes the number of replacements larger than a suite can afford.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::certificate::{Authority, Validity};
use testkit::node::Env;
use testkit::quic::QuicOptions;
use testkit::stream::Protocol;
use testkit::{Caller, Folder, House, Node, Pebble, Port, QuicCaller, StreamCaller, eventually};
use tokio::task::JoinSet;

use crate::shared::{house, setting};

const PATIENCE: Duration = Duration::from_secs(60);
const INTERVAL_MS: u64 = 20;

/// A node with certificate files of its own, and the authority that signs them.
struct Scene {
    node: Node,
    authority: Authority,
    folder: Folder,
}

fn edge(settings: &[(&str, String)]) -> Env {
    settings.iter().map(|(name, value)| (format!("IPSEITY__EDGE__{name}"), value.clone())).collect()
}

async fn scene(house: &House) -> Scene {
    let folder = Folder::open().expect("a folder");
    let authority = Authority::write(&folder.path().join("authority.pem")).expect("an authority");
    put(&folder, &authority, "localhost", Validity::Now);
    let env = edge(&[
        ("CERTIFICATE_FILE", path(&folder, "server.pem")),
        ("PRIVATE_KEY_FILE", path(&folder, "server.key")),
        ("CERTIFICATE_WATCH_INTERVAL_MS", INTERVAL_MS.to_string()),
    ]);
    let node = house.start_node(&env).await.expect("a node");
    Scene { node, authority, folder }
}

fn path(folder: &Folder, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

/// Puts a new pair in place of the old, file by file; gives the certificate's serial number.
fn put(folder: &Folder, authority: &Authority, name: &str, validity: Validity) -> String {
    let issued = authority.issue(&[name, "127.0.0.1"], validity).expect("a certificate");
    for (file, text) in [("server.key", &issued.private_key), ("server.pem", &issued.chain)] {
        let beside = folder.path().join("beside");
        fs::write(&beside, text).expect("a file");
        fs::rename(&beside, folder.path().join(file)).expect("a file in its place");
    }
    issued.serial
}

/// The serial number of the certificate that a node shows for a name, as OpenSSL tells it.
async fn shown(node: &Node, name: &str) -> String {
    let script = format!(
        "openssl s_client -connect {} -servername {name} </dev/null 2>/dev/null | openssl x509 -noout -serial",
        node.https()
    );
    let output = tokio::process::Command::new("sh").args(["-c", &script]).output().await.expect("openssl");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.strip_prefix("serial=").unwrap_or_default().to_lowercase()
}

async fn metric(node: &Node, line: &str) -> i64 {
    let metrics = node.metrics().await.expect("metrics");
    let value = metrics.lines().find_map(|found| found.strip_prefix(line)).unwrap_or_else(|| panic!("no {line}"));
    value.trim().parse().expect("a count")
}

async fn reloads(node: &Node, outcome: &str) -> i64 {
    metric(node, &format!("ipseity_certificate_reloads_total{{outcome=\"{outcome}\"}}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_replaced_under_load_fail_no_handshake_and_drop_no_connection() {
    let replacements = setting("IPSEITY_CERTIFICATES", 10);
    let scene = scene(house().await).await;
    let (node, stop) = (&scene.node, Arc::new(AtomicBool::new(false)));
    let authority = scene.folder.path().join("authority.pem");
    let mut workers = JoinSet::new();
    for protocol in [Protocol::Http11, Protocol::Http2] {
        let (server, stop) = (node.https(), Arc::clone(&stop));
        let mut kept = StreamCaller::new(server, protocol, Some(&authority)).expect("a caller");
        let authority = authority.clone();
        workers.spawn(async move {
            let mut handshakes = 0;
            while !stop.load(Ordering::Acquire) {
                assert_eq!(kept.get("/api/v1/meta", &[]).await.expect("an answer").status, 200);
                let mut fresh = StreamCaller::new(server, protocol, Some(&authority)).expect("a caller");
                assert_eq!(fresh.get("/api/v1/meta", &[]).await.expect("a handshake").status, 200);
                handshakes += 1;
            }
            assert_eq!(kept.connects, 1, "a connection was dropped");
            handshakes
        });
    }
    let (server, until, trusted) = (node.https(), Arc::clone(&stop), authority.clone());
    workers.spawn(async move {
        let options = || QuicOptions::to(server, &trusted);
        let mut kept = QuicCaller::open(options()).await.expect("a connection");
        let mut handshakes = 0;
        while !until.load(Ordering::Acquire) {
            assert_eq!(kept.get("/api/v1/meta", &[]).await.expect("an answer").status, 200);
            let mut fresh = QuicCaller::open(options()).await.expect("a handshake");
            assert_eq!(fresh.get("/api/v1/meta", &[]).await.expect("an answer").status, 200);
            fresh.hang_up();
            handshakes += 1;
        }
        handshakes
    });
    for number in 1..=replacements {
        put(&scene.folder, &scene.authority, "localhost", Validity::Now);
        let what = format!("replacement {number}");
        eventually(&what, PATIENCE, async || reloads(node, "replaced").await >= number.into()).await.expect("a reload");
    }
    stop.store(true, Ordering::Release);
    let handshakes = workers.join_all().await;
    show(&format!(
        "{replacements} certificates, handshakes over HTTP/1.1, HTTP/2 and HTTP/3 in any order: {handshakes:?}"
    ));
    assert_eq!(metric(node, "ipseity_handshakes_failed_total").await, 0);
}

#[expect(clippy::print_stderr, reason = "the figures are the point")]
fn show(line: &str) {
    eprintln!("{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfit_file_never_replaces_a_good_one() {
    let scene = scene(house().await).await;
    let (node, folder) = (&scene.node, &scene.folder);
    let good = put(folder, &scene.authority, "localhost", Validity::Now);
    eventually("it is shown", PATIENCE, async || shown(node, "localhost").await == good).await.expect("a swap");
    let replaced = reloads(node, "replaced").await;
    let (certificate, key) = (folder.path().join("server.pem"), folder.path().join("server.key"));
    let other = scene.authority.issue(&["localhost"], Validity::Now).expect("a certificate");
    let unfit: [(&str, &dyn Fn()); 7] = [
        ("has expired", &|| drop(put(folder, &scene.authority, "localhost", Validity::Past))),
        ("is not valid yet", &|| drop(put(folder, &scene.authority, "localhost", Validity::Future))),
        ("does not belong to", &|| fs::write(&key, &other.private_key).expect("a file")),
        ("holds no PEM certificate", &|| fs::write(&certificate, "").expect("a file")),
        ("could not be read", &|| fs::remove_file(&certificate).expect("deleted")),
        ("holds no PEM private key", &|| {
            fs::write(&certificate, &other.chain).expect("a file");
            fs::write(&key, &other.private_key[..80]).expect("a file");
        }),
        ("cannot be used", &|| {
            fs::write(&key, &other.private_key).expect("a file");
            fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("a file");
        }),
    ];
    for (refused, (says, spoil)) in (1..).zip(unfit) {
        spoil();
        eventually(says, PATIENCE, async || reloads(node, "refused").await >= refused).await.expect("a refusal");
        assert_eq!(shown(node, "localhost").await, good, "{says}");
        let log = node.log().expect("a log");
        let told: Vec<_> = log.lines().filter(|line| line.contains("a certificate was refused")).collect();
        assert!(told.last().is_some_and(|line| line.contains(says)), "{says}: {told:?}");
    }
    assert_eq!(reloads(node, "replaced").await, replaced);
    let good = put(folder, &scene.authority, "localhost", Validity::Now);
    eventually("it heals", PATIENCE, async || shown(node, "localhost").await == good).await.expect("a swap");
    assert_eq!(reloads(node, "refused").await, 7, "what was refused is not refused again with every look");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certificate_is_chosen_by_the_name_that_a_client_asks_for() {
    let house = house().await;
    let folder = Folder::open().expect("a folder");
    let authority = Authority::write(&folder.path().join("authority.pem")).expect("an authority");
    let first = put(&folder, &authority, "first.example", Validity::Now);
    let mut serials = Vec::new();
    let mut tables = String::from("[edge]\n");
    for (place, name) in ["second.example", "*.wild.example"].into_iter().enumerate() {
        let issued = authority.issue(&[name], Validity::Now).expect("a certificate");
        let (certificate, key) =
            (folder.path().join(format!("{place}.pem")), folder.path().join(format!("{place}.key")));
        fs::write(&certificate, &issued.chain).expect("a file");
        fs::write(&key, &issued.private_key).expect("a file");
        tables += &format!("[[edge.certificates]]\ncertificate_file = {certificate:?}\nprivate_key_file = {key:?}\n");
        serials.push(issued.serial);
    }
    let config = folder.path().join("ipseity.toml");
    fs::write(&config, tables).expect("a file");
    let env =
        edge(&[("CERTIFICATE_FILE", path(&folder, "server.pem")), ("PRIVATE_KEY_FILE", path(&folder, "server.key"))]);
    let node = house.start_node_with(&env, &config).await.expect("a node");
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
        assert_eq!(shown(&node, name).await, *serial, "{name}");
    }
    for name in ["first.example", "second.example", "*.wild.example"] {
        let days = metric(&node, &format!("ipseity_certificate_days_left{{name=\"{name}\"}}")).await;
        assert!((88..=90).contains(&days), "{name}: {days} days");
    }
}

/// A node whose certificate is pebble's to issue, and renewed with every look.
async fn with_authority(house: &House, challenge: &str, folder: &Path) -> (Pebble, Node, [Port; 2]) {
    let ports = [Port::open().expect("a port"), Port::open().expect("a port")];
    let pebble = Pebble::start(ports[0].number(), ports[1].number()).await.expect("pebble");
    let mut env = edge(&[
        ("HTTP", ports[0].address().to_string()),
        ("HTTPS", ports[1].address().to_string()),
        ("CERTIFICATE_FILE", String::new()),
        ("PRIVATE_KEY_FILE", String::new()),
        ("CERTIFICATE_WATCH_INTERVAL_MS", INTERVAL_MS.to_string()),
    ]);
    let acme = [
        ("NAMES", "ipseity.example,www.ipseity.example".to_owned()),
        ("DIRECTORY_URL", pebble.directory_url()),
        ("CONTACT", "mailto:owner@ipseity.example".to_owned()),
        ("TERMS_AGREED", "true".to_owned()),
        ("CHALLENGE", challenge.to_owned()),
        ("FOLDER", folder.display().to_string()),
        ("CA_FILE", pebble.ca_file().display().to_string()),
        ("CHECK_INTERVAL_S", "1".to_owned()),
        ("RENEW_BEFORE_H", "1000000".to_owned()),
    ];
    env.extend(acme.map(|(name, value)| (format!("IPSEITY__ACME__{name}"), value)));
    let node = house.start_node(&env).await.expect("a node");
    (pebble, node, ports)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_issues_and_renews_without_a_hand() {
    let house = house().await;
    for challenge in ["tls-alpn-01", "http-01"] {
        let folder = Folder::open().expect("a folder");
        let (pebble, node, ports) = with_authority(house, challenge, folder.path()).await;
        let issued = "ipseity_acme_orders_total{outcome=\"issued\"}";
        let what = format!("{challenge}: three certificates");
        let done = eventually(&what, PATIENCE, async || metric(&node, issued).await >= 3).await;
        assert!(done.is_ok(), "{}\n{}", node.log().expect("a log"), pebble.log().expect("a log"));
        let serve = format!(
            "openssl s_client -connect {} -servername www.ipseity.example </dev/null 2>/dev/null",
            ports[1].address()
        );
        let script = format!("{serve} | openssl x509 -noout -issuer -ext subjectAltName");
        let output = tokio::process::Command::new("sh").args(["-c", &script]).output().await.expect("openssl");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Pebble") && text.contains("DNS:www.ipseity.example"), "{text}");
        assert!(metric(&node, "ipseity_certificate_days_left{name=\"ipseity.example\"}").await > 0);
        let reply =
            Caller::new(ports[0].address()).get("/.well-known/acme-challenge/unknown", &[]).await.expect("an answer");
        assert_eq!((reply.status, &reply.json().expect("JSON")["error"]), (404, &"not_found".into()), "{challenge}");
        let log = node.log().expect("a log");
        assert!(!log.contains("owner@"), "a contact was logged");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(folder.path().join("private.key")).expect("a key").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }
}
