//! The messages, and their conversion from and to the types of the ledger.
//!
//! They are separate types, so that nodes of different versions understand each other: new fields need a default.

use ipseity_domain::{ApiKey, BURST_LIMIT, DailyUsage, KeyDigest, KeyId, KeyPause, Scope, UtcDay};
use ipseity_ledger::{
    ChargeId, DataSet, DemoReconcileBatch, DemoVerdict, LedgerTime, PendingCharge, Quota, ReconcileBatch, SentCharge,
    UnconfirmedCharge, Verdict,
};
use serde::{Deserialize, Serialize};

use crate::key_status_message::KeyStatusMessage;
pub use crate::record_message::RecordMessage;

/// A line from a remote node: a number, when it was sent, by the estimate of home's clock, and the request.
pub type RequestLine = (u64, u64, Request);

/// A line from a home node: the number of the request, the time of the slowest Redis server, if it is known, and the reply.
pub type ReplyLine = (u64, Option<u64>, Reply);

/// What a remote node asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Asks for the clock and the data sets of home. It also shows that the connection works.
    Ping,
    /// Charges a request of a key.
    Charge(ChargeRequest),
    /// Charges a demo request.
    ChargeDemo,
    /// Reads the record of a key.
    FindRecord(KeyMessage),
    /// Reads the status of a key.
    KeyStatus(KeyMessage),
    /// Reads the count of demo requests in PostgreSQL.
    FindDemoUsage,
    /// Reconciles charges of degraded mode.
    Reconcile(ReconcileRequest),
    /// Reconciles demo requests of degraded mode.
    ReconcileDemo(DemoBatchMessage),
    /// Adds rejected requests to the statistics.
    AddRefusals(RefusalsMessage),
    /// Claims or renews a slot for the process with this id.
    ClaimSlot(String),
}

/// What home answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To a ping.
    Pong(PongMessage),
    /// The verdict on a request.
    Verdict(VerdictMessage),
    /// The verdict on a demo request.
    DemoVerdict(DemoVerdictMessage),
    /// The record of a key.
    Record(Box<RecordMessage>),
    /// The status of a key.
    KeyStatus(KeyStatusMessage),
    /// The count of demo requests: day and count.
    DemoUsage(Option<(u32, u64)>),
    /// The batch is counted.
    Reconciled(ReconciledMessage),
    /// A charge of the batch may still be applied. Send it again later.
    TooEarly,
    /// The request is processed.
    Done,
    /// There is no such key.
    NoSuchKey,
    /// The digest is not that of the key.
    WrongSecret,
    /// A store of home did not answer. The request was not processed.
    NotProcessed,
    /// Redis did not answer home in time. The charge or batch may have been applied.
    Unconfirmed(SentMessage),
    /// The slot of the process, or none.
    Slot(Option<u8>),
    /// Not a reply: the slots of this key were closed. The node may no longer admit its requests before they are charged.
    KeyClosed(String),
    /// Not a reply: keys may have been closed unnoticed.
    ChangesMissed,
    /// Not a reply: home has sent all keys that were closed before it received the ping with this number.
    ChangesComplete(u64),
}

/// The data sets of Redis, and after a space what identifies the database of PostgreSQL. A remote node of a version before 0.2
/// does not understand it: its charges without a reply are unverifiable.
#[derive(Debug, Serialize, Deserialize)]
pub struct PongMessage(String);

impl PongMessage {
    /// The message of a home with these stores.
    #[must_use]
    pub fn new(data_sets: DataSet, database: Option<&str>) -> Self {
        let data_sets = data_sets.as_str();
        Self(database.map_or_else(|| data_sets.to_owned(), |database| format!("{data_sets} {database}")))
    }

    /// The data sets, and what identifies the database, if home knows it.
    #[must_use]
    pub fn parse(&self) -> (DataSet, Option<&str>) {
        let (data_sets, database) =
            self.0.split_once(' ').map_or((&*self.0, None), |(data_sets, database)| (data_sets, Some(database)));
        (DataSet::parse(data_sets).unwrap_or(DataSet::NONE), database)
    }
}

/// The number of lines that are not replies.
pub const NOTICE: u64 = 0;

/// A key: id and digest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyMessage(pub String, pub String);

impl From<&ApiKey> for KeyMessage {
    fn from(key: &ApiKey) -> Self {
        Self(key.id.as_str().to_owned(), hex::encode(key.digest.as_bytes()))
    }
}

impl KeyMessage {
    /// The key, if id and digest are valid.
    #[must_use]
    pub fn parse(&self) -> Option<ApiKey> {
        Some(ApiKey { id: KeyId::parse(&self.0)?, digest: parse_digest(&self.1)? })
    }
}

