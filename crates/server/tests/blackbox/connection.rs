//! Compares the reported connection fields with curl, h2load and OpenSSL, and the round-trip time with a known delay.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{CommandOutput, DelayedLink, Deployment, IssuedKey, Node, TestDir, curl};
use serde_json::{Value, json};

use crate::fixture::{fresh_key, shared_deployment};

const TLS12_OPTIONS: [&str; 4] = ["--tlsv1.2", "--tls-max", "1.2", "--ciphers"];
const TLS13_OPTIONS: [&str; 2] = ["--tlsv1.3", "--tls13-ciphers"];
const TLS13_SUITES: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
const TLS12_ECDSA_SUITES: [&str; 3] =
    ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"];
const TLS12_RSA_SUITES: [&str; 3] =
    ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-CHACHA20-POLY1305"];
/// Retries on a busy machine.
const ATTEMPTS_MAX: usize = 3;
/// Enough round trips for a stable smoothed time.
const REQUESTS_PER_CONNECTION: usize = 12;
const FORWARDED_FOR: &str = "198.51.100.77";

/// HTTP version, TLS version and cipher suite of a connection, as in a response.
pub(crate) type NegotiatedSession = [Value; 3];

/// A response, and the session that curl negotiated.
pub(crate) struct CurlResponse {
    pub(crate) body: Value,
    pub(crate) negotiated: NegotiatedSession,
}

impl CurlResponse {
    pub(crate) fn reported(&self) -> NegotiatedSession {
        ["http_protocol", "tls_version", "tls_cipher"].map(|name| self.body[name].clone())
    }
}

/// Cipher suites by OpenSSL name, and their IANA names according to OpenSSL.
static IANA_NAMES: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let text = run_tool("openssl", &["ciphers", "-stdname"]);
    let names = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (iana, _dash, openssl) = (words.next()?, words.next()?, words.next()?);
        Some((openssl.to_owned(), iana.to_owned()))
    });
    names.collect()
});

fn run_tool(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("failed to run {program} (h2load is in nghttp2-client): {error}");
    });
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Looks up with curl. Its standard error has the negotiated session, and the HTTP version follows the body.
pub(crate) async fn curl_lookup(url: &str, key: &IssuedKey, options: &[&str]) -> CurlResponse {
    let authorization = format!("Authorization: {}", key.bearer());
    let common = ["--verbose", "--write-out", "\n%{http_version}", "--header", &authorization, url];
    let output =
        curl(&[&common, options].concat()).await.expect("curl runs").ensure_success().expect("request succeeds");
    let text = output.text();
    let (body, version) = text.rsplit_once('\n').expect("version follows the body");
    let body = serde_json::from_str(body).expect("valid JSON");
    CurlResponse { body, negotiated: parse_session(version, &output.stderr) }
}

fn parse_session(version: &str, verbose: &str) -> NegotiatedSession {
    let protocol = if version == "1" { "HTTP/1.0".to_owned() } else { format!("HTTP/{version}") };
    if let Some(line) = verbose.lines().find(|line| line.contains("ALPN") && line.contains("server accepted")) {
        let agreed = line.split_whitespace().last().expect("word exists").to_uppercase();
        assert_eq!(agreed.replace("H2", "HTTP/2"), protocol);
    }
    let tls = verbose.lines().find_map(|line| line.split_once("SSL connection using ")).map(|(_, tls)| tls);
    let mut parts = tls.into_iter().flat_map(|tls| tls.split(" / "));
    let (version, cipher) = (parts.next(), parts.next().map(|name| IANA_NAMES[name].clone()));
    [json!(protocol), json!(version), json!(cipher)]
}

fn https_url(node: &Node) -> String {
    format!("https://{}/api/v1/ip", node.https())
}

fn http_url(node: &Node) -> String {
    format!("http://{}/api/v1/ip", node.http())
}

fn edge_env(settings: &[(&str, &str)]) -> Env {
    settings.iter().map(|(name, value)| (format!("IPSEITY__EDGE__{name}"), (*value).to_owned())).collect()
}

fn ca_path(deployment: &Deployment) -> &str {
    deployment.certificate.ca_file.to_str().expect("valid path")
}

