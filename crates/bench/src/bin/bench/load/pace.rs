//! Clear HTTP/1.1 at a constant rate, whether it is answered or not; or each caller of a crowd once, as fast as that goes.
//!
//! Threads that block, not tasks: their sleep is exact to some 50 µs, a runtime's timer to a millisecond.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{Ran, percentile};
use crate::crowd::Crowd;

const CONNECTIONS: usize = 64;
const MEETINGS_MAX: usize = 5;
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// What is asked, of whom, and how often.
#[derive(Clone)]
pub(crate) struct Pace {
    /// Servers that share the load.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) path: &'static str,
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) requests: usize,
    /// Requests a second; as fast as they are answered if absent.
    pub(crate) rate: Option<f64>,
}

impl Pace {
    /// Each caller once.
    pub(crate) fn once(address: SocketAddr, crowd: &Crowd) -> Self {
        let (requests, crowd) = (crowd.callers.len(), Arc::new(crowd.clone()));
        Self { addresses: vec![address], path: super::PATH, crowd, requests, rate: None }
    }

    /// Has each caller answered once, so that the counter store knows its key; on a busy machine some may have to ask again.
    pub(crate) async fn meet(address: SocketAddr, crowd: &Crowd) -> Result<()> {
        for _ in 0..MEETINGS_MAX {
            if Self::once(address, crowd).run().await?.refused == 0 {
                return Ok(());
            }
        }
        bail!("some keys are refused again and again")
    }

    /// Asks to the end. Time is taken from the moment when a request was due, not from when it could be sent.
    pub(crate) async fn run(self) -> Result<Ran> {
        tokio::task::spawn_blocking(move || self.run_blocking()).await?
    }

    fn run_blocking(self) -> Result<Ran> {
        // Later than the last thread is ready.
        let begin = Instant::now() + Duration::from_millis(100);
        let offset = fastrand::usize(0..self.crowd.callers.len());
        let (mut took_us, mut refused) = (Vec::with_capacity(self.requests), 0);
        let pace = &self;
        let seen = thread::scope(|scope| {
            let line = |number| scope.spawn(move || Line::open(pace, number)?.run(begin, offset));
            let threads: Vec<_> = (0..CONNECTIONS).map(line).collect();
            let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
            ended.collect::<Result<Vec<_>>>()
        })?;
        for (times, refusals) in seen {
            took_us.extend(times);
            refused += refusals;
        }
        let seconds = begin.elapsed().as_secs_f64();
        took_us.sort_unstable();
        let (p50_us, p99_us) = (percentile(&took_us, 50), percentile(&took_us, 99));
        Ok(Ran { requests: took_us.len() as u64, seconds, p50_us, p99_us, refused, broken: 0 })
    }
}

/// One connection, which sends every so many-th request.
struct Line<'a> {
    pace: &'a Pace,
    number: usize,
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl<'a> Line<'a> {
    fn open(pace: &'a Pace, number: usize) -> Result<Self> {
        let stream = TcpStream::connect(pace.addresses[number % pace.addresses.len()])?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok(Self { pace, number, stream, buffer: Vec::with_capacity(8192) })
    }

    fn run(mut self, begin: Instant, offset: usize) -> Result<(Vec<u32>, u64)> {
        let (mut took_us, mut refused) = (Vec::new(), 0);
        for turn in (self.number..self.pace.requests).step_by(CONNECTIONS) {
            let due = match self.pace.rate {
                Some(rate) => begin + Duration::from_secs_f64(turn as f64 / rate),
                None => Instant::now(),
            };
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let callers = &self.pace.crowd.callers;
            let (key, address) = &callers[(offset + turn) % callers.len()];
            let credential = if key == "-" { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
            let path = self.pace.path;
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{credential}X-Forwarded-For: {address}\r\n\r\n");
            self.stream.write_all(request.as_bytes())?;
            refused += u64::from(self.status()? >= 400);
            took_us.push(u32::try_from(due.elapsed().as_micros())?);
        }
        Ok((took_us, refused))
    }

    /// Reads an answer to its end.
    fn status(&mut self) -> Result<u16> {
        self.buffer.clear();
        let mut chunk = [0; 8192];
        loop {
            let count = self.stream.read(&mut chunk).context("an answer")?;
            ensure!(count > 0, "the connection was closed");
            self.buffer.extend_from_slice(&chunk[..count]);
            let Some(end) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&self.buffer[..end])?.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.context("an answer without its length")?.parse()?;
            if self.buffer.len() >= end + 4 + length {
                return Ok(head.get(9..12).context("an answer without a status")?.parse()?);
            }
        }
    }
}
