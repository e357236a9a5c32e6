//! Names in the counter store. One call touches one slot, on a cluster too: a key's whole state shares its bucket's hash tag.

use domain::KeyId;

/// Buckets that keys are spread over.
pub(crate) const BUCKETS: u16 = 1024;

/// The version of the layout stands first: old and new binaries can share a store during an upgrade.
const LAYOUT: &str = "i1";

/// One of the buckets.
#[derive(Clone, Copy)]
pub(crate) struct Bucket(u16);

impl Bucket {
    pub(crate) fn of(id: KeyId) -> Self {
        // FNV-1a: ids are random already, it only has to fold ten bytes.
        let hash =
            id.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        Self((hash % u32::from(BUCKETS)) as u16)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..BUCKETS).map(Self)
    }

    pub(crate) fn record(self, id: KeyId) -> String {
        format!("{LAYOUT}:{{b{:04}}}:k:{id}", self.0)
    }

    pub(crate) fn log(self, id: KeyId) -> String {
        format!("{LAYOUT}:{{b{:04}}}:log:{id}", self.0)
    }

    pub(crate) fn pending(self) -> String {
        format!("{LAYOUT}:{{b{:04}}}:pending", self.0)
    }

    pub(crate) fn fence(self) -> String {
        format!("{LAYOUT}:{{b{:04}}}:fence", self.0)
    }
}

/// The demo's record.
pub(crate) fn demo() -> String {
    format!("{LAYOUT}:{{demo}}:count")
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
        for name in [bucket.record(id), bucket.log(id), bucket.pending(), bucket.fence()] {
            assert_eq!(name.split('}').next(), bucket.fence().split('}').next());
        }
    }
}
