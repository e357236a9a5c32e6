//! The keys that home has opened for this remote node: it admits their requests before home has charged them.
//!
//! A verdict of home opens a key or closes it, and a notice of home closes it. They can arrive in another order than home
//! made them. So a verdict opens a key only if its charge began after everything that has closed the key: it reached Redis
//! after that, and its verdict knows of it. No number and no clock is compared.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, IN_FLIGHT_MAX, KeyDigest, KeyId, Scope, is_mutant};
use ipseity_ledger::Verdict;

/// A key without a verdict for this time waits for home. Redis forgets a key that is not used for longer.
const OPEN_MAX_AGE: Duration = Duration::from_secs(3600);
/// Time between searches for keys that are no longer used, while there are too many.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct OpenKeys {
    state: Mutex<OpenKeysState>,
    keys_max: usize,
}

#[derive(Default)]
struct OpenKeysState {
    /// Has a key as long as it is open or has a charge in flight.
    keys: HashMap<KeyId, OpenKey>,
    /// Number of times that a key was closed.
    closings: u64,
    /// Requests that were admitted, and whose charges are in flight.
    admitted: usize,
    purged_at: Option<Instant>,
}

#[derive(Default)]
struct OpenKey {
    opened: Option<OpenedKey>,
    /// `closings` when the key was last closed.
    closed_at: u64,
    /// All charges in flight, and those whose requests were admitted.
    charges: usize,
    admitted: usize,
}

/// What the last verdict said that opened a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenedKey {
    pub(super) digest: KeyDigest,
    pub(super) scope: Scope,
    pub(super) daily_limit: u64,
    pub(super) burst_limit: usize,
    pub(super) burst_epoch: u64,
    /// The version of the restrictions that were applied.
    restriction_version: u64,
    confirmed_at: Instant,
}

/// Why a request waits for home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// The key is not open.
    NotOpen,
    /// Too many requests of the key are in flight.
    InFlight,
}

/// A request that is admitted before it is charged.
pub(super) struct AdmittedEarly {
    pub(super) charge: ChargeInFlight,
    pub(super) opened: OpenedKey,
    /// Such requests of the key before it whose charges are in flight.
    pub(super) in_flight: usize,
}