/// Forces each cipher suite on HTTP/1.1 and HTTP/2, and returns the negotiated ones.
async fn lookup_with_suites(
    url: &str,
    ca_file: &str,
    key: &IssuedKey,
    version: &[&str],
    suites: &[&str],
) -> BTreeSet<String> {
    let mut agreed = BTreeSet::new();
    for suite in suites {
        for (option, protocol) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2")] {
            let options = [&["--cacert", ca_file, option], version, &[suite]].concat();
            let response = curl_lookup(url, key, &options).await;
            assert_eq!(response.reported(), response.negotiated, "{suite}");
            assert_eq!(response.negotiated[0], protocol);
            agreed.insert(response.negotiated[2].as_str().expect("cipher suite is reported").to_owned());
        }
    }
    agreed
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_cipher_suites_match_curl_and_openssl() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let (url, trusted) = (https_url(&deployment.nodes[0]), ca_path(deployment));
    let mut agreed = lookup_with_suites(&url, trusted, &key, &TLS13_OPTIONS, &TLS13_SUITES).await;
    agreed.append(&mut lookup_with_suites(&url, trusted, &key, &TLS12_OPTIONS, &TLS12_ECDSA_SUITES).await);

    let dir = TestDir::create().expect("create a directory");
    let (certificate, private_key) = (dir.path().join("rsa.pem"), dir.path().join("rsa.key"));
    let (certificate, private_key) =
        (certificate.to_str().expect("valid path"), private_key.to_str().expect("valid path"));
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    let kind = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", names];
    run_tool("openssl", &[&kind[..], &["-keyout", private_key, "-out", certificate]].concat());
    let pair = edge_env(&[("CERTIFICATE_FILE", certificate), ("PRIVATE_KEY_FILE", private_key)]);
    let node = deployment.start_node(&pair).await.expect("node starts");
    agreed
        .append(&mut lookup_with_suites(&https_url(&node), certificate, &key, &TLS12_OPTIONS, &TLS12_RSA_SUITES).await);
    assert_eq!(agreed.len(), 9, "{agreed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_session_matches_h2load() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let url = https_url(&deployment.nodes[0]);
    let header = format!("--header=authorization: {}", key.bearer());
    for suite in TLS13_SUITES {
        for (h2load_option, curl_option, protocol) in [(None, "--http2", "h2"), (Some("--h1"), "--http1.1", "http/1.1")]
        {
            let forced = format!("--tls13-ciphers={suite}");
            let arguments = ["-n1", "-c1", &header, &forced, &url];
            let report = run_tool("h2load", &[&arguments[..], h2load_option.as_slice()].concat());
            let report_field =
                |what: &str| report.lines().find_map(|line| line.strip_prefix(what)).expect("line exists").trim();
            assert!(report.contains("1 succeeded"), "{report}");
            assert_eq!(report_field("Application protocol:"), protocol);
            let options = ["--cacert", ca_path(deployment), curl_option, "--tlsv1.3", "--tls13-ciphers", suite];
            let [http_protocol, tls_version, tls_cipher] = curl_lookup(&url, &key, &options).await.reported();
            assert_eq!(http_protocol, protocol.to_uppercase().replace("H2", "HTTP/2"));
            assert_eq!(tls_version, report_field("TLS Protocol:"));
            assert_eq!(tls_cipher, IANA_NAMES[report_field("Cipher:")]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_protocol_matches_what_was_negotiated() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    for (option, protocol) in [("--http1.0", "HTTP/1.0"), ("--no-alpn", "HTTP/1.1")] {
        let response =
            curl_lookup(&https_url(&deployment.nodes[0]), &key, &["--cacert", ca_path(deployment), option]).await;
        assert_eq!(response.reported(), response.negotiated);
        assert_eq!(response.negotiated[..2], [json!(protocol), json!("TLSv1.3")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cleartext_connection_reports_protocol_without_tls() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    for (option, protocol) in
        [("--http1.0", "HTTP/1.0"), ("--http1.1", "HTTP/1.1"), ("--http2-prior-knowledge", "HTTP/2")]
    {
        let response = curl_lookup(&http_url(&deployment.nodes[0]), &key, &[option]).await;
        assert_eq!(response.negotiated, [json!(protocol), Value::Null, Value::Null]);
        assert_eq!(response.reported(), response.negotiated);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colo_is_the_configured_value_or_null() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let node = deployment.start_node(&edge_env(&[("COLO", "FRA")])).await.expect("node starts");
    let header = format!("X-Forwarded-For: {FORWARDED_FOR}");
    for (node, colo) in [(&node, json!("FRA")), (&deployment.nodes[0], Value::Null)] {
        for options in [&[][..], &["--header", &header]] {
            assert_eq!(curl_lookup(&http_url(node), &key, options).await.body["colo"], colo);
        }
    }
}

/// Over TLS and plain HTTP: the reported address, whether the session fields are null, and whether they match curl's
/// session.
async fn lookup_with_header(
    deployment: &Deployment,
    node: &Node,
    key: &IssuedKey,
    header: &str,
) -> [(Value, bool, bool); 2] {
    let trusted = ["--cacert", ca_path(deployment), "--header", header];
    [curl_lookup(&https_url(node), key, &trusted).await, curl_lookup(&http_url(node), key, &["--header", header]).await]
        .map(|response| {
            let reports_nothing = response.reported().iter().all(Value::is_null) && response.body["rtt"].is_null();
            let reports_curl_session = response.reported() == response.negotiated && response.body["rtt"].is_u64();
            (response.body["ip"].clone(), reports_nothing, reports_curl_session)
        })
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_connection_is_never_reported() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let node = deployment.start_node(&edge_env(&[("FORWARDING_HEADER", "forwarded")])).await.expect("node starts");
    let de_facto = format!("X-Forwarded-For: {FORWARDED_FOR}");
    let standard = format!("Forwarded: for={FORWARDED_FOR}");
    let unrelated = "X-Unrelated: 1".to_owned();
    for (node, trusted_header, ignored_header) in
        [(&deployment.nodes[0], &de_facto, &standard), (&node, &standard, &de_facto)]
    {
        for reported in lookup_with_header(deployment, node, &key, trusted_header).await {
            assert_eq!(reported, (json!(FORWARDED_FOR), true, false), "{trusted_header}");
        }
        for header in [ignored_header, &unrelated] {
            for reported in lookup_with_header(deployment, node, &key, header).await {
                assert_eq!(reported, (json!("127.0.0.1"), false, true), "{header}");
            }
        }
    }
}

/// Round-trip times reported on one connection, and curl's connect time, in milliseconds.
fn parse_round_trips(output: CommandOutput) -> (Vec<u64>, f64) {
    let text = output.ensure_success().expect("requests succeed").text();
    let lines: Vec<_> = text.lines().collect();
    let (mut reported_ms, mut connects, mut connect_ms) = (Vec::new(), 0, 0.0);
    for pair in lines.chunks_exact(2) {
        let body: Value = serde_json::from_str(pair[0]).expect("valid JSON");
        reported_ms.push(body["rtt"].as_u64().expect("valid time"));
        let (count, seconds) = pair[1].split_once(' ').expect("count and time");
        connects += count.parse::<u32>().expect("valid count");
        // 0 on a reused connection.
        connect_ms += seconds.parse::<f64>().expect("valid seconds") * 1000.0;
    }
    assert_eq!((reported_ms.len(), connects), (REQUESTS_PER_CONNECTION, 1));
    (reported_ms, connect_ms)
}

/// Sends several requests on one connection until the last reported round-trip time is within 10 % of the link's.
async fn assert_rtt_converges(
    name: &str,
    link_rtt_ms: u64,
    key: &IssuedKey,
    url: &str,
    caller: impl AsyncFn(&[&str]) -> anyhow::Result<CommandOutput>,
) {
    let expected_ms = link_rtt_ms - link_rtt_ms / 10..=link_rtt_ms + link_rtt_ms / 10;
    let authorization = format!("Authorization: {}", key.bearer());
    let common = ["--header", &authorization, "--write-out", "%{num_connects} %{time_connect}\n"];
    let arguments = [&common[..], &[url; REQUESTS_PER_CONNECTION]].concat();
    for _ in 0..ATTEMPTS_MAX {
        let (reported_ms, connect_ms) = parse_round_trips(caller(&arguments).await.expect("curl runs"));
        print_line(&format!(
            "{link_rtt_ms} ms, {name}: rtt {reported_ms:?}, expected {expected_ms:?}; connected in {connect_ms:.1} ms"
        ));
        assert!(connect_ms >= link_rtt_ms as f64, "the link is faster than configured");
        if reported_ms.last().is_some_and(|ms| expected_ms.contains(ms)) {
            return;
        }
    }
    panic!("{name}: not in {expected_ms:?} after {ATTEMPTS_MAX} attempts");
}

#[expect(clippy::print_stdout, reason = "the figures are printed")]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rtt_matches_the_delay_of_the_client_link() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let links = [40, 15].map(|ms| (ms, DelayedLink::open(Duration::from_millis(ms)).expect("create a link")));
    let free = |link: &DelayedLink| TcpListener::bind((link.server_ip(), 0)).and_then(|port| port.local_addr());
    let listeners = || links.iter().map(|(_, link)| free(link).expect("bind a port")).collect::<Vec<_>>();
    let (clear, tls) = (listeners(), listeners());
    let list = |all: &[SocketAddr]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let node = deployment
        .start_node(&edge_env(&[("HTTP", &list(&clear)), ("HTTPS", &list(&tls))]))
        .await
        .expect("node starts");

    for (index, (one_way_ms, link)) in links.iter().enumerate() {
        let url = format!("http://{}/api/v1/ip", clear[index]);
        let curl_over_link = async |arguments: &[&str]| link.curl(arguments).await;
        assert_rtt_converges("HTTP/1.1", 2 * one_way_ms, &key, &url, curl_over_link).await;

        let (url, connect_to) = ("https://localhost/api/v1/ip", format!("::{}", tls[index]));
        let options = ["--cacert", ca_path(deployment), "--http2", "--connect-to", &connect_to];
        let curl_over_link = async |arguments: &[&str]| link.curl(&[&options, arguments].concat()).await;
        assert_rtt_converges("HTTP/2 over TLS", 2 * one_way_ms, &key, url, curl_over_link).await;
    }
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn rtt_is_at_most_one_ms_on_loopback() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    for _ in 0..ATTEMPTS_MAX {
        let reported_ms =
            curl_lookup(&http_url(&deployment.nodes[0]), &key, &[]).await.body["rtt"].as_u64().expect("valid time");
        print_line(&format!("loopback: rtt {reported_ms}"));
        if reported_ms <= 1 {
            return;
        }
    }
    panic!("not 0 or 1 after {ATTEMPTS_MAX} attempts");
}
