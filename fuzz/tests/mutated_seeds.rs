//! Checks the fuzz targets' properties with seeds that are mutated the same way in every run. `just fuzz` runs longer.

use std::path::Path;

use ipseity_fuzz::{FuzzTarget, TARGETS};

const MUTATIONS: usize = 5_000;
/// Mutations of a target that opens a connection for each.
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
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("seeds exist").map(|entry| entry.expect("seed is readable").path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).expect("seed is readable")).collect()
}

fn check_mutated_seeds(target: &FuzzTarget, rounds: usize) {
    let (seeds, mut random) = (read_seeds(target.name), fastrand::Rng::with_seed(0x2545_F491_4F6C_DD1D));
    seeds.iter().for_each(|seed| (target.check)(seed));
    for _ in 0..rounds {
        let (one, other) = (random.usize(..seeds.len()), random.usize(..seeds.len()));
        (target.check)(&mutate(&mut random, &seeds[one], &seeds[other]));
    }
}

#[test]
fn parser_properties_hold_for_mutated_seeds() {
    for target in TARGETS.iter().filter(|target| target.name != "accept") {
        check_mutated_seeds(target, MUTATIONS);
    }
}

#[test]
fn listeners_survive_mutated_seeds() {
    let target = TARGETS.iter().find(|target| target.name == "accept").expect("target exists");
    check_mutated_seeds(target, CONNECTIONS);
}
