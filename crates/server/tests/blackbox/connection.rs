//! What is said of the client's connection, beside what curl, h2load and OpenSSL say of the same, and beside a delay that is known.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use domain::Scope;
use serde_json::{Value, json};
use testkit::node::Env;
use testkit::{CliOutput, Folder, House, Issued, Line, Node, curl};

use crate::shared::{fresh_key, house};

const OLDER: [&str; 4] = ["--tlsv1.2", "--tls-max", "1.2", "--ciphers"];
const NEWER: [&str; 2] = ["--tlsv1.3", "--tls13-ciphers"];
const NEWER_SUITES: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
const OLDER_ECDSA_SUITES: [&str; 3] =
    ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"];
const OLDER_RSA_SUITES: [&str; 3] =
    ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"];
/// Noise of a busy machine is forgiven so often.
const TRIES_MAX: usize = 3;
/// So many round trips make the smoothed time steady.
const REQUESTS: usize = 12;
const FORWARDED_FOR: &str = "198.51.100.77";

/// HTTP version, TLS version and suite of a connection, as an answer would name them.
pub(crate) type Session = [Value; 3];

/// An answer, and what curl says of the connection that it came over.
pub(crate) struct Answer {
    pub(crate) body: Value,
    pub(crate) seen: Session,
}

impl Answer {
    pub(crate) fn told(&self) -> Session {
        ["http_protocol", "tls_version", "tls_cipher"].map(|name| self.body[name].clone())
    }
}

/// Suites by OpenSSL's names, and the IANA names that OpenSSL knows them to have.
static IANA_NAMES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let text = run("openssl", &["ciphers", "-stdname"]);
    let names = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (iana, _dash, openssl) = (words.next()?, words.next()?, words.next()?);
        Some((openssl.to_owned(), iana.to_owned()))
    });
    names.collect()
});

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("{program} is needed (h2load is in nghttp2-client): {error}");
    });
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asks with curl, which tells what it negotiated on its standard error, and the version of the answer behind the body.
pub(crate) async fn ask(url: &str, key: &Issued, options: &[&str]) -> Answer {
    let authorization = format!("Authorization: {}", key.bearer());
    let common = ["--verbose", "--write-out", "\n%{http_version}", "--header", &authorization, url];
    let output = curl(&[&common, options].concat()).await.expect("curl").success().expect("an answer");
    let text = output.text();
    let (body, version) = text.rsplit_once('\n').expect("a version behind the body");
    let body = serde_json::from_str(body).expect("JSON");
    Answer { body, seen: session(version, &output.stderr) }
}

fn session(version: &str, verbose: &str) -> Session {
    let protocol = if version == "1" { "HTTP/1.0".to_owned() } else { format!("HTTP/{version}") };
    if let Some(line) = verbose.lines().find(|line| line.contains("ALPN") && line.contains("server accepted")) {
        let agreed = line.split_whitespace().last().expect("a word").to_uppercase();
        assert_eq!(agreed.replace("H2", "HTTP/2"), protocol);
    }
    let tls = verbose.lines().find_map(|line| line.split_once("SSL connection using ")).map(|(_, tls)| tls);
    let mut parts = tls.into_iter().flat_map(|tls| tls.split(" / "));
    let (version, cipher) = (parts.next(), parts.next().map(|name| IANA_NAMES[name].clone()));
    [json!(protocol), json!(version), json!(cipher)]
}

fn https(node: &Node) -> String {
    format!("https://{}/api/v1/ip", node.https())
}

fn http(node: &Node) -> String {
    format!("http://{}/api/v1/ip", node.http())
}

fn env(settings: &[(&str, &str)]) -> Env {
    settings.iter().map(|(name, value)| (format!("IPSEITY__EDGE__{name}"), (*value).to_owned())).collect()
}

fn authority(house: &House) -> &str {
    house.certificate.authority.to_str().expect("a path")
}

