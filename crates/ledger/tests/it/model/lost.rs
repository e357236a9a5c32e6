//! Requests without a reply: the request or the reply is lost, or the request is delivered late.

use ipseity_domain::ApiKey;
use ipseity_ledger::{AppliedRestrictions, Arrival, ChargeId, LedgerTime, PendingCharge, UnconfirmedCharge, Verdict};

use super::calls::StoredKey;
use super::incarnation::ModelIncarnation;
use super::walk::{RandomWalk, is_restricted};

/// How long after its time a charge is applied.
const VALID_MS: u64 = 1_000;

/// A charge without a reply, and what became of it.
#[derive(Clone, Debug)]
pub struct LostCharge {
    pub unconfirmed: UnconfirmedCharge,
    pub data_set: u64,
    pub is_counted: bool,
    /// Whether the daily quota rejected it. It is in the log, but not counted.
    pub is_rejected: bool,
}

impl LostCharge {
    fn set_verdict(&mut self, verdict: Option<&Verdict>) {
        self.is_counted = matches!(verdict, Some(Verdict::Admitted { .. }));
        self.is_rejected = matches!(verdict, Some(Verdict::QuotaExhausted { .. }));
    }
}

/// A charge that has not reached Redis yet.
pub struct HeldCharge {
    index: usize,
    key: ApiKey,
    id: ChargeId,
    at: LedgerTime,
    arrival: LedgerTime,
    incarnation: ModelIncarnation,
}

/// Whether a charge with this time has no effect any more.
pub fn is_expired(at: LedgerTime, now_ms: u64) -> bool {
    now_ms > at.0 + VALID_MS || at.0 > now_ms
}

impl RandomWalk {
    /// A charge without a reply. The node decides by its local limiter.
    pub async fn lose_charge(&mut self, index: usize) {
        if self.keys[index].deleted || is_restricted(index) {
            return;
        }
        let (node, key, id) = (self.pick_node(), self.keys[index].key, ChargeId::next());
        // The node's estimate of the clock.
        let at = LedgerTime(self.now_ms - self.rng.u64(..=400));
        let arrival = LedgerTime(at.0 - self.arrival_delay_ms());
        let outcome = self.rng.u32(..10);
        let verdict = match outcome {
            0..6 => {
                let applied = AppliedRestrictions::default();
                let charge = self.nodes[node].ledger.charge(&key, id, Arrival::AtOwner(arrival), applied);
                let verdict = charge.await.expect("charge succeeds");
                let expected = self.keys[index].charge(key.digest, self.incarnation, arrival.0, self.now_ms, applied);
                self.compare(expected.as_ref(), &verdict);
                expected
            }
            6..8 => None,
            _ => {
                self.held.push(HeldCharge { index, key, id, at, arrival, incarnation: self.incarnation });
                None
            }
        };
        let mut sent = self.lost_charge;
        (sent.at, sent.arrival) = (at, arrival);
        let is_admitted = self.rng.u32(..8) > 0;
        let unconfirmed = UnconfirmedCharge { sent, id, is_admitted };
        let mut lost =
            LostCharge { unconfirmed, data_set: self.incarnation.data_set, is_counted: false, is_rejected: false };
        lost.set_verdict(verdict.as_ref());
        self.log_step(|| format!("reply to key {index} on node {node} lost, outcome {outcome}: {lost:?}"));
        self.nodes[node].pending[index].lost.push(lost);
        self.count_event("lost charge");
    }

    /// Delivers a charge late. If it has expired, it changes nothing.
    pub async fn deliver_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held.swap_remove(self.rng.usize(..self.held.len()));
        let HeldCharge { index, key, id, at, arrival, incarnation } = held;
        let before = StoredKey::read(&mut self.connection, key.id).await;
        let call = self.calls.charge(incarnation.database, at.0, &[(key, arrival.0, id)]);
        let replies: Vec<String> = call.query_async(&mut self.connection).await.expect("Redis answers");
        let code = replies[0].as_bytes()[0];
        let now_ms = self.now_ms;
        self.log_step(|| format!("charge {id} of key {index} sent at {at:?} is delivered at {now_ms}: {}", replies[0]));
        if is_expired(at, self.now_ms) {
            if code != b'7' || before != StoredKey::read(&mut self.connection, key.id).await {
                self.fail(&format!("an expired charge was applied: {}", replies[0]));
            }
            self.count_event("late delivery");
            return;
        }
        let expected =
            self.keys[index].charge(key.digest, incarnation, arrival.0, self.now_ms, AppliedRestrictions::default());
        if code != verdict_code(expected.as_ref()) {
            self.fail(&format!("the model expects {expected:?}\nthe script returned {}", replies[0]));
        }
        let pending = self.nodes.iter_mut().map(|node| &mut node.pending[index]);
        for lost in pending.flat_map(|pending| pending.lost_charges_mut()).filter(|lost| lost.unconfirmed.id == id) {
            lost.set_verdict(expected.as_ref());
        }
        self.count_event("delayed delivery");
    }

    /// A node admits requests in degraded mode. Its clock is sometimes wrong.
    pub fn admit_locally(&mut self, index: usize) {
        if is_restricted(index) {
            return;
        }
        let (node, count) = (self.pick_node(), self.rng.usize(1..4));
        let mut day = LedgerTime(self.now_ms).day();
        match self.rng.u32(..60) {
            0 => day.0 += 400,
            1 => day.0 += 1,
            2 => day.0 -= self.rng.u32(1..4),
            _ => {}
        }
        let at = LedgerTime(self.now_ms + 50 - self.rng.u64(..200));
        let pending = &mut self.nodes[node].pending[index];
        *pending.days.entry(day).or_default() += i64::try_from(count).expect("small number");
        pending.recent.extend((0..count).map(|_| PendingCharge { at, id: ChargeId::next() }));
        self.log_step(|| format!("node {node} admits {count} requests of key {index} for day {day:?} at {at:?}"));
    }

    /// A charge that Redis admits, but the node refuses by a stricter limit.
    pub async fn refuse_charge(&mut self, index: usize) {
        if is_restricted(index) {
            return;
        }
        let (node, key) = (self.pick_node(), self.keys[index].key);
        let arrival = LedgerTime(self.now_ms - self.arrival_delay_ms());
        let applied = AppliedRestrictions::default();
        let charge = self.nodes[node].ledger.charge(&key, ChargeId::next(), Arrival::AtOwner(arrival), applied);
        let verdict = charge.await.expect("charge succeeds");
        let expected = self.keys[index].charge(key.digest, self.incarnation, arrival.0, self.now_ms, applied);
        self.compare(expected.as_ref(), &verdict);
        if let Verdict::Admitted { quota, .. } = verdict {
            *self.nodes[node].pending[index].days.entry(quota.day).or_default() -= 1;
            self.log_step(|| format!("node {node} refuses a charge of key {index}"));
        }
    }
}

fn verdict_code(verdict: Option<&Verdict>) -> u8 {
    match verdict {
        None | Some(Verdict::Unknown(_)) => b'0',
        Some(Verdict::WrongSecret(_)) => b'1',
        Some(Verdict::Inactive(_)) => b'2',
        Some(Verdict::Paused { .. }) => b'3',
        Some(Verdict::PausedNow { .. }) => b'4',
        Some(Verdict::QuotaExhausted { .. }) => b'5',
        Some(Verdict::Admitted { .. }) => b'6',
        Some(Verdict::Expired(_)) => b'E',
        Some(Verdict::Outdated { .. }) => b'O',
        Some(Verdict::Restricted(_)) => b'R',
    }
}
