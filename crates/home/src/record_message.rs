//! The message with the record of a key.

use std::sync::Arc;

use ipseity_domain::restrictions::network::AllowedNetwork;
use ipseity_domain::restrictions::origin::AllowedOrigin;
use ipseity_domain::{
    ApiKey, BURST_LIMIT_MAX, DailyUsage, KeyDigest, KeyFlags, KeyRecord, PreviousDigest, Restrictions, Scope, UtcDay,
    VersionedRestrictions,
};
use serde::{Deserialize, Serialize};

use crate::message::{is_specified_burst_limit, specified_burst_limit};

/// The record of a key, without the digests that the remote node did not send.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordMessage {
    scope: String,
    daily_limit: u64,
    #[serde(default = "specified_burst_limit", skip_serializing_if = "is_specified_burst_limit")]
    burst_limit: usize,
    deactivated: bool,
    paused: bool,
    generation: u64,
    burst_epoch: u64,
    /// Day and count of the newest days with requests.
    usage: Vec<(u32, u64)>,
    /// When the digest expires, if it is that of the previous secret.
    expires_at_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    restrictions: Option<RestrictionsMessage>,
}

impl RecordMessage {
    /// The message for a remote node that has seen a secret. `None` if it is not a secret of the key.
    #[must_use]
    pub fn new(record: &KeyRecord, digest: &KeyDigest, now_s: u64) -> Option<Self> {
        let previous = record.previous.filter(|previous| previous.digest == *digest && record.digest != *digest);
        let usage = [record.usage, record.previous_usage].into_iter().flatten();
        record.accepts(digest, now_s).then(|| Self {
            scope: record.scope.name().to_owned(),
            daily_limit: record.daily_limit,
            burst_limit: record.burst_limit,
            deactivated: record.flags.deactivated,
            paused: record.flags.paused,
            generation: record.generation,
            burst_epoch: record.burst_epoch,
            usage: usage.map(|usage| (usage.day.0, usage.count)).collect(),
            expires_at_s: previous.map(|previous| previous.expires_at_s),
            restrictions: record.restrictions.as_deref().map(Into::into),
        })
    }

    /// The record of the key whose digest the remote node has sent, if its scope is known.
    #[must_use]
    pub fn parse(self, key: &ApiKey) -> Option<KeyRecord> {
        let mut usage = self.usage.iter().map(|(day, count)| DailyUsage { day: UtcDay(*day), count: *count });
        let previous = self.expires_at_s.map(|expires_at_s| PreviousDigest { digest: key.digest, expires_at_s });
        Some(KeyRecord {
            id: key.id,
            // The current digest is not known if the previous one was sent.
            digest: if previous.is_some() { KeyDigest::new([0; 32]) } else { key.digest },
            previous,
            scope: Scope::parse(&self.scope)?,
            daily_limit: self.daily_limit,
            burst_limit: self.burst_limit.clamp(1, BURST_LIMIT_MAX),
            restrictions: match self.restrictions {
                Some(restrictions) => Some(Arc::new(restrictions.parse()?)),
                None => None,
            },
            flags: KeyFlags { deactivated: self.deactivated, paused: self.paused },
            generation: self.generation,
            burst_epoch: self.burst_epoch,
            usage: usage.next(),
            previous_usage: usage.next(),
        })
    }
}

/// The restrictions of a key.
#[derive(Debug, Serialize, Deserialize)]
struct RestrictionsMessage {
    version: u64,
    origins: Vec<String>,
    networks: Vec<String>,
    expires_at_s: Option<u64>,
    caller_limit: Option<u32>,
    tickets_only: bool,
    tickets_since: u64,
}

impl From<&VersionedRestrictions> for RestrictionsMessage {
    fn from(VersionedRestrictions { version, restrictions }: &VersionedRestrictions) -> Self {
        Self {
            version: *version,
            origins: restrictions.origins.iter().map(|origin| origin.as_str().to_owned()).collect(),
            networks: restrictions.networks.iter().map(ToString::to_string).collect(),
            expires_at_s: restrictions.expires_at_s,
            caller_limit: restrictions.caller_limit,
            tickets_only: restrictions.tickets_only,
            tickets_since: restrictions.tickets_since,
        }
    }
}

impl RestrictionsMessage {
    /// The restrictions, if they are valid. The record has the daily limit.
    fn parse(self) -> Option<VersionedRestrictions> {
        let networks = self.networks.iter().map(|network| AllowedNetwork::parse(network).ok());
        let restrictions = Restrictions {
            origins: self.origins.into_iter().map(AllowedOrigin::from_normalized).collect(),
            networks: networks.collect::<Option<_>>()?,
            expires_at_s: self.expires_at_s,
            caller_limit: self.caller_limit,
            daily_limit: None,
            tickets_only: self.tickets_only,
            tickets_since: self.tickets_since,
        };
        Some(VersionedRestrictions { version: self.version, restrictions })
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::KeyId;

    use super::*;

    fn key(digest: u8) -> ApiKey {
        ApiKey { id: KeyId::parse("0123456789").expect("valid id"), digest: KeyDigest::new([digest; 32]) }
    }

    fn restrictions() -> VersionedRestrictions {
        let restrictions = Restrictions {
            origins: vec![AllowedOrigin::parse("https://*.example.com").expect("valid origin")],
            networks: vec![AllowedNetwork::parse("2001:db8::/32").expect("valid network")],
            expires_at_s: Some(9),
            caller_limit: Some(30),
            daily_limit: None,
            tickets_only: true,
            tickets_since: 5,
        };
        VersionedRestrictions { version: 8, restrictions }
    }

    fn record() -> KeyRecord {
        KeyRecord {
            id: key(1).id,
            digest: key(1).digest,
            previous: Some(PreviousDigest { digest: key(2).digest, expires_at_s: 100 }),
            scope: Scope::Geo,
            daily_limit: 1000,
            burst_limit: 600,
            restrictions: Some(Arc::new(restrictions())),
            flags: KeyFlags { deactivated: false, paused: true },
            generation: 7,
            burst_epoch: 3,
            usage: Some(DailyUsage { day: UtcDay(2), count: 5 }),
            previous_usage: Some(DailyUsage { day: UtcDay(1), count: 9 }),
        }
    }

    #[test]
    fn record_contains_only_the_digest_that_was_sent() {
        let current = RecordMessage::new(&record(), &key(1).digest, 50).expect("current secret");
        let current = serde_json::to_string(&current).expect("message is serialized");
        let current: RecordMessage = serde_json::from_str(&current).expect("message parses");
        let current = current.parse(&key(1)).expect("record parses");
        assert_eq!(current, KeyRecord { previous: None, ..record() });
        let message = RecordMessage::new(&record(), &key(2).digest, 50).expect("previous secret");
        let text = serde_json::to_string(&message).expect("message is serialized");
        assert!(!text.contains("01010101") && !text.contains("02020202"), "{text}");
        let previous = message.parse(&key(2)).expect("record parses");
        assert!(previous.accepts(&key(2).digest, 50) && !previous.accepts(&key(2).digest, 100));
        assert!(!previous.accepts(&key(1).digest, 50));
        assert!(RecordMessage::new(&record(), &key(2).digest, 100).is_none(), "expired");
        assert!(RecordMessage::new(&record(), &key(3).digest, 50).is_none(), "made up");
    }
}