/// Forces each suite on HTTP/1.1 and on HTTP/2, and gives the suites that were agreed on.
async fn force(url: &str, authority: &str, key: &Issued, version: &[&str], suites: &[&str]) -> BTreeSet<String> {
    let mut agreed = BTreeSet::new();
    for suite in suites {
        for (option, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2")] {
            let options = [&["--cacert", authority, option], version, &[suite]].concat();
            let answer = ask(url, key, &options).await;
            assert_eq!(answer.told(), answer.seen, "{suite}");
            assert_eq!(answer.seen[0], protocol);
            agreed.insert(answer.seen[2].as_str().expect("a suite").to_owned());
        }
    }
    agreed
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nine_suites_are_named_as_curl_and_openssl_name_them() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let (url, trusted) = (https(&house.nodes[0]), authority(house));
    let mut agreed = force(&url, trusted, &key, &NEWER, &NEWER_SUITES).await;
    agreed.append(&mut force(&url, trusted, &key, &OLDER, &OLDER_ECDSA_SUITES).await);

    let folder = Folder::open().expect("a folder");
    let (certificate, private_key) = (folder.path().join("rsa.pem"), folder.path().join("rsa.key"));
    let (certificate, private_key) = (certificate.to_str().expect("a path"), private_key.to_str().expect("a path"));
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    let kind = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", names];
    run("openssl", &[&kind[..], &["-keyout", private_key, "-out", certificate]].concat());
    let pair = env(&[("CERTIFICATE_FILE", certificate), ("PRIVATE_KEY_FILE", private_key)]);
    let node = house.start_node(&pair).await.expect("a node");
    agreed.append(&mut force(&https(&node), certificate, &key, &OLDER, &OLDER_RSA_SUITES).await);
    assert_eq!(agreed.len(), 9, "{agreed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h2load_sees_the_session_that_is_told() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let url = https(&house.nodes[0]);
    let header = format!("--header=authorization: {}", key.bearer());
    for suite in NEWER_SUITES {
        for (theirs, ours, protocol) in [(None, "--http2", "h2"), (Some("--h1"), "--http1.1", "http/1.1")] {
            let forced = format!("--tls13-ciphers={suite}");
            let arguments = ["-n1", "-c1", &header, &forced, &url];
            let report = run("h2load", &[&arguments[..], theirs.as_slice()].concat());
            let said = |what: &str| report.lines().find_map(|line| line.strip_prefix(what)).expect("a line").trim();
            assert!(report.contains("1 succeeded"), "{report}");
            assert_eq!(said("Application protocol:"), protocol);
            let options = ["--cacert", authority(house), ours, "--tlsv1.3", "--tls13-ciphers", suite];
            let [http_protocol, tls_version, tls_cipher] = ask(&url, &key, &options).await.told();
            assert_eq!(http_protocol, protocol.to_uppercase().replace("H2", "HTTP/2"));
            assert_eq!(tls_version, said("TLS Protocol:"));
            assert_eq!(tls_cipher, IANA_NAMES[said("Cipher:")]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_offers_less_is_told_what_it_got() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    for (option, protocol) in [("--http1.0", "HTTP/1.0"), ("--no-alpn", "HTTP/1.1")] {
        let answer = ask(&https(&house.nodes[0]), &key, &["--cacert", authority(house), option]).await;
        assert_eq!(answer.told(), answer.seen);
        assert_eq!(answer.seen[..2], [json!(protocol), json!("TLSv1.3")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clear_connection_has_its_protocol_and_no_tls() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    for (option, protocol) in
        [("--http1.0", "HTTP/1.0"), ("--http1.1", "HTTP/1.1"), ("--http2-prior-knowledge", "HTTP/2")]
    {
        let answer = ask(&http(&house.nodes[0]), &key, &[option]).await;
        assert_eq!(answer.seen, [json!(protocol), Value::Null, Value::Null]);
        assert_eq!(answer.told(), answer.seen);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colo_is_the_nodes_own_or_null() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let node = house.start_node(&env(&[("COLO", "FRA")])).await.expect("a node");
    let header = format!("X-Forwarded-For: {FORWARDED_FOR}");
    for (node, colo) in [(&node, json!("FRA")), (&house.nodes[0], Value::Null)] {
        for options in [&[][..], &["--header", &header]] {
            assert_eq!(ask(&http(node), &key, options).await.body["colo"], colo);
        }
    }
}

/// Over TLS and in clear: the address that is told, whether nothing is told of the connection, and whether curl's own is.
async fn claims(house: &House, node: &Node, key: &Issued, header: &str) -> [(Value, bool, bool); 2] {
    let trusted = ["--cacert", authority(house), "--header", header];
    [ask(&https(node), key, &trusted).await, ask(&http(node), key, &["--header", header]).await].map(|answer| {
        let is_silent = answer.told().iter().all(Value::is_null) && answer.body["rtt"].is_null();
        let is_own = answer.told() == answer.seen && answer.body["rtt"].is_u64();
        (answer.body["ip"].clone(), is_silent, is_own)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_proxys_own_connection_is_told() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let node = house.start_node(&env(&[("FORWARDING_HEADER", "forwarded")])).await.expect("a node");
    let de_facto = format!("X-Forwarded-For: {FORWARDED_FOR}");
    let standard = format!("Forwarded: for={FORWARDED_FOR}");
    let unrelated = "X-Unrelated: 1".to_owned();
    for (node, believed, ignored) in [(&house.nodes[0], &de_facto, &standard), (&node, &standard, &de_facto)] {
        for claim in claims(house, node, &key, believed).await {
            assert_eq!(claim, (json!(FORWARDED_FOR), true, false), "{believed}");
        }
        for header in [ignored, &unrelated] {
            for claim in claims(house, node, &key, header).await {
                assert_eq!(claim, (json!("127.0.0.1"), false, true), "{header}");
            }
        }
    }
}

/// The round-trip times told one after the other on one connection, and how long curl took to connect, all in milliseconds.
fn round_trips(output: CliOutput) -> (Vec<u64>, f64) {
    let text = output.success().expect("answers").text();
    let lines: Vec<_> = text.lines().collect();
    let (mut told_ms, mut connects, mut connect_ms) = (Vec::new(), 0, 0.0);
    for pair in lines.chunks_exact(2) {
        let body: Value = serde_json::from_str(pair[0]).expect("JSON");
        told_ms.push(body["rtt"].as_u64().expect("a time"));
        let (count, seconds) = pair[1].split_once(' ').expect("a count and a time");
        connects += count.parse::<u32>().expect("a count");
        // 0 on a connection that is used again.
        connect_ms += seconds.parse::<f64>().expect("seconds") * 1000.0;
    }
    assert_eq!((told_ms.len(), connects), (REQUESTS, 1));
    (told_ms, connect_ms)
}

/// Asks several times on one connection, until the round-trip time told at the end is within 10 % of the line's.
async fn settles(
    name: &str,
    line_ms: u64,
    key: &Issued,
    url: &str,
    caller: impl AsyncFn(&[&str]) -> anyhow::Result<CliOutput>,
) {
    let expected_ms = line_ms - line_ms / 10..=line_ms + line_ms / 10;
    let authorization = format!("Authorization: {}", key.bearer());
    let common = ["--header", &authorization, "--write-out", "\n%{num_connects} %{time_connect}\n"];
    let arguments = [&common[..], &[url; REQUESTS]].concat();
    for _ in 0..TRIES_MAX {
        let (told_ms, connect_ms) = round_trips(caller(&arguments).await.expect("curl"));
        show(&format!(
            "{line_ms} ms, {name}: rtt {told_ms:?}, expected {expected_ms:?}; connected in {connect_ms:.1} ms"
        ));
        assert!(connect_ms >= line_ms as f64, "the line is shorter than it was made");
        if told_ms.last().is_some_and(|ms| expected_ms.contains(ms)) {
            return;
        }
    }
    panic!("{name}: not in {expected_ms:?} in {TRIES_MAX} tries");
}

#[expect(clippy::print_stdout, reason = "the figures are the point")]
pub(crate) fn show(line: &str) {
    println!("{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rtt_is_the_delay_of_the_clients_own_line() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let lines = [40, 15].map(|ms| (ms, Line::open(Duration::from_millis(ms)).expect("a line")));
    let free = |line: &Line| TcpListener::bind((line.server(), 0)).and_then(|port| port.local_addr());
    let listeners = || lines.iter().map(|(_, line)| free(line).expect("a port")).collect::<Vec<_>>();
    let (clear, tls) = (listeners(), listeners());
    let list = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let node = house.start_node(&env(&[("HTTP", &list(&clear)), ("HTTPS", &list(&tls))])).await.expect("a node");

    for (place, (each_way_ms, line)) in lines.iter().enumerate() {
        let url = format!("http://{}/api/v1/ip", clear[place]);
        let over = async |arguments: &[&str]| line.curl(arguments).await;
        settles("HTTP/1.1", 2 * each_way_ms, &key, &url, over).await;

        let (url, there) = ("https://localhost/api/v1/ip", format!("::{}", tls[place]));
        let options = ["--cacert", authority(house), "--http2", "--connect-to", &there];
        let over = async |arguments: &[&str]| line.curl(&[&options, arguments].concat()).await;
        settles("HTTP/2 over TLS", 2 * each_way_ms, &key, url, over).await;
    }
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn rtt_is_next_to_nothing_on_loopback() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    for _ in 0..TRIES_MAX {
        let told_ms = ask(&http(&house.nodes[0]), &key, &[]).await.body["rtt"].as_u64().expect("a time");
        show(&format!("loopback: rtt {told_ms}"));
        if told_ms <= 1 {
            return;
        }
    }
    panic!("not 0 or 1 in {TRIES_MAX} tries");
}
