//! The fuzz targets' properties for a while: their seeds, bent at random, from a fixed beginning. `just fuzz` goes on for longer.

use std::path::Path;

use edge::ForwardingHeader;

#[path = "../../../../fuzz/doors.rs"]
mod doors;
#[path = "../../../../fuzz/properties.rs"]
mod properties;

const ROUNDS: usize = 20_000;
/// Each of these is a connection.
const KNOCKS: usize = 1_000;

/// Marsaglia's xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).expect("a bound")).expect("below the bound")
    }

    /// A copy with a few bytes changed, left out, put in, or taken from elsewhere.
    fn bend(&mut self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bent = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bent.len() + 1);
            match self.below(4) {
                0 => bent.truncate(at),
                1 => bent.insert(at, u8::try_from(self.below(256)).expect("a byte")),
                2 => bent.extend_from_slice(&other[self.below(other.len() + 1)..]),
                _ => {
                    if let Some(byte) = bent.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
        bent
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("seeds").map(|entry| entry.expect("a seed").path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).expect("a seed")).collect()
}

fn hold(target: &str, rounds: usize, property: impl Fn(&[u8])) {
    let (seeds, mut random) = (seeds(target), Random(0x2545_F491_4F6C_DD1D));
    seeds.iter().for_each(|seed| property(seed));
    for _ in 0..rounds {
        let (one, other) = (random.below(seeds.len()), random.below(seeds.len()));
        let bent = random.bend(&seeds[one], &seeds[other]);
        property(&bent);
    }
}

#[test]
fn every_property_holds_for_bent_seeds() {
    hold("key", ROUNDS, |bytes| properties::key(&String::from_utf8_lossy(bytes)));
    hold("authorization", ROUNDS, properties::authorization);
    hold("x_forwarded_for", ROUNDS, |bytes| properties::forwarding(ForwardingHeader::XForwardedFor, bytes));
    hold("forwarded", ROUNDS, |bytes| properties::forwarding(ForwardingHeader::Forwarded, bytes));
    hold("proxy_header", ROUNDS, properties::proxy_header);
}

#[test]
fn every_door_outlasts_bent_seeds() {
    let doors = doors::Doors::open();
    hold("accept", KNOCKS, |bytes| doors.knock(bytes));
}
