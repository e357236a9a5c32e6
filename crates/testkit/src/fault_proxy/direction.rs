//! One direction of a proxied connection.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::fault_proxy::{FaultConfig, FaultProxyShared, FaultProxyState};

const CHUNK_BYTES_MAX: usize = 1 << 14;
/// Chunks in flight in one direction of a connection. More wait in the kernel.
const QUEUED_CHUNKS_MAX: usize = 1 << 10;
/// Writes per second of a throttled chunk.
const WRITES_PER_SECOND: u32 = 20;

/// A chunk, when it was read, and its share of the jitter. Empty at the end of the stream.
struct QueuedChunk {
    bytes: Vec<u8>,
    read_at: Instant,
    jitter_fraction: f64,
}

/// One direction of a connection.
pub(super) struct ProxyDirection<'a> {
    pub(super) is_reply: bool,
    pub(super) opened_at: std::time::Instant,
    pub(super) shared: &'a FaultProxyShared,
    pub(super) has_lost_bytes: &'a AtomicBool,
    pub(super) state: watch::Receiver<FaultProxyState>,
}

impl ProxyDirection<'_> {
    /// Forwards until the stream ends. Chunks wait in a queue, so that a delay does not limit throughput.
    pub(super) async fn forward(self, mut from: ReadHalf<'_>, to: WriteHalf<'_>) -> io::Result<()> {
        let (queue, chunks) = mpsc::channel(QUEUED_CHUNKS_MAX);
        let shared = self.shared;
        let read = async move {
            loop {
                let mut bytes = vec![0; CHUNK_BYTES_MAX];
                // A half-open link swallows the end of a stream too, even an error.
                let length = from.read(&mut bytes).await.unwrap_or(0);
                bytes.truncate(length);
                let chunk = QueuedChunk { bytes, read_at: Instant::now(), jitter_fraction: shared.random_fraction() };
                if queue.send(chunk).await.is_err() || length == 0 {
                    return Ok(());
                }
            }
        };
        tokio::try_join!(read, self.deliver(chunks, to)).map(|_| ())
    }

    async fn deliver(mut self, mut chunks: mpsc::Receiver<QueuedChunk>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let mut free_at = Instant::now();
        while let Some(chunk) = chunks.recv().await {
            let faults = self.wait_until_due(&chunk).await;
            if faults.half_open {
                self.has_lost_bytes.store(true, Ordering::Relaxed);
                continue;
            }
            if chunk.bytes.is_empty() {
                return to.shutdown().await;
            }
            if self.is_reply && faults.reply_drop_rate > 0.0 && self.shared.random_fraction() < faults.reply_drop_rate {
                self.shared.replies_dropped.fetch_add(1, Ordering::Relaxed);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            match faults.bytes_per_second {
                None => to.write_all(&chunk.bytes).await?,
                Some(rate) => write_throttled(&mut to, &chunk.bytes, rate, &mut free_at).await?,
            }
        }
        // The end was swallowed too. The connection stays open until the faults change.
        std::future::pending().await
    }

    /// Waits for the configured delay, which may change meanwhile.
    async fn wait_until_due(&mut self, chunk: &QueuedChunk) -> FaultConfig {
        loop {
            let faults = self.state.borrow_and_update().faults;
            let is_held = if self.is_reply {
                faults.hold_replies
            } else {
                faults.hold_requests_before.is_some_and(|before| self.opened_at < before)
            };
            if is_held {
                if self.state.changed().await.is_err() {
                    return faults;
                }
                continue;
            }
            let due = chunk.read_at + faults.delay + faults.jitter.mul_f64(chunk.jitter_fraction);
            if due <= Instant::now() {
                return faults;
            }
            tokio::select! {
                () = sleep_until(due) => {}
                changed = self.state.changed() => if changed.is_err() { return faults },
            }
        }
    }
}

/// Writes at a limited rate; `free_at` is when the previous bytes have passed.
async fn write_throttled(
    to: &mut WriteHalf<'_>,
    bytes: &[u8],
    rate: NonZeroU32,
    free_at: &mut Instant,
) -> io::Result<()> {
    for part in bytes.chunks((rate.get() / WRITES_PER_SECOND).max(1) as usize) {
        *free_at = (*free_at).max(Instant::now()) + Duration::from_secs(part.len() as u64) / rate.get();
        sleep_until(*free_at).await;
        to.write_all(part).await?;
    }
    Ok(())
}
