//! `ipseity geo update` and `geo status` with an HTTPS server that sends prepared responses, valid and invalid.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, process};

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use ipseity_domain::{Client, Location, Scope};
use ipseity_edge::{
    CertResolver, CertificateFiles, Drain, DrainSwitch, EdgeLimits, EdgeState, Listener, RequestBody, TlsServerConfig,
    Transport, Trust,
};
use ipseity_testkit::certificate::TestCertificate;
use ipseity_testkit::deployment::node;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::fixtures::geo_database;
use ipseity_testkit::{CommandOutput, IssuedKey, Node, TestDir, eventually};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::fixture::{fresh_key, shared_deployment};

const BUILT_S: u64 = 1_790_000_000;
const BYTES_MAX: usize = 100_000;

fn edition_bytes(number: u64) -> Vec<u8> {
    let location = Location { country: Some("GB"), ..Location::default() };
    geo_database::city_database(BUILT_S + number, &[("81.2.69.0/24", location)]).expect("build database")
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("write");
    encoder.finish().expect("finish")
}

fn archived(bytes: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in [("GeoLite2-City/COPYRIGHT.txt", &b"(c)"[..]), ("GeoLite2-City/GeoLite2-City.mmdb", bytes)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content).expect("write to memory");
    }
    gzipped(&builder.into_inner().expect("write to memory"))
}

fn checksum_file(bytes: &[u8]) -> String {
    format!("{}  GeoLite2-City.tar.gz\n", hex::encode(Sha256::digest(bytes)))
}

/// A server that sends prepared responses one by one.
struct FakeGeoServer {
    responses: Mutex<VecDeque<Response>>,
    requests: Mutex<Vec<HeaderMap>>,
}

struct GeoUpdateFixture {
    server: Arc<FakeGeoServer>,
    dir: TestDir,
    file: PathBuf,
    url: String,
    _switch: DrainSwitch,
}

async fn respond(server: Arc<FakeGeoServer>, headers: HeaderMap) -> Response {
    server.requests.lock().expect("lock").push(headers);
    let next = server.responses.lock().expect("lock").pop_front();
    match next {
        Some(response) => response,
        // Without a prepared response, the server never responds.
        None => std::future::pending().await,
    }
}

fn start_fixture(has_checksum: bool) -> GeoUpdateFixture {
    let folder = TestDir::create().expect("create directory");
    let certificate = TestCertificate::generate_in(folder.path()).expect("generate certificate");
    let server = Arc::new(FakeGeoServer { responses: Mutex::default(), requests: Mutex::default() });
    let minute = Duration::from_secs(60);
    let limits = EdgeLimits {
        connections_max: 100,
        connections_per_subnet_max: 100,
        accept_backoff: Duration::from_millis(100),
        first_byte_timeout: Duration::from_secs(20),
        proxy_header_bytes_max: 1024,
        handshake_timeout: minute,
        header_timeout: minute,
        idle_timeout: minute,
        write_timeout: minute,
        write_rate_min: 1,
        unread_body_timeout: minute,
        memory_per_connection_max: 1 << 30,
        memory_per_subnet_max: 1 << 30,
        memory_max: 1 << 30,
        drain_timeout: minute,
        header_bytes_max: 16_384,
        headers_max: 100,
        streams_max: 100,
        resets_max: 100,
        quic_retry_threshold: 100,
        unsolicited_bytes_max: 1 << 20,
        failed_attempts_max: u32::MAX,
        failed_attempt_interval: Duration::ZERO,
        refusal_delay: Duration::ZERO,
        flood_penalty: Duration::from_secs(1),
    };
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).expect("bind socket");
    let port = listener.local_addr().expect("local address").port();
    let files = CertificateFiles {
        certificate: certificate.chain_file.clone(),
        private_key: certificate.private_key_file.clone(),
    };
    let tls = TlsServerConfig::new(&Arc::new(CertResolver::open(&[files]).expect("load certificate")));
    let (switch, drain) = Drain::new();
    let request_server = Arc::clone(&server);
    let application = move |_: Client, request: Request<RequestBody>| {
        respond(Arc::clone(&request_server), request.into_parts().0.headers)
    };
    let edge = Arc::new(EdgeState::new(limits, Trust::none(), None));
    tokio::spawn(ipseity_edge::serve(listener, Transport::Tls(tls), edge, application, drain));

    let file = folder.path().join("city.mmdb");
    fs::write(folder.path().join("license.key"), "s3cr3t\n").expect("write file");
    let address = format!("https://localhost:{port}");
    let url = format!("{address}/city?license_key=q-s3cr3t");
    let sum = if has_checksum { format!("sha256_url = \"{address}/sum\"\n") } else { String::new() };
    let settings = format!(
        "[geo]\nfiles = [\"city.mmdb\"]\nca_file = \"authority.pem\"\nupdate_bytes_max = {BYTES_MAX}\n\
         update_timeout_ms = 8000\nupdate_idle_timeout_ms = 3000\n\
         [[geo.sources]]\nurl = \"{url}\"\nfile = \"city.mmdb\"\n\
         account_id = \"42\"\nlicense_key_file = \"license.key\"\n{sum}"
    );
    fs::write(folder.path().join("ipseity.toml"), settings).expect("write file");
    GeoUpdateFixture { server, dir: folder, file, url, _switch: switch }
}

