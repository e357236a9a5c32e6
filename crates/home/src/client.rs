//! The side of the remote node: a connection to a home node, and requests over it.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::SendStream;
use http::{Method, Request as HttpRequest, StatusCode};
use ipseity_domain::KeyId;
use ipseity_ledger::{DataSet, LedgerTime, Owner, RemoteSlot, SentCharge};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, sleep, timeout};
use tokio_rustls::TlsConnector;
use url::Url;

use crate::message::{NOTICE, Reply, ReplyLine, Request};
use crate::session::SESSION_PATH;
use crate::stream::{LineReader, WINDOW_BYTES, send_lines, to_line};
use crate::tls::{ClientIdentity, TlsFileError, client_config};

/// Maximum time to open a connection and its stream.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// Requests that wait to be written. Each request of a client is one of them at most.
const QUEUE_LINES_MAX: usize = 16_384;

/// Maximum age of the last ping that home has confirmed, for this node to admit requests before home has charged them.
const CHANGES_AGE_MAX_MS: u64 = 850;
/// How long a slot is used after it was renewed. Home keeps it for longer.
const SLOT_VALID_MS: u64 = 10_000;
const SLOT_RENEWAL: Duration = Duration::from_secs(4);
/// Home processes a claim of a site once in a second.
const SLOT_RETRY: Duration = Duration::from_millis(1_100);
/// Time between checks whether the first ping is answered.
const CONNECTED_POLL: Duration = Duration::from_millis(10);
/// The start of a line that is not a reply.
const NOTICE_START: &[u8] = b"[0,";
/// Pings that are remembered.
const PINGS_MAX: usize = 64;

/// How to reach home.
#[derive(Clone, Debug)]
pub struct HomeClientOptions {
    /// URLs of home nodes, such as `https://home.example:9443`.
    pub urls: Vec<Url>,
    /// Certificate and private key of this node.
    pub identity: ClientIdentity,
    /// Certificates that home must present or that issued its certificate (PEM).
    pub ca_file: PathBuf,
    /// Time limit of a request.
    pub timeout: Duration,
    /// Time between pings.
    pub ping_interval: Duration,
    /// Whether this node admits requests before home has charged them.
    pub is_optimistic: bool,
    /// Maximum time without a line from home. Then the connection is closed.
    pub silence_timeout: Duration,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no connection to home. The request was not sent.
    #[error("no home node answers (check [home] urls and the certificates)")]
    NotSent,
    /// Home did not answer in time. The request may have been processed.
    #[error("home did not answer within [home] timeout_ms")]
    NoReply,
}

/// A connection to home that is opened again when it is lost.
pub struct HomeClient {
    options: HomeClientOptions,
    tls: TlsConnector,
    owner: Owner,
    session: ArcSwapOption<Session>,
    data_sets: Mutex<DataSet>,
    /// What identified the database of home when it last replied to a ping.
    database: Mutex<Option<String>>,
    node_id: String,
    slot: Mutex<Option<ClaimedSlot>>,
    /// Until then, this node may admit requests before home has charged them.
    fresh_until: AtomicU64,
}

/// The slot of this process.
#[derive(Clone, Copy)]
struct ClaimedSlot {
    slot: RemoteSlot,
    valid_until: u64,
}

/// What home tells about keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyNotice {
    /// The node may no longer admit requests of this key before they are charged.
    Closed(KeyId),
    /// Nor those of any key.
    AllClosed,
    /// The database of home may have lost commits that this node knows.
    DatabaseChanged,
}

impl HomeClient {
    /// Creates a client. It connects when [`run`](Self::run) does.
    ///
    /// # Errors
    /// If a certificate or the private key cannot be used.
    pub fn new(options: HomeClientOptions) -> Result<Self, TlsFileError> {
        Ok(Self {
            tls: TlsConnector::from(client_config(&options.identity, &options.ca_file)?),
            options,
            owner: Owner::home(),
            session: ArcSwapOption::empty(),
            data_sets: Mutex::new(DataSet::NONE),
            database: Mutex::default(),
            node_id: format!("{:016x}", fastrand::u64(..)),
            slot: Mutex::default(),
            fresh_until: AtomicU64::new(0),
        })
    }

