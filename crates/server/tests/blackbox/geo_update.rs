//! `ipseity geo update` and `geo status`, against an HTTPS server that behaves and misbehaves as told.

use std::collections::VecDeque;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, process};

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use domain::{Client, Place};
use edge::{
    Bounds, CertificateFiles, Drain, DrainSwitch, Edge, Listener, RequestBody, Tls, Transport, Trust, Wardrobe,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{HeaderMap, Request, StatusCode};
use sha2::{Digest, Sha256};
use testkit::certificate::Certificate;
use testkit::{CliOutput, Folder, atlas, eventually, node};

use crate::shared::house;

const BUILT_S: u64 = 1_790_000_000;
const BYTES_MAX: usize = 100_000;

fn edition(number: u64) -> Vec<u8> {
    let place = Place { country: Some("GB"), ..Place::default() };
    atlas::city(BUILT_S + number, &[("81.2.69.0/24", place)]).expect("a database")
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn archived(bytes: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in [("GeoLite2-City/COPYRIGHT.txt", &b"(c)"[..]), ("GeoLite2-City/GeoLite2-City.mmdb", bytes)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, content).expect("memory");
    }
    gzipped(&builder.into_inner().expect("memory"))
}

fn checksum(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}  GeoLite2-City.tar.gz\n")
}

/// A server that gives prepared answers one by one, and a node's configuration that fetches from it.
struct Stage {
    answers: Mutex<VecDeque<Response>>,
    asked: Mutex<Vec<HeaderMap>>,
}

struct Scene {
    stage: Arc<Stage>,
    folder: Folder,
    file: PathBuf,
    _switch: DrainSwitch,
}

async fn answer(stage: Arc<Stage>, headers: HeaderMap) -> Response {
    stage.asked.lock().expect("a list").push(headers);
    let next = stage.answers.lock().expect("a list").pop_front();
    match next {
        Some(answer) => answer,
        // Nothing prepared: a server that accepts and never answers.
        None => std::future::pending().await,
    }
}

fn open(has_checksum: bool) -> Scene {
    let folder = Folder::open().expect("a folder");
    let certificate = Certificate::write(folder.path()).expect("a certificate");
    let stage = Arc::new(Stage { answers: Mutex::default(), asked: Mutex::default() });
    let second = Duration::from_secs(60);
    let bounds = Bounds {
        connections_max: 100,
        connections_per_network_max: 100,
        accept_pause: Duration::from_millis(100),
        first_byte_timeout: Duration::from_secs(20),
        proxy_header_bytes_max: 1024,
        handshake_timeout: second,
        header_timeout: second,
        idle_timeout: second,
        write_timeout: second,
        drain_timeout: second,
        header_bytes_max: 16_384,
        header_lines_max: 100,
        streams_max: 100,
        resets_max: 100,
        unproven_max: 100,
        unasked_bytes_max: 1 << 20,
        flood_penalty: Duration::from_secs(1),
    };
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), false).expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let files =
        CertificateFiles { certificate: certificate.chain.clone(), private_key: certificate.private_key.clone() };
    let tls = Tls::new(&Arc::new(Wardrobe::open(&[files]).expect("a pair")));
    let (switch, drain) = Drain::new();
    let asked = Arc::clone(&stage);
    let application =
        move |_: Client, request: Request<RequestBody>| answer(Arc::clone(&asked), request.into_parts().0.headers);
    let edge = Arc::new(Edge::new(bounds, Trust::nobody(), None));
    tokio::spawn(edge::serve(listener, Transport::Tls(tls), edge, application, drain));

    let file = folder.path().join("city.mmdb");
    fs::write(folder.path().join("licence.key"), "s3cr3t\n").expect("a file");
    let address = format!("https://localhost:{port}");
    let sum = if has_checksum { format!("sha256_url = \"{address}/sum\"\n") } else { String::new() };
    let settings = format!(
        "[geo]\nfiles = [\"city.mmdb\"]\nca_file = \"authority.pem\"\nupdate_bytes_max = {BYTES_MAX}\n\
         update_timeout_ms = 4000\nupdate_idle_timeout_ms = 1000\n\
         [[geo.sources]]\nurl = \"{address}/city?license_key=q-s3cr3t\"\nfile = \"city.mmdb\"\n\
         account_id = \"42\"\nlicence_key_file = \"licence.key\"\n{sum}"
    );
    fs::write(folder.path().join("ipseity.toml"), settings).expect("a file");
    Scene { stage, folder, file, _switch: switch }
}

