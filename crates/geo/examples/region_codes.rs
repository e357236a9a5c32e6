//! Reads every record of the given files and prints each combination of country, region and region code once, as JSON.
//!
//! The last line counts the records.

use std::collections::HashSet;
use std::error::Error;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use ipseity_geo::{Atlas, AtlasSources};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    let atlas = Atlas::open(&AtlasSources { files, ..AtlasSources::default() })?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut records = 0_u64;
    let mut seen = HashSet::new();
    atlas.for_each_record(0, |facts| {
        records += 1;
        let location = facts.location;
        let combination =
            json!({ "country": location.country, "region": location.region, "region_code": location.region_code })
                .to_string();
        seen.insert(combination);
    })?;
    for combination in seen {
        writeln!(out, "{combination}")?;
    }
    writeln!(out, "{}", json!({ "records": records }))?;
    Ok(out.flush()?)
}
