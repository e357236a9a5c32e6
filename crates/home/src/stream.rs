//! Lines over an HTTP/2 stream.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use h2::{RecvStream, SendStream};
use tokio::sync::mpsc;

/// Maximum length of a line. The longest is a batch with the largest burst limit's requests, about 160 kB.
const LINE_BYTES_MAX: usize = 1 << 18;
/// Lines that are sent together, if they are ready.
const LINES_PER_WRITE_MAX: usize = 256;
/// Bytes that a peer may send before it has to wait.
pub(crate) const WINDOW_BYTES: u32 = 1 << 20;

/// Sends lines until the queue or the stream ends. It waits if the peer does not read.
pub(crate) async fn send_lines(mut stream: SendStream<Bytes>, mut queue: mpsc::Receiver<Vec<u8>>) {
    let mut lines = Vec::new();
    while queue.recv_many(&mut lines, LINES_PER_WRITE_MAX).await > 0 {
        let mut data = Bytes::from(lines.concat());
        lines.clear();
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            let Some(Ok(capacity)) = poll_fn(|context| stream.poll_capacity(context)).await else { return };
            if stream.send_data(data.split_to(capacity.min(data.len())), false).is_err() {
                return;
            }
        }
    }
    let _ = stream.send_data(Bytes::new(), true);
}

/// Reads lines.
pub(crate) struct LineReader {
    stream: RecvStream,
    buffered: BytesMut,
}

impl LineReader {
    pub(crate) fn new(stream: RecvStream) -> Self {
        Self { stream, buffered: BytesMut::new() }
    }

    /// The next line; `None` at the end of the stream, or if a line is too long.
    pub(crate) async fn next_line(&mut self) -> Option<Bytes> {
        let mut searched = 0;
        loop {
            if let Some(length) = self.buffered[searched..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.buffered.split_to(searched + length + 1);
                line.truncate(line.len() - 1);
                return Some(line.freeze());
            }
            searched = self.buffered.len();
            if searched > LINE_BYTES_MAX {
                return None;
            }
            let data = self.stream.data().await?.ok()?;
            let _ = self.stream.flow_control().release_capacity(data.len());
            self.buffered.extend_from_slice(&data);
        }
    }
}

/// A message as a line.
pub(crate) fn to_line(message: &impl serde::Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}