impl Scene {
    fn prepare(&self, answers: impl IntoIterator<Item = Response>) {
        *self.stage.answers.lock().expect("a list") = answers.into_iter().collect();
    }

    async fn run(&self, line: &str) -> CliOutput {
        let mut command = process::Command::new(node::find_program().expect("the program"));
        command.args(["--config", "ipseity.toml"]).args(line.split(' ')).current_dir(self.folder.path()).env_clear();
        command.stdin(Stdio::null());
        let output =
            tokio::task::spawn_blocking(move || command.output().expect("a command")).await.expect("a command");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("s3cr3t"), "{stderr}");
        CliOutput { code: output.status.code(), stdout: output.stdout, stderr }
    }

    /// Updates with success.
    async fn update(&self, answers: impl IntoIterator<Item = Response>, says: &str) {
        self.prepare(answers);
        let output = self.run("geo update").await;
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stderr.lines().all(|line| line.contains(" MB")), "nothing but progress: {}", output.stderr);
        assert!(output.text().contains(says), "{}", output.text());
    }

    /// Updates in vain: one sentence says why, and the file is as it was.
    async fn fail(&self, answers: impl IntoIterator<Item = Response>, says: &str) {
        self.prepare(answers);
        let before = fs::read(&self.file).expect("the last good edition");
        let output = self.run("geo update").await;
        assert_eq!((output.code, output.text().as_str()), (Some(1), ""), "{says}");
        assert!(output.stderr.lines().any(|line| line.contains(says)), "{says}: {}", output.stderr);
        assert_eq!(fs::read(&self.file).expect("the last good edition"), before, "{says}");
        let mut left: Vec<_> = fs::read_dir(self.folder.path()).expect("a folder").flatten().collect();
        left.retain(|entry| entry.file_name().to_string_lossy().starts_with("city.mmdb."));
        assert_eq!(left.len(), 1, "only what the server said is left beside the file: {left:?}");
    }

    fn last_asked(&self, name: &str) -> Option<String> {
        let asked = self.stage.asked.lock().expect("a list");
        Some(asked.last()?.get(name)?.to_str().expect("text").to_owned())
    }
}

fn whole(bytes: Vec<u8>) -> Response {
    ([("etag", "\"one\""), ("last-modified", "Sun, 15 Nov 2026 00:00:00 GMT")], bytes).into_response()
}

fn busy(retry_after: &'static str) -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [("retry-after", retry_after)]).into_response()
}

