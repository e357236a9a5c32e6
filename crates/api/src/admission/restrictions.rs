//! Restrictions of keys. This node applies those that it knows, and the charge says which version they are. If Redis has a
//! newer version, the node reads it and charges again, so that a change counts from the next request.

use std::sync::Arc;

use ipseity_domain::{ApiKey, KeyId, RestrictionRefusal, Restrictions, VersionedRestrictions, is_mutant};
use ipseity_ledger::Verdict;

use crate::admission::admitted::Issued;
use crate::admission::backend::Backend;
use crate::admission::key_request::KeyRequest;
use crate::admission::restricted::{Caller, Restricted};
use crate::admission::{Admission, ChargeFailure};
use crate::error::Refusal;

/// Maximum number of times that the restrictions of a key are read for one request. They change while it is processed.
const READS_MAX: usize = 5;
/// Maximum number of lookups to read a version. The database can change during the first one.
const LOOKUPS_MAX: usize = 2;

impl Admission {
    /// Applies the restrictions that this node knows.
    pub(super) fn apply_restrictions(&self, request: &mut KeyRequest, caller: Caller<'_>) {
        let restricted = &mut request.restricted;
        restricted.restrictions = self.degraded.restrictions_of(&request.key);
        self.give_back_caller(restricted, request.key.id);
        (restricted.caller, restricted.counted) = (Ok(()), None);
        restricted.refusal = caller.has_foreign_ticket().then_some(RestrictionRefusal::Origin);
        let refusal = |restrictions: &Restrictions| {
            restrictions.check(caller.credential(), caller.origin(), caller.address).err()
        };
        restricted.refusal = restricted.refusal.or_else(|| restricted.restrictions().and_then(refusal));
        let caller_limit = restricted.restrictions().and_then(|restrictions| restrictions.caller_limit);
        if let (None, Some(limit)) = (restricted.refusal, caller_limit) {
            match self.caller_limits.take(request.key.id, caller.address, limit) {
                Ok(true) => restricted.counted = Some(caller.address),
                Ok(false) => self.metrics.count_uncounted_caller(),
                Err(refusal) => {
                    (restricted.caller, restricted.refusal) = (Err(refusal), Some(RestrictionRefusal::Caller));
                }
            }
        }
        request.applied = restricted.applied();
    }

    /// Uncounts a request for the limit of its caller, because it is not admitted.
    pub(super) fn give_back_caller(&self, restricted: &Restricted, key: KeyId) {
        if let Some(address) = restricted.counted {
            self.caller_limits.give_back(key, address);
        }
    }

    /// Charges a request again whose restrictions were outdated.
    pub(super) async fn charge_with_new_restrictions(
        &self,
        request: &mut KeyRequest,
        caller: Caller<'_>,
        mut version: u64,
    ) -> Result<Issued<Verdict>, ChargeFailure> {
        for _ in 0..READS_MAX {
            let read = self.read_restrictions(&request.key, version).await;
            let is_missing_ignored = read.is_err() && is_mutant("missing-restrictions-admit");
            if !is_missing_ignored {
                read?;
            }
            self.apply_restrictions(request, caller);
            if is_missing_ignored {
                request.applied.version = version;
            }
            let verdict = self.obtain_verdict(request).await?;
            let Verdict::Outdated { version: current, .. } = *verdict.verdict() else { return Ok(verdict) };
            version = current;
        }
        tracing::error!(reads = READS_MAX, "restrictions of a key change faster than they are read");
        Err(Refusal::Internal.into())
    }

    /// Reads a version of a key's restrictions, or a later one. Per key, one request at a time does this and the others
    /// wait for it.
    pub(super) async fn read_restrictions(
        &self,
        key: &ApiKey,
        version: u64,
    ) -> Result<Option<Arc<VersionedRestrictions>>, Refusal> {
        let Err(_turn) = self.key_lookups.missing_keys.get_value_or_guard_async(&key.id).await else {
            return Err(Refusal::InvalidKey);
        };
        let known = || {
            let known = self.degraded.restrictions_of(key)?;
            (known.versioned.version >= version).then_some(known.versioned)
        };
        if let Some(known) = known() {
            return Ok(Some(known));
        }
        for _ in 0..LOOKUPS_MAX {
            // The local record lacks a change. Unless it is read now, the key is not admitted without Redis either.
            self.degraded.report_change(key.id);
            match &self.backend {
                // Redis has compared the secret.
                Backend::Stores(_) => self.look_up_local_key(key.id, true).await?,
                Backend::Home(home) => self.look_up_at_home(home, key).await?,
            }
            let read = known();
            if read.is_some() {
                return Ok(read);
            }
        }
        tracing::error!(key = %key.id, version, "PostgreSQL does not have these restrictions");
        Err(Refusal::Internal)
    }
}
