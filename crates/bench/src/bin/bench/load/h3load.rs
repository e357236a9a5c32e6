//! An HTTP/3 load generator that runs as a separate process, as fast as possible, and prints its result like wrk's
//! script.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use http::Request;
use ipseity_testkit::client::quic::{Http3TestOptions, client_endpoint};

use super::result::{BenchLoadResult, percentile};

const URI: &str = "https://localhost/api/v1/ip";
const CONNECTIONS: usize = 16;
const STREAMS: usize = 8;

/// Callers that take turns.
struct CallerRotation {
    callers: Vec<(String, String)>,
    next: AtomicUsize,
}

impl CallerRotation {
    fn read(file: &str) -> Result<Self> {
        let text = std::fs::read_to_string(file)?;
        let caller =
            |line: &str| line.split_once(' ').map(|(key, address)| (format!("Bearer {key}"), address.to_owned()));
        let callers: Vec<_> = text.lines().filter_map(caller).collect();
        let next = AtomicUsize::new(fastrand::usize(0..callers.len()));
        Ok(Self { callers, next })
    }

    fn request(&self) -> Result<Request<()>> {
        let (bearer, address) = &self.callers[self.next.fetch_add(1, Ordering::Relaxed) % self.callers.len()];
        Ok(Request::get(URI).header("authorization", bearer).header("x-forwarded-for", address).body(())?)
    }
}

#[derive(Default)]
struct StreamResults {
    latencies_us: Vec<u32>,
    refused: u64,
    failed: u64,
}

pub(crate) async fn run_h3load(address: &str, ca_file: &str, pool: &str, seconds: &str) -> Result<()> {
    let (address, pool): (SocketAddr, _) = (address.parse()?, Arc::new(CallerRotation::read(pool)?));
    let mut streams = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let endpoint = client_endpoint(&Http3TestOptions::localhost(address, Path::new(ca_file)))?;
        let connection = h3_quinn::Connection::new(endpoint.connect(address, "localhost")?.await?);
        let (mut driver, send) = h3::client::new(connection).await?;
        connections.push(tokio::spawn(async move { driver.wait_idle().await }));
        streams.extend((0..STREAMS).map(|_| send.clone()));
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds.parse().context("SECONDS must be a number")?);
    let tasks: Vec<_> =
        streams.into_iter().map(|send| tokio::spawn(send_until(send, Arc::clone(&pool), end))).collect();
    let mut total = StreamResults::default();
    for stream in tasks {
        let results = stream.await??;
        total.latencies_us.extend(results.latencies_us);
        total.failed += results.failed;
        total.refused += results.refused;
    }
    print_result(total, begin.elapsed())
}

/// Sends requests one after the other until the end.
async fn send_until(
    mut send: SendRequest<OpenStreams, Bytes>,
    callers: Arc<CallerRotation>,
    end: Instant,
) -> Result<StreamResults> {
    let mut results = StreamResults::default();
    while Instant::now() < end {
        let sent = Instant::now();
        match send_request(&mut send, callers.request()?).await {
            Ok(status) => {
                results.refused += u64::from(status >= 400);
                results.latencies_us.push(u32::try_from(sent.elapsed().as_micros())?);
            }
            Err(_broken) => results.failed += 1,
        }
    }
    Ok(results)
}

async fn send_request(send: &mut SendRequest<OpenStreams, Bytes>, request: Request<()>) -> Result<u16> {
    let mut stream = send.send_request(request).await?;
    stream.finish().await?;
    let status = stream.recv_response().await?.status().as_u16();
    while let Some(mut data) = stream.recv_data().await? {
        data.advance(data.remaining());
    }
    Ok(status)
}

#[expect(clippy::print_stdout, reason = "the result is printed")]
fn print_result(mut results: StreamResults, took: Duration) -> Result<()> {
    results.latencies_us.sort_unstable();
    let result = BenchLoadResult {
        requests: results.latencies_us.len() as u64,
        seconds: took.as_secs_f64(),
        p50_us: percentile(&results.latencies_us, 50),
        p99_us: percentile(&results.latencies_us, 99),
        refused: results.refused,
        failed: results.failed,
    };
    println!("{}", serde_json::to_string(&result)?);
    Ok(())
}