fn parse_digest(text: &str) -> Option<KeyDigest> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(KeyDigest::new(bytes))
}

/// The charge of a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChargeRequest {
    /// The key.
    pub key: KeyMessage,
    /// The id of the charge.
    pub id: u32,
    /// When the request arrived at the remote node, by its estimate of home's clock.
    pub arrival: u64,
    /// The slot of the remote node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u8>,
    /// The version of the restrictions that the remote node applied, and whether they refuse the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restrictions: Option<(u64, bool)>,
}

/// A quota: time, limit, day, used requests and burst limit. Nodes of version 0.1 understand it without the last.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct QuotaMessage(
    u64,
    u64,
    u32,
    u64,
    #[serde(default = "specified_burst_limit", skip_serializing_if = "is_specified_burst_limit")] usize,
);

pub(crate) const fn specified_burst_limit() -> usize {
    BURST_LIMIT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) const fn is_specified_burst_limit(limit: &usize) -> bool {
    *limit == BURST_LIMIT
}

impl From<&Quota> for QuotaMessage {
    fn from(quota: &Quota) -> Self {
        Self(quota.now.0, quota.limit, quota.day.0, quota.used, quota.burst_limit)
    }
}

impl From<QuotaMessage> for Quota {
    fn from(QuotaMessage(now, limit, day, used, burst_limit): QuotaMessage) -> Self {
        Self { now: LedgerTime(now), limit, day: UtcDay(day), used, burst_limit }
    }
}

/// A verdict.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictMessage {
    /// The secret is wrong.
    WrongSecret(u64),
    /// The key is deactivated.
    Inactive(u64),
    /// The key is paused.
    Paused(u64),
    /// The key is paused, and has another burst limit than the specified one: time and limit.
    PausedWithLimit(u64, usize),
    /// The key has expired.
    Expired(u64),
    /// The key has newer restrictions: time and their version.
    Outdated(u64, u64),
    /// The restrictions refuse the request.
    Restricted(u64),
    /// The request paused the key: time, burst epoch and burst limit.
    PausedNow(
        u64,
        u64,
        #[serde(default = "specified_burst_limit", skip_serializing_if = "is_specified_burst_limit")] usize,
    ),
    /// The daily quota is exhausted.
    QuotaExhausted(QuotaMessage),
    /// The request is admitted: scope, quota, burst epoch, and whether the slot is open.
    Admitted(String, QuotaMessage, u64, #[serde(default)] bool),
}

impl VerdictMessage {
    /// The message of a verdict; `None` for a key that Redis does not have.
    #[must_use]
    pub fn new(verdict: &Verdict) -> Option<Self> {
        Some(match verdict {
            Verdict::Unknown(_) => return None,
            Verdict::WrongSecret(now) => Self::WrongSecret(now.0),
            Verdict::Inactive(now) => Self::Inactive(now.0),
            Verdict::Paused { now, burst_limit: BURST_LIMIT } => Self::Paused(now.0),
            Verdict::Paused { now, burst_limit } => Self::PausedWithLimit(now.0, *burst_limit),
            Verdict::Expired(now) => Self::Expired(now.0),
            Verdict::Outdated { now, version } => Self::Outdated(now.0, *version),
            Verdict::Restricted(now) => Self::Restricted(now.0),
            Verdict::PausedNow { now, burst_epoch, burst_limit } => Self::PausedNow(now.0, *burst_epoch, *burst_limit),
            Verdict::QuotaExhausted { quota } => Self::QuotaExhausted(quota.into()),
            Verdict::Admitted { scope, quota, burst_epoch, is_open } => {
                Self::Admitted(scope.name().to_owned(), quota.into(), *burst_epoch, *is_open)
            }
        })
    }

    /// The verdict, if its scope is known.
    #[must_use]
    pub fn parse(self) -> Option<Verdict> {
        Some(match self {
            Self::WrongSecret(now) => Verdict::WrongSecret(LedgerTime(now)),
            Self::Inactive(now) => Verdict::Inactive(LedgerTime(now)),
            Self::Paused(now) => Verdict::Paused { now: LedgerTime(now), burst_limit: BURST_LIMIT },
            Self::PausedWithLimit(now, burst_limit) => Verdict::Paused { now: LedgerTime(now), burst_limit },
            Self::Expired(now) => Verdict::Expired(LedgerTime(now)),
            Self::Outdated(now, version) => Verdict::Outdated { now: LedgerTime(now), version },
            Self::Restricted(now) => Verdict::Restricted(LedgerTime(now)),
            Self::PausedNow(now, burst_epoch, burst_limit) => {
                Verdict::PausedNow { now: LedgerTime(now), burst_epoch, burst_limit }
            }
            Self::QuotaExhausted(quota) => Verdict::QuotaExhausted { quota: quota.into() },
            Self::Admitted(scope, quota, burst_epoch, is_open) => {
                Verdict::Admitted { scope: Scope::parse(&scope)?, quota: quota.into(), burst_epoch, is_open }
            }
        })
    }
}

