//! The names of keys in Redis. All Redis keys of one API key share the hash tag of its bucket, so a request touches one
//! cluster slot.

use std::sync::LazyLock;

use ipseity_domain::KeyId;
use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

/// Number of buckets that API keys are distributed over.
pub(crate) const BUCKET_COUNT: u16 = 1024;

/// The first part of every name, so that nodes with different layouts can share one Redis during an upgrade.
const LAYOUT_VERSION: &str = "i3";
/// The layout that an upgrade takes records over from.
const PREVIOUS_LAYOUT_VERSION: &str = "i2";

/// Patterns of all keys, also of the previous layout.
pub(crate) const KEY_PATTERNS: [&str; 2] = ["i3:*", "i2:*"];
/// The pattern of all key records.
pub(crate) const RECORD_PATTERN: &str = "i3:*:k:*";

/// One of the 16,384 slots of a cluster. Each slot belongs to one primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashSlot(pub(crate) u16);

impl HashSlot {
    /// The slot of a Redis key. All keys with the same hash tag share one slot.
    pub(crate) fn of(key: &str) -> Self {
        let tag = key.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
        Self(crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % 16_384)
    }
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

/// The prefix of each bucket, including its hash tag.
static BUCKET_PREFIXES: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..BUCKET_COUNT).map(|bucket| format!("{LAYOUT_VERSION}:{{b{bucket:04}}}:")).collect());

/// The slot of each bucket.
static BUCKET_SLOTS: LazyLock<Vec<HashSlot>> =
    LazyLock::new(|| Bucket::all().map(|bucket| HashSlot::of(&bucket.fence_key())).collect());

/// A group of API keys with one hash tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bucket(u16);

impl Bucket {
    pub(crate) fn of(id: KeyId) -> Self {
        // FNV-1a is good enough, because ids are random.
        let hash = id
            .as_bytes()
            .iter()
            .fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self((hash % u32::from(BUCKET_COUNT)) as u16)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..BUCKET_COUNT).map(Self)
    }

    pub(crate) fn slot(self) -> HashSlot {
        BUCKET_SLOTS[usize::from(self.0)]
    }

    fn prefix(self) -> &'static str {
        &BUCKET_PREFIXES[usize::from(self.0)]
    }

    pub(crate) fn record_key(self, id: KeyId) -> RedisKey {
        RedisKey::concat([self.prefix().as_bytes(), b"k:", id.as_bytes()])
    }

    pub(crate) fn log_key(self, id: KeyId) -> RedisKey {
        RedisKey::concat([self.prefix().as_bytes(), b"log:", id.as_bytes()])
    }

    pub(crate) fn pending_pauses_key(self) -> String {
        [self.prefix(), "pending"].concat()
    }

    pub(crate) fn fence_key(self) -> String {
        [self.prefix(), "fence"].concat()
    }

    /// Counts that PostgreSQL may not have yet.
    pub(crate) fn unflushed_key(self) -> String {
        [self.prefix(), "unflushed"].concat()
    }

    /// The last reconciled batch of each node.
    pub(crate) fn reconciled_key(self, id: KeyId) -> String {
        format!("{}reconciled:{id}", self.prefix())
    }

    /// Set by the node that sweeps the servers' buckets, of which this is the first.
    pub(crate) fn sweep_lease_key(self) -> String {
        [self.prefix(), "sweep"].concat()
    }

    /// The record in the previous layout.
    pub(crate) fn previous_record_key(self, id: KeyId) -> String {
        format!("{PREVIOUS_LAYOUT_VERSION}:{{b{:04}}}:k:{id}", self.0)
    }
}

/// A Redis key without a heap allocation. Every charge has two.
pub(crate) struct RedisKey {
    bytes: [u8; REDIS_KEY_BYTES_MAX],
    len: usize,
}

/// The longest is a log key: a prefix of 11 bytes, `log:`, and an id of 10 bytes.
const REDIS_KEY_BYTES_MAX: usize = 25;

impl RedisKey {
    fn concat(parts: [&[u8]; 3]) -> Self {
        let mut key = Self { bytes: [0; REDIS_KEY_BYTES_MAX], len: 0 };
        for part in parts {
            let end = key.len + part.len();
            key.bytes[key.len..end].copy_from_slice(part);
            key.len = end;
        }
        key
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl ToRedisArgs for RedisKey {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.as_bytes());
    }
}

impl ToSingleRedisArg for RedisKey {}

/// The record of the demo quota.
pub(crate) fn demo_key() -> String {
    format!("{LAYOUT_VERSION}:{{demo}}:count")
}

/// The marker of a reconciled demo batch.
pub(crate) fn demo_reconciled_key(batch_id: u64) -> String {
    format!("{LAYOUT_VERSION}:{{demo}}:reconciled:{batch_id:016x}")
}

/// The deployment that the data belongs to, and the id of the data set.
pub(crate) fn deployment_key() -> String {
    format!("{LAYOUT_VERSION}:{{deployment}}:id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_keys_of_one_api_key_share_one_hash_tag() {
        let id = KeyId::parse("0123456789").expect("valid id");
        let bucket = Bucket::of(id);
        let redis_keys = [bucket.record_key(id), bucket.log_key(id)]
            .map(|redis_key| String::from_utf8_lossy(redis_key.as_bytes()).into_owned());
        assert!(redis_keys[1].ends_with("}:log:0123456789"), "{redis_keys:?}");
        let bucket_keys = [bucket.pending_pauses_key(), bucket.fence_key(), bucket.unflushed_key()];
        let other_keys = [bucket.reconciled_key(id), bucket.previous_record_key(id), bucket.sweep_lease_key()];
        for redis_key in redis_keys.into_iter().chain(bucket_keys).chain(other_keys) {
            assert_eq!(HashSlot::of(&redis_key), bucket.slot());
        }
    }

    #[test]
    fn hash_slot_is_the_crc16_of_the_hash_tag() {
        // The check value of CRC-16/XMODEM, and results of `CLUSTER KEYSLOT`.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (redis_key, slot) in [("foo", 12182), ("i2:{foo}:k:1", 12182), ("{}foo", 9500), ("i2:{b0412}:fence", 2150)]
        {
            assert_eq!(HashSlot::of(redis_key), HashSlot(slot), "{redis_key}");
        }
    }
}