impl OpenKeys {
    pub(super) fn new(keys_max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), keys_max })
    }

    /// Begins the charge of a request that waits for the verdict.
    pub(super) fn begin(self: &Arc<Self>, key: &ApiKey, restriction_version: u64) -> ChargeInFlight {
        let mut state = self.lock();
        state.keys.entry(key.id).or_default().charges += 1;
        let closings = state.closings;
        let open_keys = Arc::clone(self);
        ChargeInFlight { open_keys, key: *key, restriction_version, closings, is_admitted: false }
    }

    /// Begins the charge of a request that is admitted now. The key must be open with the restrictions that were applied: the
    /// local record may lack them.
    pub(super) fn begin_admitted(
        self: &Arc<Self>,
        key: &ApiKey,
        restriction_version: u64,
    ) -> Result<AdmittedEarly, WaitReason> {
        let mut state = self.lock();
        let open_key = state.keys.get_mut(&key.id).ok_or(WaitReason::NotOpen)?;
        let is_same =
            |opened: &OpenedKey| opened.digest == key.digest && opened.restriction_version == restriction_version;
        let opened = open_key.opened.filter(is_same).ok_or(WaitReason::NotOpen)?;
        if opened.confirmed_at.elapsed() > OPEN_MAX_AGE {
            return Err(WaitReason::NotOpen);
        }
        let in_flight = open_key.admitted;
        if in_flight >= IN_FLIGHT_MAX && !is_mutant("in-flight-not-limited") {
            return Err(WaitReason::InFlight);
        }
        (open_key.charges, open_key.admitted) = (open_key.charges + 1, open_key.admitted + 1);
        state.admitted += 1;
        let closings = state.closings;
        let open_keys = Arc::clone(self);
        let charge = ChargeInFlight { open_keys, key: *key, restriction_version, closings, is_admitted: true };
        Ok(AdmittedEarly { charge, opened, in_flight })
    }

    pub(super) fn close(&self, id: KeyId) {
        self.lock().close(id);
    }

    pub(super) fn close_all(&self) {
        let mut state = self.lock();
        state.closings += 1;
        let closed_at = state.closings;
        state.keys.retain(|_, key| {
            (key.opened, key.closed_at) = (None, closed_at);
            key.charges > 0
        });
    }

    /// Number of admitted requests whose charges are in flight.
    pub(super) fn admitted_in_flight(&self) -> usize {
        self.lock().admitted
    }

    /// The same for each key that has any.
    pub(super) fn requests_by_key(&self) -> Vec<(KeyId, u64)> {
        let state = self.lock();
        let admitted = state.keys.iter().filter(|(_, key)| key.admitted > 0);
        admitted.map(|(id, key)| (*id, key.admitted as u64)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, OpenKeysState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenKeysState {
    fn close(&mut self, id: KeyId) {
        self.closings += 1;
        if let Some(key) = self.keys.get_mut(&id) {
            (key.opened, key.closed_at) = (None, self.closings);
            if key.charges == 0 {
                self.keys.remove(&id);
            }
        }
    }

    /// Whether another key can be opened. Forgets keys that are no longer used.
    fn has_capacity(&mut self, keys_max: usize) -> bool {
        let is_full = self.keys.len() > keys_max;
        if is_full && self.purged_at.is_none_or(|at| at.elapsed() > PURGE_INTERVAL) {
            self.purged_at = Some(Instant::now());
            let is_used = |opened: OpenedKey| opened.confirmed_at.elapsed() <= OPEN_MAX_AGE;
            self.keys.retain(|_, key| key.charges > 0 || key.opened.is_some_and(is_used));
        }
        self.keys.len() <= keys_max
    }
}

/// A charge without a verdict. It counts until it is dropped.
pub(super) struct ChargeInFlight {
    open_keys: Arc<OpenKeys>,
    key: ApiKey,
    restriction_version: u64,
    /// Number of closings when it began.
    closings: u64,
    is_admitted: bool,
}

impl ChargeInFlight {
    /// Opens or closes the key by the verdict.
    pub(super) fn finish(self, verdict: &Verdict) {
        match verdict {
            Verdict::Admitted { scope, quota, burst_epoch, is_open: true } => self.open(OpenedKey {
                digest: self.key.digest,
                scope: *scope,
                daily_limit: quota.limit,
                burst_limit: quota.burst_limit,
                burst_epoch: *burst_epoch,
                restriction_version: self.restriction_version,
                confirmed_at: Instant::now(),
            }),
            // The secret before a rotation says nothing about the current one.
            Verdict::Admitted { is_open: false, .. } => self.close_secret(true),
            // Anyone can make up a secret. It must not keep a key from being opened.
            Verdict::WrongSecret(_) => self.close_secret(false),
            Verdict::Inactive(_)
            | Verdict::Paused { .. }
            | Verdict::PausedNow { .. }
            | Verdict::QuotaExhausted { .. }
            | Verdict::Expired(_)
            | Verdict::Outdated { .. } => self.close(),
            // A request that the restrictions refuse says nothing about others.
            Verdict::Restricted(_) | Verdict::Unknown(_) => {}
        }
    }

    /// Closes the key.
    pub(super) fn close(self) {
        self.open_keys.close(self.key.id);
    }

    fn open(&self, opened: OpenedKey) {
        let mut state = self.open_keys.lock();
        let has_capacity = state.has_capacity(self.open_keys.keys_max);
        if let Some(key) = state.keys.get_mut(&self.key.id)
            && (key.opened.is_some() || has_capacity)
            && (self.closings >= key.closed_at || is_mutant("old-verdict-opens"))
        {
            key.opened = Some(opened);
        }
    }

    /// Closes the key if it is open for the secret of this charge. If it is not open, charges that began before do not open
    /// it if `is_known`.
    fn close_secret(&self, is_known: bool) {
        let mut state = self.open_keys.lock();
        let opened = state.keys.get(&self.key.id).and_then(|key| key.opened);
        if opened.map_or(is_known, |opened| opened.digest == self.key.digest) {
            state.close(self.key.id);
        }
    }
}

impl Drop for ChargeInFlight {
    fn drop(&mut self) {
        let mut state = self.open_keys.lock();
        state.admitted -= usize::from(self.is_admitted);
        if let Some(key) = state.keys.get_mut(&self.key.id) {
            key.charges -= 1;
            key.admitted -= usize::from(self.is_admitted);
            if key.charges == 0 && key.opened.is_none() {
                state.keys.remove(&self.key.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::{BURST_LIMIT, PlaintextKey};
    use ipseity_ledger::{LedgerTime, Quota};

    use super::*;

    fn open_keys() -> (Arc<OpenKeys>, ApiKey) {
        (OpenKeys::new(10), new_key())
    }

    fn new_key() -> ApiKey {
        PlaintextKey::generate(|| fastrand::u8(..)).to_api_key()
    }

    fn admitted(is_open: bool) -> Verdict {
        let now = LedgerTime(0);
        Verdict::Admitted {
            scope: Scope::Ip,
            quota: Quota { now, limit: 10, day: now.day(), used: 1, burst_limit: BURST_LIMIT },
            burst_epoch: 1,
            is_open,
        }
    }

    fn is_open(open_keys: &Arc<OpenKeys>, key: &ApiKey) -> bool {
        open_keys.begin_admitted(key, 0).is_ok()
    }

    #[test]
    fn verdict_opens_a_key_and_the_next_closes_it() {
        let (open_keys, key) = open_keys();
        assert_eq!(open_keys.begin_admitted(&key, 0).err(), Some(WaitReason::NotOpen));
        open_keys.begin(&key, 0).finish(&admitted(true));
        assert!(is_open(&open_keys, &key));
        open_keys.begin(&key, 0).finish(&admitted(false));
        assert!(!is_open(&open_keys, &key));
        assert!(open_keys.lock().keys.is_empty());
    }

    #[test]
    fn verdict_of_a_charge_that_began_before_a_closing_does_not_open() {
        let (open_keys, key) = open_keys();
        type Close = fn(&Arc<OpenKeys>, &ApiKey);
        let closings: [Close; 3] = [
            |open_keys, key| open_keys.close(key.id),
            |open_keys, _| open_keys.close_all(),
            |open_keys, key| open_keys.begin(key, 0).finish(&admitted(false)),
        ];
        for close in closings {
            let before = open_keys.begin(&key, 0);
            close(&open_keys, &key);
            before.finish(&admitted(true));
            assert!(!is_open(&open_keys, &key));
            open_keys.begin(&key, 0).finish(&admitted(true));
            assert!(is_open(&open_keys, &key));
        }
    }

    #[test]
    fn key_is_open_for_the_restrictions_that_were_applied() {
        let (open_keys, key) = open_keys();
        open_keys.begin(&key, 7).finish(&admitted(true));
        for (version, is_open) in [(7, true), (0, false), (6, false), (8, false)] {
            assert_eq!(open_keys.begin_admitted(&key, version).is_ok(), is_open, "{version}");
        }
    }

    #[test]
    fn late_verdict_on_another_secret_changes_nothing() {
        let (open_keys, old) = open_keys();
        let new = ApiKey { digest: new_key().digest, ..old };
        let late = open_keys.begin(&old, 0);
        open_keys.close(old.id);
        open_keys.begin(&new, 0).finish(&admitted(true));
        late.finish(&admitted(true));
        assert!(is_open(&open_keys, &new) && !is_open(&open_keys, &old));
        // The secret before a rotation is never open, and a made-up one is wrong.
        open_keys.begin(&old, 0).finish(&admitted(false));
        open_keys.begin(&old, 0).finish(&Verdict::WrongSecret(LedgerTime(0)));
        assert!(is_open(&open_keys, &new));
        open_keys.begin(&old, 0).finish(&Verdict::Paused { now: LedgerTime(0), burst_limit: BURST_LIMIT });
        assert!(!is_open(&open_keys, &new));
        // A made-up secret does not keep the key from being opened either.
        let charge = open_keys.begin(&new, 0);
        open_keys.begin(&old, 0).finish(&Verdict::WrongSecret(LedgerTime(0)));
        charge.finish(&admitted(true));
        assert!(is_open(&open_keys, &new));
    }

    #[test]
    fn admitted_requests_in_flight_are_limited_and_freed_by_their_end() {
        let (open_keys, key) = open_keys();
        open_keys.begin(&key, 0).finish(&admitted(true));
        let begin = || open_keys.begin_admitted(&key, 0);
        let mut in_flight: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| begin().expect("not too many")).collect();
        assert_eq!(begin().err(), Some(WaitReason::InFlight));
        // A closed key that is opened again still has them.
        open_keys.close(key.id);
        open_keys.begin(&key, 0).finish(&admitted(true));
        assert_eq!(begin().err(), Some(WaitReason::InFlight));
        in_flight.pop();
        let last = begin().expect("one has ended");
        assert_eq!((last.in_flight, open_keys.admitted_in_flight()), (IN_FLIGHT_MAX - 1, IN_FLIGHT_MAX));
        drop((in_flight, last));
        open_keys.close_all();
        assert_eq!((open_keys.admitted_in_flight(), open_keys.lock().keys.len()), (0, 0));
    }

    #[test]
    fn only_so_many_keys_are_open() {
        let (open_keys, _) = open_keys();
        let keys: Vec<_> = (0..20).map(|_| new_key()).collect();
        keys.iter().for_each(|key| open_keys.begin(key, 0).finish(&admitted(true)));
        assert_eq!(keys.iter().filter(|key| is_open(&open_keys, key)).count(), 10);
    }
}
