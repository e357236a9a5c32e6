//! Asks over HTTP/3 as fast as it is answered, and prints what it saw as wrk's script does: a load generator in a process of its own.

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
use testkit::quic::{QuicOptions, endpoint};

use super::{Ran, percentile};

const URI: &str = "https://localhost/api/v1/ip";
const CONNECTIONS: usize = 16;
const STREAMS: usize = 8;

/// Who asks, in turn.
struct Callers {
    callers: Vec<(String, String)>,
    next: AtomicUsize,
}

impl Callers {
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
struct Seen {
    took_us: Vec<u32>,
    refused: u64,
    broken: u64,
}

pub(crate) async fn run(address: &str, authority: &str, crowd: &str, seconds: &str) -> Result<()> {
    let (address, crowd): (SocketAddr, _) = (address.parse()?, Arc::new(Callers::read(crowd)?));
    let mut streams = Vec::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let endpoint = endpoint(&QuicOptions::to(address, Path::new(authority)))?;
        let connection = h3_quinn::Connection::new(endpoint.connect(address, "localhost")?.await?);
        let (mut driver, send) = h3::client::new(connection).await?;
        connections.push(tokio::spawn(async move { driver.wait_idle().await }));
        streams.extend((0..STREAMS).map(|_| send.clone()));
    }
    let begin = Instant::now();
    let end = begin + Duration::from_secs_f64(seconds.parse().context("SECONDS is a number")?);
    let asking: Vec<_> = streams.into_iter().map(|send| tokio::spawn(ask(send, Arc::clone(&crowd), end))).collect();
    let mut all = Seen::default();
    for stream in asking {
        let seen = stream.await??;
        all.took_us.extend(seen.took_us);
        all.broken += seen.broken;
        all.refused += seen.refused;
    }
    tell(all, begin.elapsed())
}

/// Asks on one stream after the other until the end.
async fn ask(mut send: SendRequest<OpenStreams, Bytes>, crowd: Arc<Callers>, end: Instant) -> Result<Seen> {
    let mut seen = Seen::default();
    while Instant::now() < end {
        let sent = Instant::now();
        match exchange(&mut send, crowd.request()?).await {
            Ok(status) => {
                seen.refused += u64::from(status >= 400);
                seen.took_us.push(u32::try_from(sent.elapsed().as_micros())?);
            }
            Err(_broken) => seen.broken += 1,
        }
    }
    Ok(seen)
}

async fn exchange(send: &mut SendRequest<OpenStreams, Bytes>, request: Request<()>) -> Result<u16> {
    let mut stream = send.send_request(request).await?;
    stream.finish().await?;
    let status = stream.recv_response().await?.status().as_u16();
    while let Some(mut data) = stream.recv_data().await? {
        data.advance(data.remaining());
    }
    Ok(status)
}

#[expect(clippy::print_stdout, reason = "what it saw is printed")]
fn tell(mut seen: Seen, took: Duration) -> Result<()> {
    seen.took_us.sort_unstable();
    let ran = Ran {
        requests: seen.took_us.len() as u64,
        seconds: took.as_secs_f64(),
        p50_us: percentile(&seen.took_us, 50),
        p99_us: percentile(&seen.took_us, 99),
        refused: seen.refused,
        broken: seen.broken,
    };
    println!("{}", serde_json::to_string(&ran)?);
    Ok(())
}