/// A body of which a byte comes every 50 ms, for ever.
fn dripping() -> Response {
    Body::from_stream(stream::unfold((), async |()| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x")), ()))
    }))
    .into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_edition_is_fetched_once_in_every_wrapping() {
    let scene = open(false);
    scene.update([whole(edition(1))], "now GeoLite2-City of 2026-09-21").await;
    assert_eq!(fs::read(&scene.file).expect("a file"), edition(1));
    assert_eq!(scene.last_asked("authorization").as_deref(), Some("Basic NDI6czNjcjN0"));
    assert_eq!(scene.last_asked("if-none-match"), None);

    scene.update([StatusCode::NOT_MODIFIED.into_response()], "already the newest").await;
    assert_eq!(scene.last_asked("if-none-match").as_deref(), Some("\"one\""));
    assert_eq!(scene.last_asked("if-modified-since").as_deref(), Some("Sun, 15 Nov 2026 00:00:00 GMT"));
    assert_eq!(fs::read(&scene.file).expect("a file"), edition(1));

    scene.update([whole(gzipped(&edition(2)))], "now GeoLite2-City").await;
    assert_eq!(fs::read(&scene.file).expect("a file"), edition(2));
    scene.update([whole(archived(&edition(3)))], "now GeoLite2-City").await;
    assert_eq!(fs::read(&scene.file).expect("a file"), edition(3));

    // What other hands have changed is fetched anew, whatever the server said of it before.
    fs::write(&scene.file, b"rubbish").expect("a file");
    scene.update([whole(edition(3))], "now GeoLite2-City").await;
    assert_eq!(scene.last_asked("if-none-match"), None);

    let status = scene.run("geo status --json").await.success().expect("a status").json().expect("JSON");
    assert_eq!((&status[0]["type"], &status[0]["networks"]), (&"GeoLite2-City".into(), &1.into()));
    let table = scene.run("geo status").await.success().expect("a status").text();
    assert!(table.contains("ATTRIBUTION") && table.contains("created by MaxMind"), "{table}");
    let settings = scene.run("check").await.text();
    assert!(settings.contains("license_key=…") && !settings.contains("s3cr3t"), "{settings}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_leaves_the_last_good_edition() {
    let scene = open(false);
    scene.update([whole(edition(5))], "now GeoLite2-City").await;
    let archive = archived(&edition(6));
    let large = vec![0; BYTES_MAX + 1];
    let endless =
        || Body::from_stream(stream::repeat(Ok::<_, std::convert::Infallible>(Bytes::from_static(&[0; 9_000]))));
    for (answer, says) in [
        (whole(archive[..archive.len() / 2].to_vec()), "the archive is broken"),
        (whole(b"<html>welcome</html>".to_vec()), "not a sound MMDB file"),
        (whole(edition(6)[..500].to_vec()), "not a sound MMDB file"),
        (whole(edition(4)), "older edition"),
        (whole(large.clone()), "100000 bytes of [geo] update_bytes_max"),
        (endless().into_response(), "100000 bytes of [geo] update_bytes_max"),
        (whole(gzipped(&large)), "100000 bytes of [geo] update_bytes_max"),
        (StatusCode::UNAUTHORIZED.into_response(), "check account_id and licence_key_file"),
        (StatusCode::NOT_FOUND.into_response(), "404"),
        (busy("3600"), "come back in 3600 s"),
    ] {
        scene.fail([answer], says).await;
    }
    // No answer at all; an answer without an end.
    scene.fail([], "sent nothing for too long").await;
    let started = Instant::now();
    scene.fail([dripping()], "update_timeout_ms").await;
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    scene.update([whole(edition(6))], "now GeoLite2-City").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_asked_too_often_is_left_alone_as_long_as_it_says() {
    let scene = open(false);
    let started = Instant::now();
    scene.update([busy("2"), whole(edition(1))], "now GeoLite2-City").await;
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(scene.stage.asked.lock().expect("a list").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_fetches_by_itself_and_swaps_in_what_it_fetched() {
    let (house, scene) = (house().await, open(false));
    fs::write(&scene.file, edition(1)).expect("a file");
    scene.prepare([whole(archived(&edition(2)))]);
    let log = scene.folder.path().join("node.log");
    let mut command = tokio::process::Command::new(node::find_program().expect("the program"));
    command.args(["--config", "ipseity.toml", "serve"]).current_dir(scene.folder.path()).kill_on_drop(true);
    command.env_clear().envs(house.env()).env_remove("IPSEITY__GEO__FILES");
    for (name, value) in
        [("EDGE__HTTP", "127.0.0.1:0"), ("OPS__LISTEN", "127.0.0.1:0"), ("GEO__UPDATE_INTERVAL_H", "1")]
    {
        command.env(format!("IPSEITY__{name}"), value);
    }
    let _node = command.stdin(Stdio::null()).stderr(fs::File::create(&log).expect("a log")).spawn().expect("a node");
    eventually("the new edition is swapped in", Duration::from_secs(30), async || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains("a geo file was swapped in"))
    })
    .await
    .unwrap_or_else(|error| panic!("{error}: {}", fs::read_to_string(&log).unwrap_or_default()));
    assert_eq!(fs::read(&scene.file).expect("a file"), edition(2));
    assert_eq!(scene.stage.asked.lock().expect("a list").len(), 1, "it is not due again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promised_checksum_must_hold() {
    let scene = open(true);
    let archive = archived(&edition(1));
    scene.update([whole(archive.clone()), checksum(&archive).into_response()], "now GeoLite2-City").await;
    for (sum, says) in [
        (checksum(b"another").into_response(), "SHA-256 is not the one"),
        ("welcome".into_response(), "does not begin with a SHA-256"),
        (StatusCode::NOT_FOUND.into_response(), "404"),
    ] {
        scene.fail([whole(archived(&edition(2))), sum], says).await;
    }
}
