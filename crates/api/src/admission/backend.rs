//! What decides on requests outside this node: PostgreSQL and Redis, or home for a remote node.

use std::sync::Arc;
use std::time::Instant;

use ipseity_domain::{ApiKey, KeyId};
use ipseity_home::message::{ChargeRequest, Reply, Request};
use ipseity_home::{CallError, HomeClient};
use ipseity_ledger::{
    AppliedRestrictions, ChargeError, DemoVerdict, Ledger, LedgerError, Owner, RemoteSlot, SentCharge, Verdict,
};
use ipseity_store::Store;
use tokio::time::timeout;

use crate::admission::key_request::KeyRequest;

/// Home accepts times that are a little in the future. Without a step of its clock, estimates differ by less than this.
const SET_BACK_MIN_MS: u64 = 10;

/// What decides on requests outside this node.
#[derive(Clone)]
pub enum Backend {
    /// PostgreSQL and Redis.
    Stores(Stores),
    /// The home nodes, which have both.
    Home(Arc<HomeClient>),
}

/// PostgreSQL and Redis.
#[derive(Clone)]
pub struct Stores {
    /// Redis.
    pub ledger: Arc<Ledger>,
    /// PostgreSQL.
    pub store: Store,
}

/// A charge without a verdict.
pub(super) struct FailedCharge {
    pub(super) error: BackendError,
    /// Set if the charge may have been applied.
    pub(super) sent: Option<SentCharge>,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackendError {
    #[error(transparent)]
    Redis(LedgerError),
    #[error(transparent)]
    Home(CallError),
    #[error("a store of home does not answer")]
    HomeStores,
    #[error("there is no such key")]
    NoSuchKey,
}

impl From<ChargeError> for FailedCharge {
    fn from(ChargeError { error, sent }: ChargeError) -> Self {
        Self { error: BackendError::Redis(error), sent }
    }
}

impl Backend {
    /// The owner of a key.
    pub(super) fn owner_of(&self, key: KeyId) -> Owner {
        match self {
            Self::Stores(stores) => stores.ledger.owner_of(key),
            Self::Home(home) => home.owner().clone(),
        }
    }

    /// The owner of the demo quota.
    pub(super) fn owner_of_demo(&self) -> Owner {
        match self {
            Self::Stores(stores) => stores.ledger.owner_of_demo(),
            Self::Home(home) => home.owner().clone(),
        }
    }

    /// All owners.
    pub(super) fn owners(&self) -> Vec<Owner> {
        match self {
            Self::Stores(stores) => stores.ledger.owners(),
            Self::Home(home) => vec![home.owner().clone()],
        }
    }

    /// Number of steps of a clock of Redis.
    pub(super) fn clock_steps(&self) -> u64 {
        match self {
            Self::Stores(stores) => stores.ledger.clock_steps(),
            Self::Home(_) => 0,
        }
    }

    /// Checks that an owner answers.
    pub(super) async fn probe(&self, owner: &Owner) -> Result<(), LedgerError> {
        match self {
            Self::Stores(stores) => stores.ledger.probe(owner).await,
            Self::Home(home) if home.is_connected() && owner.is_clock_synced() => Ok(()),
            Self::Home(_) => Err(LedgerError::Unreachable),
        }
    }

    /// Authenticates a key and charges its request.
    pub(super) async fn charge(&self, request: &KeyRequest) -> Result<Verdict, FailedCharge> {
        match self {
            Self::Stores(stores) => {
                let KeyRequest { key, charge_id, arrival, applied, .. } = request;
                Ok(stores.ledger.charge(key, *charge_id, *arrival, *applied).await?)
            }
            // Boxed, because it is larger: without it, the future of every charge would be too.
            Self::Home(home) => {
                let sent = home.sent_charge(request.arrival_at_owner());
                Box::pin(charge_at_home(home, request, sent)).await
            }
        }
    }
}

/// Charges a request at home, which is sent now.
pub(super) async fn charge_at_home(
    home: &HomeClient,
    request: &KeyRequest,
    mut sent: SentCharge,
) -> Result<Verdict, FailedCharge> {
    let failed = |error, sent| Err(FailedCharge { error, sent });
    let send = async |sent: SentCharge| {
        let (key, slot) = ((&request.key).into(), home.slot().map(RemoteSlot::number));
        let (id, arrival) = (request.charge_id.number(), sent.arrival.0);
        let AppliedRestrictions { version, is_refused } = request.applied;
        let restrictions = (version > 0 || is_refused).then_some((version, is_refused));
        home.call(Request::Charge(ChargeRequest { key, id, arrival, slot, restrictions }), sent.at).await
    };
    let start = Instant::now();
    let mut reply = send(sent).await;
    // Home does not process a charge that was sent in the future. If its clock was set back, the reply has the new time.
    let arrival = request.arrival_at_owner();
    if matches!(reply, Ok(Reply::NotProcessed)) && arrival.0 + SET_BACK_MIN_MS < sent.arrival.0 {
        sent = home.sent_charge(arrival);
        let time_left = home.timeout().saturating_sub(start.elapsed());
        reply = timeout(time_left, send(sent)).await.unwrap_or(Err(CallError::NoReply));
    }
    match reply {
        Ok(Reply::Verdict(verdict)) => match verdict.parse() {
            Some(verdict) => Ok(verdict),
            None => failed(BackendError::HomeStores, Some(sent)),
        },
        Ok(Reply::NoSuchKey) => failed(BackendError::NoSuchKey, None),
        Ok(Reply::Unconfirmed(message)) => failed(BackendError::HomeStores, Some(message.parse().unwrap_or(sent))),
        Ok(_) => failed(BackendError::HomeStores, None),
        Err(CallError::NotSent) => failed(BackendError::Home(CallError::NotSent), None),
        Err(CallError::NoReply) => failed(BackendError::Home(CallError::NoReply), Some(sent)),
    }
}

/// Charges a demo request at home; `None` if it does not answer.
pub(super) async fn charge_demo_at_home(home: &HomeClient) -> Option<DemoVerdict> {
    match home.call(Request::ChargeDemo, home.owner().now()).await {
        Ok(Reply::DemoVerdict(verdict)) => Some(verdict.into()),
        Ok(_) | Err(_) => None,
    }
}

/// Whether a batch for this key may come from a node that knows this digest: of the current secret, or of the one before.
pub(super) fn has_seen_key(record: &ipseity_domain::KeyRecord, key: &ApiKey) -> bool {
    record.digest == key.digest || record.previous.is_some_and(|previous| previous.digest == key.digest)
}
