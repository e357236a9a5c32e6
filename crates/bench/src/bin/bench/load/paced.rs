//! Plain HTTP/1.1 at a constant rate, independent of the responses; or one request per caller, as fast as possible.
//!
//! Uses blocking threads, because their sleep is exact to about 50 µs, and the timer of a runtime only to a
//! millisecond.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::result::{BenchLoadResult, percentile};
use crate::caller_pool::CallerPool;

pub(crate) const CONNECTIONS: usize = 64;
const WARM_UP_ATTEMPTS: usize = 5;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of a load.
#[derive(Clone)]
pub(crate) struct PacedLoad {
    /// Servers that share the load.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) path: &'static str,
    pub(crate) pool: Arc<CallerPool>,
    pub(crate) requests: usize,
    /// Requests per second; as fast as possible if absent.
    pub(crate) rate: Option<f64>,
    /// Each waits for its response before its next request.
    pub(crate) connections: usize,
}

impl PacedLoad {
    /// One request per caller.
    pub(crate) fn each_caller_once(address: SocketAddr, pool: &CallerPool) -> Self {
        let (requests, pool) = (pool.callers.len(), Arc::new(pool.clone()));
        Self {
            addresses: vec![address],
            path: super::LOOKUP_PATH,
            pool,
            requests,
            rate: None,
            connections: CONNECTIONS,
        }
    }

    /// Makes one successful request per caller, so that Redis has its record. Retries on a busy machine.
    pub(crate) async fn warm_up(address: SocketAddr, pool: &CallerPool) -> Result<()> {
        for _ in 0..WARM_UP_ATTEMPTS {
            if Self::each_caller_once(address, pool).run().await?.refused == 0 {
                return Ok(());
            }
        }
        bail!("some keys are rejected repeatedly")
    }

    /// Sends all requests. Latency counts from when a request was due, not from when it was sent.
    pub(crate) async fn run(self) -> Result<BenchLoadResult> {
        tokio::task::spawn_blocking(move || self.run_blocking()).await?
    }

    fn run_blocking(self) -> Result<BenchLoadResult> {
        // Later than the start of the last thread.
        let begin = Instant::now() + Duration::from_millis(100);
        let offset = fastrand::usize(0..self.pool.callers.len());
        let (mut latencies_us, mut refused) = (Vec::with_capacity(self.requests), 0);
        let load = &self;
        let results = thread::scope(|scope| {
            let run_connection = |number| scope.spawn(move || PacedConnection::open(load, number)?.run(begin, offset));
            let threads: Vec<_> = (0..load.connections).map(run_connection).collect();
            let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
            ended.collect::<Result<Vec<_>>>()
        })?;
        for (times, refusals) in results {
            latencies_us.extend(times);
            refused += refusals;
        }
        let seconds = begin.elapsed().as_secs_f64();
        latencies_us.sort_unstable();
        let (p50_us, p99_us) = (percentile(&latencies_us, 50), percentile(&latencies_us, 99));
        Ok(BenchLoadResult { requests: latencies_us.len() as u64, seconds, p50_us, p99_us, refused, failed: 0 })
    }
}

/// One connection, which sends every n-th request.
struct PacedConnection<'a> {
    load: &'a PacedLoad,
    number: usize,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl<'a> PacedConnection<'a> {
    fn open(load: &'a PacedLoad, number: usize) -> Result<Self> {
        let stream = TcpStream::connect(load.addresses[number % load.addresses.len()])?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(Self { load, number, stream, buffer: Vec::with_capacity(8192) })
    }

    fn run(mut self, begin: Instant, offset: usize) -> Result<(Vec<u32>, u64)> {
        let (mut latencies_us, mut refused) = (Vec::new(), 0);
        for request_number in (self.number..self.load.requests).step_by(self.load.connections) {
            let due = match self.load.rate {
                Some(rate) => begin + Duration::from_secs_f64(request_number as f64 / rate),
                None => Instant::now(),
            };
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let callers = &self.load.pool.callers;
            let (key, address) = &callers[(offset + request_number) % callers.len()];
            let credential = if key == "-" { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
            let origin = self.load.pool.origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            let path = self.load.path;
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\n{credential}{origin}X-Forwarded-For: {address}\r\n\r\n"
            );
            self.stream.write_all(request.as_bytes())?;
            refused += u64::from(self.read_status()? >= 400);
            latencies_us.push(u32::try_from(due.elapsed().as_micros())?);
        }
        Ok((latencies_us, refused))
    }

    /// Reads a complete response.
    fn read_status(&mut self) -> Result<u16> {
        self.buffer.clear();
        let mut chunk = [0; 8192];
        loop {
            let count = self.stream.read(&mut chunk).context("failed to read a response")?;
            ensure!(count > 0, "the connection was closed");
            self.buffer.extend_from_slice(&chunk[..count]);
            let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end])?.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.context("a response without a length")?.parse()?;
            if self.buffer.len() >= end + 4 + length {
                return Ok(head.get(9..12).context("a response without a status")?.parse()?);
            }
        }
    }
}
