//! Measures the time to open the given files and to locate random IPv4 addresses.

use std::error::Error;
use std::hint::black_box;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use ipseity_domain::Address;
use ipseity_geo::{Atlas, AtlasSources};

const LOOKUPS: u32 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    let files: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    let start = Instant::now();
    let atlas = Atlas::open(&AtlasSources { files, ..AtlasSources::default() })?;
    writeln!(out, "open: {:?}", start.elapsed())?;
    for edition in atlas.editions() {
        writeln!(out, "{edition:?}")?;
    }

    let addresses: Vec<_> = (0..LOOKUPS).map(|_| Address::new(Ipv4Addr::from_bits(fastrand::u32(..)).into())).collect();
    let now_s = 1_790_000_000;
    let start = Instant::now();
    black_box(atlas.locate(addresses[0], now_s));
    writeln!(out, "first locate: {:?}", start.elapsed())?;
    for (label, distinct) in [("all different", addresses.len()), ("1,000 repeated", 1_000)] {
        let start = Instant::now();
        for address in addresses[..distinct].iter().cycle().take(addresses.len()) {
            black_box(atlas.locate(*address, now_s));
        }
        writeln!(out, "locate, {label}: {:?} each", start.elapsed() / LOOKUPS)?;
    }
    Ok(())
}
