//! The local limiter: decides on the requests of one key by the rules of charge.lua, from the local record
//! and request log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipseity_domain::{
    ApiKey, BURST_WINDOW_S, DailyUsage, KeyDigest, KeyFlags, KeyPause, KeyRecord, KeyState, Scope, UtcDay,
    VersionedRestrictions, is_mutant,
};
use ipseity_ledger::{AppliedRestrictions, LedgerTime, Quota, Verdict};

use crate::admission::open_keys::AdmittedEarly;
use crate::admission::restricted::KnownRestrictions;
use crate::response::rate_limit_headers::BurstLeft;

/// A clock that steps back by at most this much is treated as not having moved.
const CLOCK_SKEW_TOLERANCE_MS: u64 = 1000;

pub(super) struct LocalKey {
    /// Its usage is the last count from Redis or PostgreSQL. It does not include pending charges.
    pub(super) record: KeyRecord,
    pub(super) updated_at: Instant,
    source: RecordSource,
    /// The subscription epoch in which the restrictions were last read.
    restrictions_epoch: u64,
    /// Whether the key was paused in its burst epoch, by this node or by a verdict of Redis. PostgreSQL may not know of
    /// it yet.
    is_paused_here: bool,
    /// Number of reported changes of the key, and how many of them the record is known to include. While they differ,
    /// the key is in doubt.
    changes_reported: u64,
    changes_included: u64,
    /// Arrivals of this node's requests in the last 60 seconds, oldest first. Other nodes may have admitted more.
    arrivals: VecDeque<LedgerTime>,
    /// When the newest of them was decided on.
    newest: LedgerTime,
    /// The burst window, shorter after the clock of the key's owner was set back.
    pub(super) burst_window_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordSource {
    /// A verdict from Redis, or home. It lacks digests that the node did not send, such as the previous one of a rotated key.
    Ledger,
    /// PostgreSQL, read at this subscription epoch.
    Store(u64),
}

impl LocalKey {
    pub(super) fn from_verdict(
        key: &ApiKey,
        scope: Scope,
        quota: &Quota,
        burst_epoch: u64,
        updated_at: Instant,
    ) -> Self {
        let record = KeyRecord {
            id: key.id,
            digest: key.digest,
            previous: None,
            scope,
            daily_limit: quota.limit,
            burst_limit: quota.burst_limit,
            restrictions: None,
            flags: KeyFlags::default(),
            generation: 0,
            burst_epoch,
            usage: None,
            previous_usage: None,
        };
        Self { updated_at, source: RecordSource::Ledger, ..Self::from_record(record, 0) }
    }

    pub(super) fn from_record(record: KeyRecord, subscription_epoch: u64) -> Self {
        Self {
            record,
            updated_at: Instant::now(),
            source: RecordSource::Store(subscription_epoch),
            restrictions_epoch: subscription_epoch,
            is_paused_here: false,
            changes_reported: 0,
            changes_included: 0,
            arrivals: VecDeque::new(),
            newest: LedgerTime(0),
            burst_window_ms: BURST_WINDOW_S * 1000,
        }
    }

    pub(super) fn observe_admitted(
        &mut self,
        key: &ApiKey,
        arrival: LedgerTime,
        scope: Scope,
        quota: &Quota,
        burst_epoch: u64,
        received_at: Instant,
    ) {
        if !self.record.accepts(&key.digest, quota.now.as_secs()) {
            (self.record.digest, self.record.previous) = (key.digest, None);
        }
        self.enter_burst_epoch(burst_epoch);
        self.record.scope = scope;
        self.observe_limits(quota);
        self.record.flags = KeyFlags::default();
        self.is_paused_here = false;
        // Verdicts of one batch can be processed in any order.
        self.record.merge_usage(Some(DailyUsage { day: quota.day, count: quota.used }));
        (self.updated_at, self.source) = (received_at, RecordSource::Ledger);
        self.record_request(arrival, quota.now);
    }