impl GeoUpdateFixture {
    fn queue_responses(&self, responses: impl IntoIterator<Item = Response>) {
        *self.server.responses.lock().expect("lock") = responses.into_iter().collect();
    }

    async fn run_cli(&self, line: &str) -> CommandOutput {
        let mut command = process::Command::new(node::find_service_binary().expect("service binary"));
        command.args(["--config", "ipseity.toml"]).args(line.split(' ')).current_dir(self.dir.path()).env_clear();
        command.stdin(Stdio::null());
        let output =
            tokio::task::spawn_blocking(move || command.output().expect("run program")).await.expect("run command");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("s3cr3t"), "{stderr}");
        CommandOutput { code: output.status.code(), stdout: output.stdout, stderr }
    }

    /// Settings of a node with this source, by variable. Changed files are not watched.
    fn env(&self) -> Env {
        let sources = json!([{ "url": self.url, "file": self.file }]).to_string();
        let ca_file = self.dir.path().join("authority.pem").display().to_string();
        [
            ("FILES", self.file.display().to_string()),
            ("SOURCES", sources),
            ("CA_FILE", ca_file),
            ("WATCH", "false".to_owned()),
            ("UPDATE_IDLE_TIMEOUT_MS", "500".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (format!("IPSEITY__GEO__{name}"), value))
        .collect()
    }

    /// Asserts that an update succeeds.
    async fn assert_update(&self, responses: impl IntoIterator<Item = Response>, expected: &str) {
        self.queue_responses(responses);
        let output = self.run_cli("geo update").await;
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stderr.lines().all(|line| line.contains(" MB")), "only progress is printed: {}", output.stderr);
        assert!(output.text().contains(expected), "{}", output.text());
    }

    /// Asserts that an update fails with a reason and leaves the file unchanged.
    async fn assert_update_fails(&self, responses: impl IntoIterator<Item = Response>, reason: &str) {
        self.queue_responses(responses);
        let before = fs::read(&self.file).expect("read file");
        let output = self.run_cli("geo update").await;
        assert_eq!((output.code, output.text().as_str()), (Some(1), ""), "{reason}");
        assert!(output.stderr.lines().any(|line| line.contains(reason)), "{reason}: {}", output.stderr);
        assert_eq!(fs::read(&self.file).expect("read file"), before, "{reason}");
        let mut left: Vec<_> = fs::read_dir(self.dir.path()).expect("read directory").flatten().collect();
        left.retain(|entry| entry.file_name().to_string_lossy().starts_with("city.mmdb."));
        assert_eq!(left.len(), 1, "only the .meta file is left: {left:?}");
    }

    fn last_request_header(&self, name: &str) -> Option<String> {
        let received = self.server.requests.lock().expect("lock");
        Some(received.last()?.get(name)?.to_str().expect("UTF-8 path").to_owned())
    }
}

fn ok_response(bytes: Vec<u8>) -> Response {
    ([("etag", "\"one\""), ("last-modified", "Sun, 15 Nov 2026 00:00:00 GMT")], bytes).into_response()
}

fn too_many_requests(retry_after: &'static str) -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [("retry-after", retry_after)]).into_response()
}

