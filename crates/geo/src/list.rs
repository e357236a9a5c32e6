//! An operator's own lists of AS numbers.
//!
//! Two forms, told apart line by line: `AS64496 # a name` and CSV with the number in the first column. A first line that
//! does not begin with a number is a heading.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::GeoError;
use crate::networks::{self, Mark};

/// Bytes of a list: ten times one with every AS number in use.
const LIST_BYTES_MAX: u64 = 32 << 20;

/// The operator's lists beside the project's own.
#[derive(Default)]
pub(crate) struct Lists {
    hosting: Vec<u32>,
    proxy: Vec<u32>,
}

impl Lists {
    pub(crate) fn open(hosting: &[PathBuf], proxy: &[PathBuf]) -> Result<Self, GeoError> {
        Ok(Self { hosting: open_all(hosting)?, proxy: open_all(proxy)? })
    }

    /// Whether a network bears a mark, by any list.
    pub(crate) fn marks(&self, asn: u32, mark: Mark) -> bool {
        let own = match mark {
            Mark::Hosting => &self.hosting,
            Mark::Proxy => &self.proxy,
        };
        networks::is_listed(asn, mark) || own.binary_search(&asn).is_ok()
    }
}

fn open_all(paths: &[PathBuf]) -> Result<Vec<u32>, GeoError> {
    let mut numbers = Vec::new();
    for path in paths {
        numbers.extend(parse(path, &read(path)?)?);
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn read(path: &Path) -> Result<String, GeoError> {
    let unreadable = |reason| GeoError::Unreadable { path: path.to_owned(), reason };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(LIST_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LIST_BYTES_MAX {
        return Err(GeoError::TooLarge { path: path.to_owned(), bytes_max: LIST_BYTES_MAX });
    }
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<u32>, GeoError> {
    let mut numbers = Vec::new();
    let mut is_first = true;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}').split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match number(line) {
            Some(number) => numbers.push(number),
            None if is_first => {}
            None => return Err(GeoError::BadLine { path: path.to_owned(), line: index + 1 }),
        }
        is_first = false;
    }
    Ok(numbers)
}

/// The AS number that a line begins with.
fn number(line: &str) -> Option<u32> {
    let word = line.split([',', ';', ' ', '\t']).next()?.trim_matches('"');
    let digits = match word.get(..2) {
        Some(prefix) if prefix.eq_ignore_ascii_case("as") => &word[2..],
        _ => word,
    };
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<u32>, GeoError> {
        parse(Path::new("list"), text)
    }

    #[test]
    fn plain_lines_and_csv_are_read() {
        let plain = "# ours\n\nAS64496 # a name, with a comma\nas64497\n64498\n  AS64499\t# x\r\n";
        assert_eq!(parsed(plain).expect("a list"), [64496, 64497, 64498, 64499]);
        let csv = "\u{feff}ASN,Organization\n64496,A\n\"64497\",\"B, C\"\nAS64498;D\n";
        assert_eq!(parsed(csv).expect("a list"), [64496, 64497, 64498]);
        assert_eq!(parsed("").expect("a list"), []);
    }

    #[test]
    fn a_line_without_a_number_is_named() {
        for (text, line) in [("64496\nnonsense\n", 2), ("asn,name\n\n# x\nname,64496\n", 4), ("64496\n-1\n", 2)] {
            let error = parsed(text).expect_err("a bad line");
            assert!(matches!(error, GeoError::BadLine { line: found, .. } if found == line), "{error}");
        }
        assert!(parsed("x\n4294967296\n").is_err(), "larger than any AS number");
    }
}
