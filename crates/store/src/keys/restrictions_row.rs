//! The columns with the restrictions of a key.

use std::sync::Arc;

use ipseity_domain::restrictions::network::AllowedNetwork;
use ipseity_domain::restrictions::origin::AllowedOrigin;
use ipseity_domain::{Restrictions, VersionedRestrictions};
use sqlx::FromRow;

/// The columns of [`RestrictionsRow`], of the key `k`.
macro_rules! restriction_columns {
    () => {
        "k.restriction_version, k.allowed_origins, k.allowed_networks::text[] as allowed_networks,
         floor(extract(epoch from k.expires_at))::bigint as expires_at_s, k.caller_limit, k.own_daily_limit,
         k.tickets_only, k.tickets_since"
    };
}
pub(crate) use restriction_columns;

#[derive(FromRow)]
pub(crate) struct RestrictionsRow {
    restriction_version: i64,
    allowed_origins: Vec<String>,
    allowed_networks: Vec<String>,
    expires_at_s: Option<i64>,
    caller_limit: Option<i32>,
    own_daily_limit: Option<i64>,
    tickets_only: bool,
    tickets_since: i64,
}

impl RestrictionsRow {
    /// `None` only for a row that violates the checks of the schema. A key that was never restricted has no restrictions.
    pub(crate) fn into_restrictions(self) -> Option<Option<Arc<VersionedRestrictions>>> {
        if self.restriction_version == 0 {
            return Some(None);
        }
        let networks = self.allowed_networks.iter().map(|network| AllowedNetwork::parse(network).ok());
        let restrictions = Restrictions {
            origins: self.allowed_origins.into_iter().map(AllowedOrigin::from_normalized).collect(),
            networks: networks.collect::<Option<_>>()?,
            expires_at_s: self.expires_at_s.map(i64::unsigned_abs),
            caller_limit: self.caller_limit.map(i32::unsigned_abs),
            daily_limit: self.own_daily_limit.map(i64::unsigned_abs),
            tickets_only: self.tickets_only,
            tickets_since: self.tickets_since.unsigned_abs(),
        };
        let version = self.restriction_version.unsigned_abs();
        Some(Some(Arc::new(VersionedRestrictions { version, restrictions })))
    }
}