    /// Takes over the restrictions that an admitted request was charged with, if this record is from its verdict. Otherwise it
    /// has these or newer ones, or PostgreSQL has lost them since they were read.
    pub(super) fn observe_restrictions(&mut self, applied: Option<&KnownRestrictions>) {
        let known = self.record.restrictions.as_ref().map_or(0, |versioned| versioned.version);
        let is_newer = |applied: &&KnownRestrictions| self.record.generation == 0 && applied.versioned.version > known;
        if let Some(KnownRestrictions { versioned, epoch }) = applied.filter(is_newer) {
            (self.record.restrictions, self.restrictions_epoch) = (Some(Arc::clone(versioned)), *epoch);
        }
    }

    /// The restrictions, if they were read in this subscription epoch, and if the secret is one that the record has: a stranger
    /// must not learn of them.
    pub(super) fn restrictions_for(
        &self,
        digest: &KeyDigest,
        subscription_epoch: Option<u64>,
    ) -> Option<KnownRestrictions> {
        let versioned = self.record.restrictions.as_ref()?;
        if subscription_epoch.is_some_and(|epoch| epoch != self.restrictions_epoch) {
            return None;
        }
        let previous = self.record.previous.as_ref().is_some_and(|previous| previous.digest == *digest);
        (self.record.digest == *digest || previous)
            .then(|| KnownRestrictions { versioned: Arc::clone(versioned), epoch: self.restrictions_epoch })
    }

    pub(super) fn observe_exhausted(&mut self, arrival: LedgerTime, quota: &Quota) {
        self.observe_usage(quota);
        self.record_request(arrival, quota.now);
    }

    fn observe_limits(&mut self, quota: &Quota) {
        (self.record.daily_limit, self.record.burst_limit) = (quota.limit, quota.burst_limit);
    }

    pub(super) fn observe_usage(&mut self, quota: &Quota) {
        self.observe_limits(quota);
        self.record.merge_usage(Some(DailyUsage { day: quota.day, count: quota.used }));
    }

    /// Admits a request that home will charge, and logs its arrival. Returns the quota after it.
    pub(super) fn admit_before_charge(
        &mut self,
        arrival: LedgerTime,
        now: LedgerTime,
        early: &AdmittedEarly,
    ) -> Option<Quota> {
        let (day, used) = usage_on(self.record.usage, now);
        let (used, limit) = (used + early.in_flight as u64, early.opened.daily_limit);
        let burst_limit = early.opened.burst_limit;
        if self.is_paused_here || used >= limit || self.arrivals.len() >= burst_limit {
            return None;
        }
        self.record_request(arrival, now);
        Some(Quota { now, limit, day, used: used + 1, burst_limit })
    }

    /// A pause lasts as long as its burst epoch.
    pub(super) fn observe_paused(&mut self) {
        self.is_paused_here = !is_mutant("memory-forgets-pauses");
    }

    /// Redis has just refused this digest. If it is the one that this node knows, the secret was rotated or revoked.
    pub(super) fn observe_wrong_secret(&mut self, digest: &KeyDigest, now: LedgerTime) {
        if self.record.accepts(digest, now.as_secs()) {
            self.report_change();
        }
    }

    pub(super) fn report_change(&mut self) {
        self.changes_reported += 1;
    }

    pub(super) const fn changes_reported(&self) -> u64 {
        self.changes_reported
    }

    /// Whether the key has changed since the record was read.
    pub(super) const fn is_in_doubt(&self) -> bool {
        self.changes_reported != self.changes_included
    }