/// An endless body with one byte every 50 ms.
fn slow_body_response() -> Response {
    Body::from_stream(stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x")), ()))
    }))
    .into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_edition_is_downloaded_in_every_archive_format() {
    let fixture = start_fixture(false);
    fixture.assert_update([ok_response(edition_bytes(1))], "updated to GeoLite2-City of 2026-09-21").await;
    assert_eq!(fs::read(&fixture.file).expect("read file"), edition_bytes(1));
    assert_eq!(fixture.last_request_header("authorization").as_deref(), Some("Basic NDI6czNjcjN0"));
    assert_eq!(fixture.last_request_header("if-none-match"), None);

    fixture.assert_update([StatusCode::NOT_MODIFIED.into_response()], "already up to date").await;
    assert_eq!(fixture.last_request_header("if-none-match").as_deref(), Some("\"one\""));
    assert_eq!(fixture.last_request_header("if-modified-since").as_deref(), Some("Sun, 15 Nov 2026 00:00:00 GMT"));
    assert_eq!(fs::read(&fixture.file).expect("read file"), edition_bytes(1));

    fixture.assert_update([ok_response(gzipped(&edition_bytes(2)))], "updated to GeoLite2-City").await;
    assert_eq!(fs::read(&fixture.file).expect("read file"), edition_bytes(2));
    fixture.assert_update([ok_response(archived(&edition_bytes(3)))], "updated to GeoLite2-City").await;
    assert_eq!(fs::read(&fixture.file).expect("read file"), edition_bytes(3));

    // A file that was changed otherwise is downloaded again, regardless of its validators.
    fs::write(&fixture.file, b"rubbish").expect("write file");
    fixture.assert_update([ok_response(edition_bytes(3))], "updated to GeoLite2-City").await;
    assert_eq!(fixture.last_request_header("if-none-match"), None);

    let status = fixture
        .run_cli("geo status --json")
        .await
        .ensure_success()
        .expect("command succeeds")
        .json()
        .expect("valid JSON");
    assert_eq!((&status["type"], &status["networks"]), (&"GeoLite2-City".into(), &1.into()));
    let table = fixture.run_cli("geo status").await.ensure_success().expect("command succeeds").text();
    assert!(table.contains("ATTRIBUTION") && table.contains("created by MaxMind"), "{table}");
    fixture.queue_responses([StatusCode::NOT_MODIFIED.into_response()]);
    let update = fixture.run_cli("geo update --json").await.json().expect("valid JSON");
    assert_eq!(update["outcome"], "unchanged");
    let settings = fixture.run_cli("check").await.text();
    assert!(settings.contains("license_key=…") && !settings.contains("s3cr3t"), "{settings}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_update_keeps_the_last_valid_edition() {
    let fixture = start_fixture(false);
    fixture.assert_update([ok_response(edition_bytes(5))], "updated to GeoLite2-City").await;
    let archive = archived(&edition_bytes(6));
    let large = vec![0; BYTES_MAX + 1];
    let endless =
        || Body::from_stream(stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from_static(&[0; 9_000]))));
    for (response, reason) in [
        (ok_response(archive[..archive.len() / 2].to_vec()), "the archive is damaged"),
        (ok_response(b"<html>welcome</html>".to_vec()), "not a valid MMDB file"),
        (ok_response(edition_bytes(6)[..500].to_vec()), "not a valid MMDB file"),
        (ok_response(edition_bytes(4)), "older edition"),
        (ok_response(large.clone()), "100000 bytes of [geo] update_bytes_max"),
        (endless().into_response(), "100000 bytes of [geo] update_bytes_max"),
        (ok_response(gzipped(&large)), "100000 bytes of [geo] update_bytes_max"),
        (StatusCode::UNAUTHORIZED.into_response(), "check account_id and license_key_file"),
        (StatusCode::NOT_FOUND.into_response(), "404"),
        (too_many_requests("3600"), "retry in 3600 s"),
    ] {
        fixture.assert_update_fails([response], reason).await;
    }
    // No response, then an endless one.
    fixture.assert_update_fails([], "timed out waiting for the server").await;
    let started = Instant::now();
    fixture.assert_update_fails([slow_body_response()], "update_timeout_ms").await;
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    fixture.assert_update([ok_response(edition_bytes(6))], "updated to GeoLite2-City").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn update_waits_for_retry_after() {
    let fixture = start_fixture(false);
    let started = Instant::now();
    fixture.assert_update([too_many_requests("2"), ok_response(edition_bytes(1))], "updated to GeoLite2-City").await;
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(fixture.server.requests.lock().expect("lock").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn running_node_downloads_and_loads_updates() {
    let (deployment, fixture) = (shared_deployment().await, start_fixture(false));
    fs::write(&fixture.file, edition_bytes(1)).expect("write file");
    fixture.queue_responses([ok_response(archived(&edition_bytes(2)))]);
    let log = fixture.dir.path().join("node.log");
    let mut command = tokio::process::Command::new(node::find_service_binary().expect("service binary"));
    command.args(["--config", "ipseity.toml", "serve"]).current_dir(fixture.dir.path()).kill_on_drop(true);
    command.env_clear().envs(deployment.env()).env_remove("IPSEITY__GEO__FILES");
    for (name, value) in
        [("EDGE__HTTP", "127.0.0.1:0"), ("OPS__LISTEN", "127.0.0.1:0"), ("GEO__UPDATE_INTERVAL_H", "1")]
    {
        command.env(format!("IPSEITY__{name}"), value);
    }
    let _node = command
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).expect("create file"))
        .spawn()
        .expect("start process");
    eventually("the new edition is loaded", Duration::from_secs(30), async || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains("geo database reloaded"))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", fs::read_to_string(&log).unwrap_or_default()));
    assert_eq!(fs::read(&fixture.file).expect("read file"), edition_bytes(2));
    assert_eq!(fixture.server.requests.lock().expect("lock").len(), 1, "no further update is due");
}

