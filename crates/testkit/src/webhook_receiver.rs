//! An HTTP server on a free port that receives webhooks, and answers as a test wants: immediately, late, wrongly or never.
//!
//! It runs on its own threads, because tests that share one have separate runtimes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::eventually;

const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request that gets no response stays open, unless its client closes it.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two bytes of a header that never ends.
const TRICKLE_INTERVAL: Duration = Duration::from_millis(50);

/// How the receiver answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverReply {
    /// With a status.
    Status(u16),
    /// With status 200, after a delay.
    Slow(Duration),
    /// With a redirect to this URL.
    Redirect(String),
    /// Never.
    Hang,
    /// Closes the connection.
    Close,
    /// With these bytes, and then closes the connection.
    Raw(&'static str),
    /// With status 200 and a body that never ends.
    EndlessBody,
    /// With a header that never ends, a byte at a time.
    Trickle,
}

impl ReceiverReply {
    /// Whether it accepts the request.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Status(200..300) | Self::Slow(_) | Self::EndlessBody)
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub struct ReceivedWebhook {
    /// The header `webhook-id`. Empty for Slack.
    pub id: String,
    /// The header `webhook-timestamp`.
    pub timestamp: String,
    /// The header `webhook-signature`.
    pub signature: String,
    /// The body as sent.
    pub body: String,
    /// The answer.
    pub reply: ReceiverReply,
}

impl ReceivedWebhook {
    /// The body, parsed.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

type ChooseReply = dyn Fn(usize) -> ReceiverReply + Send + Sync;

struct ReceiverState {
    received: Mutex<Vec<ReceivedWebhook>>,
    count: AtomicUsize,
    choose_reply: Box<ChooseReply>,
    is_stopped: AtomicBool,
}

impl ReceiverState {
    fn lock(&self) -> MutexGuard<'_, Vec<ReceivedWebhook>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running receiver; ends when dropped.
pub struct WebhookReceiver {
    address: SocketAddr,
    state: Arc<ReceiverState>,
}

impl WebhookReceiver {
    /// Starts a receiver on a free port of 127.0.0.1. The function gets the number of requests before this one.
    pub fn start(choose_reply: impl Fn(usize) -> ReceiverReply + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let state = ReceiverState {
            received: Mutex::default(),
            count: AtomicUsize::new(0),
            choose_reply: Box::new(choose_reply),
            is_stopped: AtomicBool::new(false),
        };
        let receiver = Self { address: listener.local_addr()?, state: Arc::new(state) };
        let state = Arc::clone(&receiver.state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.is_stopped.load(Ordering::Acquire) {
                    return;
                }
                let state = Arc::clone(&state);
                // A client that breaks off gets no answer, as with any server.
                thread::spawn(move || serve_connection(stream, &state));
            }
        });
        Ok(receiver)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Every request, in the order of arrival.
    #[must_use]
    pub fn received(&self) -> Vec<ReceivedWebhook> {
        self.state.lock().clone()
    }

    /// Waits until this many requests were accepted. Returns these, in the order of arrival.
    pub async fn wait_for(&self, count: usize) -> Result<Vec<ReceivedWebhook>> {
        let accepted =
            || self.received().into_iter().filter(|received| received.reply.is_success()).collect::<Vec<_>>();
        eventually(&format!("{count} webhooks"), ARRIVAL_TIMEOUT, async || accepted().len() >= count)
            .await
            .with_context(|| format!("received {:?}", self.received()))?;
        Ok(accepted())
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Release);
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.address));
    }
}

fn serve_connection(mut stream: TcpStream, state: &ReceiverState) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            head.push(line.to_owned());
        }
        let header = |wanted: &str| {
            let fields = head.iter().filter_map(|line| line.split_once(':'));
            let found = fields.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let reply = (state.choose_reply)(state.count.fetch_add(1, Ordering::Relaxed));
        state.lock().push(ReceivedWebhook {
            id: header("webhook-id"),
            timestamp: header("webhook-timestamp"),
            signature: header("webhook-signature"),
            body: String::from_utf8_lossy(&body).into_owned(),
            reply: reply.clone(),
        });
        let (status, location) = match reply {
            ReceiverReply::Status(status) => (status, String::new()),
            ReceiverReply::Slow(delay) => {
                thread::sleep(delay);
                (200, String::new())
            }
            ReceiverReply::Redirect(url) => (302, format!("location: {url}\r\n")),
            ReceiverReply::Hang => {
                stream.set_read_timeout(Some(HANG_TIMEOUT))?;
                return reader.read(&mut [0]).map(drop);
            }
            ReceiverReply::Close => return Ok(()),
            ReceiverReply::Raw(bytes) => return stream.write_all(bytes.as_bytes()),
            ReceiverReply::EndlessBody => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
                loop {
                    stream.write_all(&[b'x'; 1024])?;
                }
            }
            ReceiverReply::Trickle => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nx-endless: ")?;
                loop {
                    stream.write_all(b"x")?;
                    thread::sleep(TRICKLE_INTERVAL);
                }
            }
        };
        stream.write_all(format!("HTTP/1.1 {status} Status\r\n{location}content-length: 0\r\n\r\n").as_bytes())?;
    }
}