/// A verdict on a demo request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DemoVerdictMessage {
    /// The daily quota is exhausted.
    Exhausted(QuotaMessage),
    /// The request is admitted.
    Admitted(QuotaMessage),
}

impl DemoVerdictMessage {
    /// The message of a verdict; `None` if Redis has lost the count.
    #[must_use]
    pub fn new(verdict: &DemoVerdict) -> Option<Self> {
        match verdict {
            DemoVerdict::Unknown => None,
            DemoVerdict::Exhausted(quota) => Some(Self::Exhausted(quota.into())),
            DemoVerdict::Admitted { quota, .. } => Some(Self::Admitted(quota.into())),
        }
    }
}

impl From<DemoVerdictMessage> for DemoVerdict {
    fn from(message: DemoVerdictMessage) -> Self {
        match message {
            DemoVerdictMessage::Exhausted(quota) => Self::Exhausted(quota.into()),
            DemoVerdictMessage::Admitted(quota) => Self::Admitted { quota: quota.into(), yesterday: None },
        }
    }
}

/// A charge or a batch that was sent: when it was sent, when its request arrived, and the data sets of Redis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SentMessage(u64, u64, String);

impl From<&SentCharge> for SentMessage {
    fn from(sent: &SentCharge) -> Self {
        Self(sent.at.0, sent.arrival.0, sent.data_set.as_str().to_owned())
    }
}

impl SentMessage {
    /// The charge, if its data sets are valid.
    #[must_use]
    pub fn parse(&self) -> Option<SentCharge> {
        Some(SentCharge { at: LedgerTime(self.0), arrival: LedgerTime(self.1), data_set: DataSet::parse(&self.2)? })
    }
}

/// A batch of pending charges of a key, and the node that admitted them.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReconcileRequest {
    /// The key. Home reconciles a batch only for a node that has seen the secret.
    pub key: KeyMessage,
    /// Identifies the process.
    pub node: String,
    number: u64,
    burst_epoch: u64,
    days: Vec<(u32, i64)>,
    recent: Vec<(u64, u32)>,
    unconfirmed: Vec<(SentMessage, u32, bool)>,
    pause: Option<(u64, Vec<u16>)>,
    first_attempt: Option<SentMessage>,
}

impl ReconcileRequest {
    /// The message of a batch.
    #[must_use]
    pub fn new(key: &ApiKey, node: &str, batch: &ReconcileBatch) -> Self {
        let unconfirmed = batch.unconfirmed.iter();
        Self {
            key: key.into(),
            node: node.to_owned(),
            number: batch.number,
            burst_epoch: batch.burst_epoch,
            days: batch.days.iter().map(|(day, count)| (day.0, *count)).collect(),
            recent: batch.recent.iter().map(|charge| (charge.at.0, charge.id.number())).collect(),
            unconfirmed: unconfirmed
                .map(|charge| ((&charge.sent).into(), charge.id.number(), charge.is_admitted))
                .collect(),
            pause: batch.pause.as_ref().map(|pause| (pause.at_ms, pause.counts.to_vec())),
            first_attempt: batch.first_attempt.as_ref().map(Into::into),
        }
    }

    /// The batch, if it is valid.
    #[must_use]
    pub fn parse(&self) -> Option<ReconcileBatch> {
        let key = self.key.parse()?.id;
        let recent = self.recent.iter();
        let recent =
            recent.map(|(at, id)| Some(PendingCharge { at: LedgerTime(*at), id: ChargeId::from_number(*id)? }));
        let unconfirmed = self.unconfirmed.iter().map(|(sent, id, is_admitted)| {
            Some(UnconfirmedCharge { sent: sent.parse()?, id: ChargeId::from_number(*id)?, is_admitted: *is_admitted })
        });
        let pause = match &self.pause {
            Some((at_ms, counts)) => Some(KeyPause {
                key,
                burst_epoch: self.burst_epoch,
                at_ms: *at_ms,
                counts: counts.as_slice().try_into().ok()?,
            }),
            None => None,
        };
        let first_attempt = match &self.first_attempt {
            Some(sent) => Some(sent.parse()?),
            None => None,
        };
        Some(ReconcileBatch {
            key,
            number: self.number,
            burst_epoch: self.burst_epoch,
            days: self.days.iter().map(|(day, count)| (UtcDay(*day), *count)).collect(),
            recent: recent.collect::<Option<_>>()?,
            unconfirmed: unconfirmed.collect::<Option<_>>()?,
            pause,
            first_attempt,
        })
    }
}