async fn country_of(node: &Node, key: &IssuedKey) -> Value {
    let headers = [("authorization", &*key.bearer()), ("x-forwarded-for", "81.2.69.142")];
    let reply = node.client().get("/api/v1/ip", &headers).await.expect("response arrives");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json().expect("valid JSON")["country"].clone()
}

async fn meta_text(node: &Node) -> String {
    node.client().get("/api/v1/meta", &[]).await.expect("response arrives").text()
}

async fn wait_for_country(node: &Node, key: &IssuedKey) {
    // Not with lookups, which would pause the key.
    eventually("the database is loaded", Duration::from_secs(30), async || meta_text(node).await.contains("GeoLite2"))
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", node.log().unwrap_or_default()));
    assert_eq!(country_of(node, key).await, "GB");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_downloads_a_missing_file_when_it_starts() {
    let (deployment, fixture) = (shared_deployment().await, start_fixture(false));
    fixture.queue_responses([ok_response(archived(&edition_bytes(1)))]);
    let key = fresh_key(deployment, Scope::Geo).await;
    let node = deployment.start_node(&fixture.env()).await.expect("start node");
    wait_for_country(&node, &key).await;
    let meta = meta_text(&node).await;
    assert!(meta.contains("GeoLite2 data created by MaxMind"), "{meta}");
    let log = node.log().expect("read log");
    assert!(log.contains("geo database missing, downloading it") && log.contains("geo database downloaded"), "{log}");
    assert!(log.contains("localhost") && !log.contains("s3cr3t"), "{log}");
    assert_eq!(fixture.server.requests.lock().expect("lock").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_serves_without_a_missing_file_until_its_source_answers() {
    let (deployment, fixture) = (shared_deployment().await, start_fixture(false));
    let key = fresh_key(deployment, Scope::Geo).await;
    let mut env = fixture.env();
    env.insert("IPSEITY__GEO__UPDATE_INTERVAL_H".to_owned(), "24".to_owned());
    let node = deployment.start_node(&env).await.expect("start node");
    assert_eq!(country_of(&node, &key).await, Value::Null);
    eventually("the download fails", Duration::from_secs(30), async || {
        node.log().is_ok_and(|log| log.contains("geo download failed"))
    })
    .await
    .expect("the download fails");
    let settings: Vec<_> = env.iter().map(|(name, value)| (&**name, &**value)).collect();
    let report = deployment.cli_with_env(&settings, &["doctor"]).await.expect("run command").text();
    assert!(report.contains("yet, source localhost: ") && report.contains("timed out waiting"), "{report}");
    let check = deployment.cli_with_env(&settings, &["check"]).await.expect("run command");
    assert!(check.stderr.contains("does not exist yet. A node downloads it from localhost"), "{}", check.stderr);
    fixture.queue_responses([ok_response(edition_bytes(1))]);
    wait_for_country(&node, &key).await;

    let without_source = [("IPSEITY__GEO__FILES", "/nowhere.mmdb"), ("IPSEITY__GEO__SOURCES", "")];
    let refused = deployment.cli_with_env(&without_source, &["serve"]).await.expect("run command");
    assert!(refused.code == Some(1) && refused.stderr.contains("failed to read /nowhere.mmdb"), "{}", refused.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn published_checksum_must_match() {
    let fixture = start_fixture(true);
    let archive = archived(&edition_bytes(1));
    fixture
        .assert_update(
            [ok_response(archive.clone()), checksum_file(&archive).into_response()],
            "updated to GeoLite2-City",
        )
        .await;
    for (sum, reason) in [
        (checksum_file(b"another").into_response(), "SHA-256 does not match"),
        ("welcome".into_response(), "does not start with a SHA-256"),
        (StatusCode::NOT_FOUND.into_response(), "404"),
    ] {
        fixture.assert_update_fails([ok_response(archived(&edition_bytes(2))), sum], reason).await;
    }
}
