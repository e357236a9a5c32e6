//! Names in the counter store. One call touches one slot, on a cluster too: a key's whole state shares its bucket's hash tag.

use std::sync::LazyLock;

use ipseity_domain::KeyId;
use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

/// Buckets that keys are spread over.
pub(crate) const BUCKET_COUNT: u16 = 1024;

/// The version of the layout stands first: old and new binaries can share a store during an upgrade.
const LAYOUT_VERSION: &str = "i2";

/// One of the 16,384 slots of a cluster; each belongs to one primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HashSlot(pub(crate) u16);

impl HashSlot {
    /// The slot of a name: all names with the same hash tag share one.
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

/// What the names of each bucket begin with, up to and with its hash tag.
static BUCKET_PREFIXES: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..BUCKET_COUNT).map(|bucket| format!("{LAYOUT_VERSION}:{{b{bucket:04}}}:")).collect());

/// The slot of each bucket.
static BUCKET_SLOTS: LazyLock<Vec<HashSlot>> =
    LazyLock::new(|| Bucket::all().map(|bucket| HashSlot::of(&bucket.fence_key())).collect());

/// One of the buckets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket(u16);

impl Bucket {
    pub(crate) fn of(id: KeyId) -> Self {
        // FNV-1a: ids are random already, it only has to fold ten bytes.
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

    /// What all names of the bucket begin with.
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

    /// Stands once a batch of a key was settled.
    pub(crate) fn reconciled_key(self, id: KeyId, batch_id: u64) -> String {
        format!("{}settled:{id}:{batch_id:016x}", self.prefix())
    }
}

/// A name of a key's in memory that need not be asked for: every charge has two.
pub(crate) struct RedisKey {
    bytes: [u8; REDIS_KEY_BYTES_MAX],
    len: usize,
}

/// The longest is that of a log: eleven bytes of the bucket, four of the kind, ten of the id.
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

/// The demo's record.
pub(crate) fn demo_key() -> String {
    format!("{LAYOUT_VERSION}:{{demo}}:count")
}

/// Stands once a batch of the demo's was settled.
pub(crate) fn demo_reconciled_key(batch_id: u64) -> String {
    format!("{LAYOUT_VERSION}:{{demo}}:settled:{batch_id:016x}")
}

/// Held by the node whose turn it is to sweep.
pub(crate) fn pause_claim_key() -> String {
    format!("{LAYOUT_VERSION}:{{sweep}}:turn")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_keys_of_one_api_key_share_one_hash_tag() {
        let id = KeyId::parse("0123456789").expect("an id");
        let bucket = Bucket::of(id);
        let redis_keys = [bucket.record_key(id), bucket.log_key(id)]
            .map(|redis_key| String::from_utf8_lossy(redis_key.as_bytes()).into_owned());
        assert!(redis_keys[1].ends_with("}:log:0123456789"), "{redis_keys:?}");
        for redis_key in redis_keys.into_iter().chain([bucket.pending_pauses_key(), bucket.fence_key()]) {
            assert_eq!(redis_key.split('}').next(), bucket.fence_key().split('}').next());
            assert_eq!(HashSlot::of(&redis_key), bucket.slot());
        }
    }

    #[test]
    fn hash_slot_is_the_crc16_of_the_hash_tag() {
        // CRC-16/XMODEM's check value, and what `CLUSTER KEYSLOT` says.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (redis_key, slot) in [("foo", 12182), ("i2:{foo}:k:1", 12182), ("{}foo", 9500), ("i2:{b0412}:fence", 2150)]
        {
            assert_eq!(HashSlot::of(redis_key), HashSlot(slot), "{redis_key}");
        }
    }
}
