//! Names in the counter store. One call touches one slot, on a cluster too: a key's whole state shares its bucket's hash tag.

use std::sync::LazyLock;

use domain::KeyId;
use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

/// Buckets that keys are spread over.
pub(crate) const BUCKETS: u16 = 1024;

/// The version of the layout stands first: old and new binaries can share a store during an upgrade.
const LAYOUT: &str = "i2";

/// One of the 16,384 slots of a cluster; each belongs to one primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u16);

impl Slot {
    /// The slot of a name: all names with the same hash tag share one.
    pub(crate) fn of(name: &str) -> Self {
        let tag = name.split_once('{').and_then(|(_, rest)| Some(rest.split_once('}')?.0));
        Self(crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(name).as_bytes()) % 16_384)
    }
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

/// What the names of each bucket begin with, up to and with its hash tag.
static TAGS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..BUCKETS).map(|bucket| format!("{LAYOUT}:{{b{bucket:04}}}:")).collect());

/// The slot of each bucket.
static SLOTS: LazyLock<Vec<Slot>> = LazyLock::new(|| Bucket::all().map(|bucket| Slot::of(&bucket.fence())).collect());

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
        Self((hash % u32::from(BUCKETS)) as u16)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..BUCKETS).map(Self)
    }

    pub(crate) fn slot(self) -> Slot {
        SLOTS[usize::from(self.0)]
    }

    /// What all names of the bucket begin with.
    fn tag(self) -> &'static str {
        &TAGS[usize::from(self.0)]
    }

    pub(crate) fn record(self, id: KeyId) -> Name {
        Name::of([self.tag().as_bytes(), b"k:", id.as_bytes()])
    }

    pub(crate) fn log(self, id: KeyId) -> Name {
        Name::of([self.tag().as_bytes(), b"log:", id.as_bytes()])
    }

    pub(crate) fn pending(self) -> String {
        [self.tag(), "pending"].concat()
    }

    pub(crate) fn fence(self) -> String {
        [self.tag(), "fence"].concat()
    }

    /// Stands once a batch of a key was settled.
    pub(crate) fn settled(self, id: KeyId, batch: u64) -> String {
        format!("{}settled:{id}:{batch:016x}", self.tag())
    }
}

/// A name of a key's in memory that need not be asked for: every charge has two.
pub(crate) struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    length: usize,
}

/// The longest is that of a log: eleven bytes of the bucket, four of the kind, ten of the id.
const NAME_BYTES_MAX: usize = 25;

impl Name {
    fn of(pieces: [&[u8]; 3]) -> Self {
        let mut name = Self { bytes: [0; NAME_BYTES_MAX], length: 0 };
        for piece in pieces {
            let end = name.length + piece.len();
            name.bytes[name.length..end].copy_from_slice(piece);
            name.length = end;
        }
        name
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl ToRedisArgs for Name {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.as_bytes());
    }
}

impl ToSingleRedisArg for Name {}

/// The demo's record.
pub(crate) fn demo() -> String {
    format!("{LAYOUT}:{{demo}}:count")
}

/// Stands once a batch of the demo's was settled.
pub(crate) fn demo_settled(batch: u64) -> String {
    format!("{LAYOUT}:{{demo}}:settled:{batch:016x}")
}

/// Held by the node whose turn it is to sweep.
pub(crate) fn sweep() -> String {
    format!("{LAYOUT}:{{sweep}}:turn")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_a_key_share_one_hash_tag() {
        let id = KeyId::parse("0123456789").expect("an id");
        let bucket = Bucket::of(id);
        let own = [bucket.record(id), bucket.log(id)].map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        assert!(own[1].ends_with("}:log:0123456789"), "{own:?}");
        for name in own.into_iter().chain([bucket.pending(), bucket.fence()]) {
            assert_eq!(name.split('}').next(), bucket.fence().split('}').next());
            assert_eq!(Slot::of(&name), bucket.slot());
        }
    }

    #[test]
    fn a_slot_is_the_crc16_of_the_hash_tag_alone() {
        // CRC-16/XMODEM's check value, and what `CLUSTER KEYSLOT` says.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (name, slot) in [("foo", 12182), ("i2:{foo}:k:1", 12182), ("{}foo", 9500), ("i2:{b0412}:fence", 2150)] {
            assert_eq!(Slot::of(name), Slot(slot), "{name}");
        }
    }
}
