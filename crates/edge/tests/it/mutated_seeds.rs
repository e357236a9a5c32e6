//! Checks the properties of the fuzz targets with randomly mutated seeds and a fixed random seed. `just fuzz` runs
//! longer.

use std::path::Path;

use ipseity_edge::ForwardingHeader;

#[path = "../../../../fuzz/listeners.rs"]
mod listeners;
#[path = "../../../../fuzz/properties.rs"]
mod properties;

const MUTATIONS: usize = 20_000;
/// Mutations that need a connection each.
const CONNECTIONS: usize = 1_000;

/// Marsaglia's xorshift, so that every run has the same numbers.
struct Xorshift(u64);

impl Xorshift {
    fn next_below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit.max(1)).expect("limit fits")).expect("value is below the limit")
    }

    /// A copy with a few bytes changed, removed, inserted, or copied from the other seed.
    fn mutate(&mut self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let mut mutated = bytes.to_vec();
        for _ in 0..=self.next_below(4) {
            let at = self.next_below(mutated.len() + 1);
            match self.next_below(4) {
                0 => mutated.truncate(at),
                1 => mutated.insert(at, u8::try_from(self.next_below(256)).expect("value is below 256")),
                2 => mutated.extend_from_slice(&other[self.next_below(other.len() + 1)..]),
                _ => {
                    if let Some(byte) = mutated.get_mut(at) {
                        *byte ^= 1 << self.next_below(8);
                    }
                }
            }
        }
        mutated
    }
}

fn read_seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("seeds exist").map(|entry| entry.expect("seed is readable").path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).expect("seed is readable")).collect()
}

fn check_property(target: &str, rounds: usize, property: impl Fn(&[u8])) {
    let (seeds, mut random) = (read_seeds(target), Xorshift(0x2545_F491_4F6C_DD1D));
    seeds.iter().for_each(|seed| property(seed));
    for _ in 0..rounds {
        let (one, other) = (random.next_below(seeds.len()), random.next_below(seeds.len()));
        let mutated = random.mutate(&seeds[one], &seeds[other]);
        property(&mutated);
    }
}

#[test]
fn parser_properties_hold_for_mutated_seeds() {
    check_property("key", MUTATIONS, |bytes| properties::check_key(&String::from_utf8_lossy(bytes)));
    check_property("authorization", MUTATIONS, properties::check_authorization);
    check_property("x_forwarded_for", MUTATIONS, |bytes| {
        properties::check_forwarding(ForwardingHeader::XForwardedFor, bytes)
    });
    check_property("forwarded", MUTATIONS, |bytes| properties::check_forwarding(ForwardingHeader::Forwarded, bytes));
    check_property("proxy_header", MUTATIONS, properties::check_proxy_header);
}

#[test]
fn listeners_survive_mutated_seeds() {
    let listeners = listeners::FuzzListeners::start();
    check_property("accept", CONNECTIONS, |bytes| listeners.send_input(bytes));
}