    /// Replaces the record by one from PostgreSQL. The query started after `changes_included` changes were reported.
    pub(super) fn update_record(&mut self, record: &KeyRecord, subscription_epoch: u64, changes_included: u64) {
        // The results of two queries may arrive in the wrong order. After a new subscription it may be another
        // PostgreSQL, with fewer changes.
        let is_same_subscription = self.source == RecordSource::Store(subscription_epoch);
        if is_same_subscription && record.generation < self.record.generation {
            return;
        }
        self.enter_burst_epoch(record.burst_epoch);
        let (usage, previous_usage) = (self.record.usage, self.record.previous_usage);
        self.record = record.clone();
        self.record.merge_usage(usage);
        self.record.merge_usage(previous_usage);
        self.changes_included = self.changes_included.max(changes_included);
        (self.updated_at, self.source) = (Instant::now(), RecordSource::Store(subscription_epoch));
        self.restrictions_epoch = subscription_epoch;
    }

    /// Adds to a record from home the other digest of a rotated key, if the last record of the same generation had it.
    pub(super) fn add_known_digest(&self, record: &mut KeyRecord) {
        if self.record.generation != record.generation {
            return;
        }
        match record.previous {
            None => record.previous = self.record.previous,
            // Home returns the previous digest without the current one.
            Some(previous) if self.record.digest != previous.digest => record.digest = self.record.digest,
            Some(_) => {}
        }
    }

    /// Notes that the record lacks digests.
    pub(super) const fn mark_as_partial(&mut self) {
        self.source = RecordSource::Ledger;
    }

    pub(super) const fn is_from_store(&self) -> bool {
        matches!(self.source, RecordSource::Store(_))
    }

    /// A record from a verdict is never fresh: the key may have been paused just before Redis stopped answering.
    pub(super) fn is_fresh(&self, subscription_epoch: u64, max_age: Duration) -> bool {
        self.source == RecordSource::Store(subscription_epoch)
            && !self.is_in_doubt()
            && self.updated_at.elapsed() < max_age
    }

    /// The pause if this node alone has admitted more than the burst limit. Redis pauses a key before that, unless it
    /// lost its memory, or requests that this node admitted have not reached it yet.
    pub(super) fn pause_if_exceeded(&mut self, now: LedgerTime) -> Option<KeyPause> {
        (self.arrivals.len() > self.record.burst_limit).then(|| {
            self.is_paused_here = true;
            self.build_pause(now)
        })
    }

    /// Decides on a request and logs its arrival. `pending_on` returns the number of this node's pending charges
    /// of a day.
    ///
    /// Returns `None` for an unknown digest if the record is from a verdict: the digest may be the previous one.
    pub(super) fn check(
        &mut self,
        digest: &KeyDigest,
        arrival: LedgerTime,
        now: LedgerTime,
        pending_on: impl FnOnce(UtcDay) -> u64,
        applied: AppliedRestrictions,
    ) -> Option<LocalVerdict> {
        if !self.record.accepts(digest, now.as_secs()) {
            return self.is_from_store().then_some(LocalVerdict::Refused(Verdict::WrongSecret(now)));
        }
        let paused = Verdict::Paused { now, burst_limit: self.record.burst_limit };
        match self.record.flags.state() {
            KeyState::Inactive if is_mutant("memory-accepts-revoked-keys") => {}
            KeyState::Inactive => return Some(LocalVerdict::Refused(Verdict::Inactive(now))),
            KeyState::Paused => return Some(LocalVerdict::Refused(paused)),
            KeyState::Active if self.is_paused_here => return Some(LocalVerdict::Refused(paused)),
            KeyState::Active => {}
        }
        if let Some(VersionedRestrictions { version, restrictions }) = self.record.restrictions.as_deref() {
            if restrictions.expires_at_s.is_some_and(|expires_at_s| now.as_secs() >= expires_at_s) {
                return Some(LocalVerdict::Refused(Verdict::Expired(now)));
            }
            if applied.version < *version {
                return None;
            }
        }
        if applied.is_refused {
            return Some(LocalVerdict::Refused(Verdict::Restricted(now)));
        }
        self.record_request(arrival, now);
        if !is_mutant("no-local-burst-limit")
            && let Some(pause) = self.pause_if_exceeded(now)
        {
            return Some(LocalVerdict::Paused(pause));
        }
        let (day, used) = usage_on(self.record.usage, now);
        let (used, limit, burst_limit) = (used + pending_on(day), self.record.daily_limit, self.record.burst_limit);
        Some(if used >= limit && !is_mutant("no-local-daily-limit") {
            LocalVerdict::Refused(Verdict::QuotaExhausted {
                quota: Quota { now, limit, day, used: limit, burst_limit },
            })
        } else {
            let quota = Quota { now, limit, day, used: used + 1, burst_limit };
            LocalVerdict::Admitted { scope: self.record.scope, quota, burst_epoch: self.record.burst_epoch }
        })
    }