/// The result of a batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReconciledMessage {
    /// The state of the quota after the batch.
    pub quota: QuotaMessage,
    /// Charges that could not be verified.
    pub unverifiable: u64,
}

/// A batch of demo requests: its id, and the requests of each day.
#[derive(Debug, Serialize, Deserialize)]
pub struct DemoBatchMessage(u64, Vec<(u32, u64)>);

impl From<&DemoReconcileBatch> for DemoBatchMessage {
    fn from(batch: &DemoReconcileBatch) -> Self {
        Self(batch.batch_id, batch.days.iter().map(|usage| (usage.day.0, usage.count)).collect())
    }
}

impl From<DemoBatchMessage> for DemoReconcileBatch {
    fn from(DemoBatchMessage(batch_id, days): DemoBatchMessage) -> Self {
        let days = days.into_iter().map(|(day, count)| DailyUsage { day: UtcDay(day), count });
        Self { batch_id, days: days.collect() }
    }
}

/// Rejected requests since the last report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct RefusalsMessage {
    /// Key, day, reason and count.
    pub keys: Vec<(String, u32, String, u64)>,
    /// Demo: day and count.
    pub demo: Vec<(u32, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789";

    fn key(digest: u8) -> ApiKey {
        ApiKey { id: KeyId::parse(KEY).expect("valid id"), digest: KeyDigest::new([digest; 32]) }
    }

    fn over_the_wire<T: Serialize + serde::de::DeserializeOwned>(message: &T) -> T {
        serde_json::from_str(&serde_json::to_string(message).expect("message is serialized")).expect("message parses")
    }

    #[test]
    fn messages_are_the_same_after_the_wire() {
        let sent = SentCharge { at: LedgerTime(5), arrival: LedgerTime(4), data_set: DataSet::NONE };
        let id = ChargeId::next();
        let batch = ReconcileBatch {
            key: key(1).id,
            number: 9,
            burst_epoch: 3,
            days: vec![(UtcDay(1), 2), (UtcDay(2), -1)],
            recent: vec![PendingCharge { at: LedgerTime(3), id }],
            unconfirmed: vec![UnconfirmedCharge { sent, id, is_admitted: true }],
            pause: Some(KeyPause { key: key(1).id, burst_epoch: 3, at_ms: 8, counts: [5; 60] }),
            first_attempt: Some(sent),
        };
        let parsed = over_the_wire(&ReconcileRequest::new(&key(1), "n", &batch)).parse().expect("batch parses");
        assert_eq!(format!("{parsed:?}"), format!("{batch:?}"));
        let quota = Quota { now: LedgerTime(1), limit: 2, day: UtcDay(3), used: 4, burst_limit: BURST_LIMIT };
        for verdict in [
            Verdict::WrongSecret(LedgerTime(1)),
            Verdict::Inactive(LedgerTime(2)),
            Verdict::Paused { now: LedgerTime(3), burst_limit: BURST_LIMIT },
            Verdict::Paused { now: LedgerTime(3), burst_limit: 600 },
            Verdict::Expired(LedgerTime(4)),
            Verdict::Outdated { now: LedgerTime(5), version: 6 },
            Verdict::Restricted(LedgerTime(7)),
            Verdict::PausedNow { now: LedgerTime(4), burst_epoch: 5, burst_limit: BURST_LIMIT },
            Verdict::PausedNow { now: LedgerTime(4), burst_epoch: 5, burst_limit: 600 },
            Verdict::QuotaExhausted { quota: Quota { burst_limit: 600, ..quota } },
            Verdict::QuotaExhausted { quota },
            Verdict::Admitted { scope: Scope::Full, quota, burst_epoch: 6, is_open: true },
        ] {
            let message = over_the_wire(&VerdictMessage::new(&verdict).expect("verdict has a message"));
            assert_eq!(message.parse(), Some(verdict));
        }
    }

    #[test]
    fn damaged_messages_are_rejected() {
        for (id, digest) in [("", ""), (KEY, ""), (KEY, "zz"), ("short", &*"00".repeat(32)), (KEY, &*"00".repeat(33))] {
            assert_eq!(KeyMessage(id.to_owned(), digest.to_owned()).parse(), None, "{id} {digest}");
        }
        assert!(SentMessage(1, 1, "seven c".to_owned()).parse().is_none());
        assert!(SentMessage(1, 1, "12345,+8".to_owned()).parse().is_none());
        assert!(ChargeId::from_number(3).is_none() && ChargeId::from_number(1_000_000).is_none());
    }
}