    /// Home: its clock, and whether it decides on requests.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Identifies this process.
    #[must_use]
    pub fn node_id(&self) -> &str {
        &self.node_id
    }

    /// Whether there is a connection to home.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.session.load().is_some()
    }

    /// Whether this node admits requests before home has charged them.
    #[must_use]
    pub const fn is_optimistic(&self) -> bool {
        self.options.is_optimistic
    }

    /// The slot of this process, if it has one.
    #[must_use]
    pub fn slot(&self) -> Option<RemoteSlot> {
        let claimed = (*lock(&self.slot))?;
        (uptime_ms() < claimed.valid_until).then_some(claimed.slot)
    }

    /// Whether this node has a slot, and home has reported all changes until less than a second ago.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        uptime_ms() < self.fresh_until.load(Ordering::Acquire) && self.slot().is_some()
    }

    /// A charge or batch that is being sent, for a request that arrived at this time.
    #[must_use]
    pub fn sent_charge(&self, arrival: LedgerTime) -> SentCharge {
        let at = self.owner.now();
        // A reply can lower the estimate of the clock between the arrival and now.
        SentCharge { at, arrival: arrival.min(at), data_set: *lock(&self.data_sets) }
    }

    /// How long a request waits for its reply.
    #[must_use]
    pub const fn timeout(&self) -> Duration {
        self.options.timeout
    }

    /// Sends a request at this time, by home's clock, and waits for the reply.
    ///
    /// # Errors
    /// If there is no connection or no reply.
    pub async fn call(&self, request: Request, sent_at: LedgerTime) -> Result<Reply, CallError> {
        let session = self.session.load_full().ok_or(CallError::NotSent)?;
        self.call_on(&session, request, sent_at).await
    }

    async fn call_on(&self, session: &Session, request: Request, sent_at: LedgerTime) -> Result<Reply, CallError> {
        let number = session.next_number.fetch_add(1, Ordering::Relaxed);
        if matches!(request, Request::Ping) {
            let mut pings = lock(&session.pings);
            pings.truncate(PINGS_MAX - 1);
            pings.push_front((number, uptime_ms()));
        }
        let (reply_to, reply) = oneshot::channel();
        lock(&session.waiting).insert(number, Waiting { sent: Instant::now(), reply_to });
        let _waiting = RemoveWaiting { session, number };
        if session.queue.try_send(to_line(&(number, sent_at.0, request))).is_err() {
            return Err(CallError::NotSent);
        }
        match timeout(self.options.timeout, reply).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(_)) | Err(_) => Err(CallError::NoReply),
        }
    }

    /// Whether there is a connection to home, and home decides on requests.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_connected() && !self.owner.is_unavailable()
    }

    /// Connects to each home node once. Returns the time that it took, or why it failed.
    pub async fn check_all(&self) -> Vec<(Url, Result<Duration, String>)> {
        let mut checks = Vec::new();
        for url in &self.options.urls {
            let start = Instant::now();
            let connected = self.connect_in_time(url).await.map(|_connection| start.elapsed());
            checks.push((url.clone(), connected));
        }
        checks
    }

    /// Keeps a connection open, to one home node after the other. Notices are in the order in which home sent them.
    pub async fn run(&self, on_notice: impl Fn(KeyNotice)) {
        let mut is_failure_logged = false;
        for url in self.options.urls.iter().cycle() {
            match self.connect_in_time(url).await {
                Ok(connection) => {
                    is_failure_logged = false;
                    tracing::info!(home = %url, "connected to home");
                    let reason = self.use_connection(connection, &on_notice).await;
                    self.owner.mark_unavailable();
                    on_notice(KeyNotice::AllClosed);
                    tracing::warn!(home = %url, reason, "lost the connection to home");
                }
                Err(error) if !is_failure_logged => {
                    is_failure_logged = true;
                    tracing::warn!(home = %url, error, "failed to connect to home");
                }
                Err(error) => tracing::debug!(home = %url, error, "failed to connect to home"),
            }
            sleep(RECONNECT_DELAY).await;
        }
    }

    async fn connect_in_time(&self, url: &Url) -> Result<OpenConnection, String> {
        timeout(CONNECT_TIMEOUT, self.connect(url)).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
    }

    async fn connect(&self, url: &Url) -> Result<OpenConnection, String> {
        let host = url.host_str().ok_or("the URL has no host")?;
        let port = url.port_or_known_default().ok_or("the URL has no port")?;
        let bare_host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let socket = TcpStream::connect((&*bare_host, port)).await.map_err(|error| error.to_string())?;
        let _ = socket.set_nodelay(true);
        let server_name = ServerName::try_from(bare_host).map_err(|error| error.to_string())?;
        let tls = self.tls.connect(server_name, socket).await.map_err(|error| error.to_string())?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES).enable_push(false);
        let (requests, connection) = builder.handshake::<_, Bytes>(tls).await.map_err(|error| error.to_string())?;
        let mut request = HttpRequest::new(());
        *request.method_mut() = Method::POST;
        let uri = format!("https://{host}:{port}{SESSION_PATH}");
        *request.uri_mut() = uri.parse().map_err(|_| "the URL is invalid")?;
        let driver = AbortOnDrop(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let mut requests = requests.ready().await.map_err(|error| error.to_string())?;
        let (response, outgoing) = requests.send_request(request, false).map_err(|error| error.to_string())?;
        let response = response.await.map_err(|error| error.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("unexpected status {}", response.status()));
        }
        let incoming = LineReader::new(response.into_body());
        Ok(OpenConnection { incoming, outgoing, _driver: driver })
    }

    /// Uses a connection until it is lost or silent. Returns the reason.
    async fn use_connection(&self, connection: OpenConnection, on_notice: &impl Fn(KeyNotice)) -> &'static str {
        let OpenConnection { incoming, outgoing, _driver } = connection;
        let (queue, lines) = mpsc::channel(QUEUE_LINES_MAX);
        let session = Arc::new(Session {
            queue,
            waiting: Mutex::default(),
            next_number: AtomicU64::new(1),
            heard_at: Mutex::new(Instant::now()),
            pings: Mutex::default(),
        });
        let reason = tokio::select! {
            () = send_lines(outgoing, lines) => "connection closed",
            reason = self.receive_replies(&session, incoming, on_notice) => reason,
            reason = self.ping(&session, on_notice) => reason,
            () = self.renew_slot(&session, on_notice), if self.options.is_optimistic => "connection closed",
        };
        self.session.store(None);
        self.fresh_until.store(0, Ordering::Release);
        // Their callers do not wait any longer.
        lock(&session.waiting).clear();
        reason
    }

    async fn receive_replies(
        &self,
        session: &Session,
        mut incoming: LineReader,
        on_notice: &impl Fn(KeyNotice),
    ) -> &'static str {
        while let Some(line) = incoming.next_line().await {
            let received = Instant::now();
            let Ok((number, now, reply)) = serde_json::from_slice::<ReplyLine>(&line) else {
                if line.starts_with(NOTICE_START) {
                    // Of a newer home. It could be about any key.
                    on_notice(KeyNotice::AllClosed);
                    continue;
                }
                return "unknown reply";
            };
            if number == NOTICE {
                self.apply_notice(session, reply, on_notice);
                continue;
            }
            // Not for notices: home sends them even if no request reaches it.
            *lock(&session.heard_at) = received;
            let Some(waiting) = lock(&session.waiting).remove(&number) else { continue };
            if let Some(now) = now {
                self.owner.sync_clock(LedgerTime(now), waiting.sent, received);
            }
            // If the receiver is gone, its request has timed out.
            let _ = waiting.reply_to.send(reply);
        }
        "connection closed"
    }

    fn apply_notice(&self, session: &Session, notice: Reply, on_notice: &impl Fn(KeyNotice)) {
        if let Reply::KeyClosed(key) = notice {
            // A newer home may have other ids, which could be of any key.
            on_notice(KeyId::parse(&key).map_or(KeyNotice::AllClosed, KeyNotice::Closed));
        } else if let Reply::ChangesComplete(ping) = notice {
            if let Some((_, sent)) = lock(&session.pings).iter().find(|(number, _)| *number == ping) {
                self.fresh_until.fetch_max(sent + CHANGES_AGE_MAX_MS, Ordering::AcqRel);
            }
        } else {
            on_notice(KeyNotice::AllClosed);
        }
    }

    /// Pings home. The first reply makes the session usable.
    async fn ping(&self, session: &Arc<Session>, on_notice: &impl Fn(KeyNotice)) -> &'static str {
        let mut interval = tokio::time::interval(self.options.ping_interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The next ping does not wait for the reply to the last, which may be far away.
        let mut pings = FuturesUnordered::new();
        loop {
            tokio::select! {
                _ = interval.tick() => {
                    if lock(&session.heard_at).elapsed() > self.options.silence_timeout {
                        return "home is silent";
                    }
                    pings.push(self.call_on(session, Request::Ping, self.owner.now()));
                }
                Some(reply) = pings.next() => {
                    let Ok(Reply::Pong(pong)) = reply else { continue };
                    let (data_sets, database) = pong.parse();
                    *lock(&self.data_sets) = data_sets;
                    if let Some(database) = database
                        && lock(&self.database).replace(database.to_owned()).as_deref() != Some(database)
                    {
                        on_notice(KeyNotice::DatabaseChanged);
                    }
                    if !self.is_connected() {
                        // Pending charges are reconciled before home decides again.
                        self.owner.mark_unavailable();
                        self.session.store(Some(Arc::clone(session)));
                    }
                }
            }
        }
    }

    /// Claims a slot, and renews it.
    async fn renew_slot(&self, session: &Session, on_notice: &impl Fn(KeyNotice)) {
        // Home opens keys only with charges, which need its clock.
        while !self.is_connected() {
            sleep(CONNECTED_POLL).await;
        }
        loop {
            let sent = uptime_ms();
            let claim = self.call_on(session, Request::ClaimSlot(self.node_id.clone()), self.owner.now()).await;
            let delay = match claim {
                Ok(Reply::Slot(slot)) => {
                    let slot = slot.and_then(RemoteSlot::from_number);
                    let claimed = slot.map(|slot| ClaimedSlot { slot, valid_until: sent + SLOT_VALID_MS });
                    let previous = std::mem::replace(&mut *lock(&self.slot), claimed);
                    if previous.is_some_and(|previous| Some(previous.slot) != slot) {
                        // What was opened for the old slot is not open for this one.
                        on_notice(KeyNotice::AllClosed);
                    }
                    SLOT_RENEWAL
                }
                Ok(_) | Err(_) => SLOT_RETRY,
            };
            sleep(delay).await;
        }
    }
}

struct OpenConnection {
    incoming: LineReader,
    outgoing: SendStream<Bytes>,
    _driver: AbortOnDrop,
}

/// The task that moves the data of a connection.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Session {
    queue: mpsc::Sender<Vec<u8>>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    next_number: AtomicU64,
    heard_at: Mutex<Instant>,
    /// The last pings: number and time.
    pings: Mutex<VecDeque<(u64, u64)>>,
}

/// A request without a reply.
struct Waiting {
    sent: Instant,
    reply_to: oneshot::Sender<Reply>,
}

/// Forgets a request when its caller does not wait any more.
struct RemoveWaiting<'a> {
    session: &'a Session,
    number: u64,
}

impl Drop for RemoveWaiting<'_> {
    fn drop(&mut self) {
        lock(&self.session.waiting).remove(&self.number);
    }
}

/// Time since the start of the machine, in milliseconds. Unlike that of [`Instant`], it does not stop while the machine sleeps.
fn uptime_ms() -> u64 {
    let uptime = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    uptime.tv_sec.unsigned_abs() * 1000 + uptime.tv_nsec.unsigned_abs() / 1_000_000
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