    /// What is left of the burst limit, by what this node has admitted. Other nodes may have admitted more.
    pub(super) fn burst_left(&self) -> BurstLeft {
        let requests = self.record.burst_limit.saturating_sub(self.arrivals.len()) as u64;
        let oldest = self.arrivals.front().map_or(self.newest, |oldest| *oldest);
        let until_ms = (oldest.0 + BURST_WINDOW_S * 1000).saturating_sub(self.newest.0);
        BurstLeft { requests, until_s: until_ms.div_ceil(1000) }
    }

    /// A resume starts a new burst epoch with an empty log.
    fn enter_burst_epoch(&mut self, burst_epoch: u64) {
        if self.record.burst_epoch != burst_epoch && !is_mutant("memory-keeps-burst-epoch") {
            self.record.burst_epoch = burst_epoch;
            self.arrivals.clear();
            self.is_paused_here = false;
        }
    }

    /// Adds a request to the log, and removes those whose burst window has ended at `now`.
    fn record_request(&mut self, arrival: LedgerTime, now: LedgerTime) {
        if self.newest.0.saturating_sub(now.0) > CLOCK_SKEW_TOLERANCE_MS {
            self.arrivals.clear();
            self.newest = now;
        }
        self.newest = self.newest.max(now);
        // Verdicts can be processed in any order.
        let later = self.arrivals.iter().rev().take_while(|time| **time > arrival).count();
        self.arrivals.insert(self.arrivals.len() - later, arrival);
        let (newest, burst_window_ms) = (self.newest, self.burst_window_ms);
        while self.arrivals.front().is_some_and(|time| newest.0.saturating_sub(time.0) >= burst_window_ms) {
            self.arrivals.pop_front();
        }
        // One more than the limit is enough to know that it is exceeded. The limit can be lowered.
        while self.arrivals.len() > self.record.burst_limit + 1 {
            self.arrivals.pop_front();
        }
    }

    fn build_pause(&self, now: LedgerTime) -> KeyPause {
        let mut counts = [0; BURST_WINDOW_S as usize];
        for time in &self.arrivals {
            let age_s = usize::try_from(now.0.saturating_sub(time.0) / 1000).unwrap_or(usize::MAX);
            if let Some(count) = counts.iter_mut().rev().nth(age_s) {
                *count += 1;
            }
        }
        KeyPause { key: self.record.id, burst_epoch: self.record.burst_epoch, at_ms: now.0, counts }
    }
}

/// A decision of the local limiter.
pub(super) enum LocalVerdict {
    Admitted {
        scope: Scope,
        quota: Quota,
        burst_epoch: u64,
    },
    /// The request exceeded the burst limit and paused the key.
    Paused(KeyPause),
    /// Any other verdict.
    Refused(Verdict),
}

/// The day that a request at `now` is charged to, and the requests already charged to it. A day more than one ahead was
/// reported while the clock of Redis was wrong.
pub(super) fn usage_on(usage: Option<DailyUsage>, now: LedgerTime) -> (UtcDay, u64) {
    match usage {
        Some(usage) if usage.day >= now.day() && usage.day.0 <= now.day().0 + 1 => (usage.day, usage.count),
        Some(_) | None => (now.day(), 0),
    }
}

#[cfg(test)]
mod tests;
