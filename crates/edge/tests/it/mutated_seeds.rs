//! Checks the fuzz targets' properties with seeds that are mutated the same way in every run. `just fuzz` runs longer.

use std::path::Path;

use ipseity_edge::ForwardingHeader;

#[path = "../../../../fuzz/listeners.rs"]
mod listeners;
#[path = "../../../../fuzz/properties.rs"]
mod properties;

const MUTATIONS: usize = 20_000;
/// Mutations that need a connection each.
const CONNECTIONS: usize = 1_000;

/// A copy with a few bytes changed, removed, inserted, or copied from the other seed.
fn mutate(random: &mut fastrand::Rng, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut mutated = bytes.to_vec();
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(..=mutated.len());
        match random.usize(..4) {
            0 => mutated.truncate(at),
            1 => mutated.insert(at, random.u8(..)),
            2 => mutated.extend_from_slice(&other[random.usize(..=other.len())..]),
            _ => {
                if let Some(byte) = mutated.get_mut(at) {
                    *byte ^= 1 << random.usize(..8);
                }
            }
        }
    }
    mutated
}

fn read_seeds(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("seeds exist").map(|entry| entry.expect("seed is readable").path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).expect("seed is readable")).collect()
}

fn check_property(target: &str, rounds: usize, property: impl Fn(&[u8])) {
    let (seeds, mut random) = (read_seeds(target), fastrand::Rng::with_seed(0x2545_F491_4F6C_DD1D));
    seeds.iter().for_each(|seed| property(seed));
    for _ in 0..rounds {
        let (one, other) = (random.usize(..seeds.len()), random.usize(..seeds.len()));
        let mutated = mutate(&mut random, &seeds[one], &seeds[other]);
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
