//! AS number lists of the node's operator.
//!
//! A line is either `AS64496 # a name` or CSV with the number in the first column. A first line that does not start
//! with a number is a heading.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::builtin_asn_list::{self, AsnCategory};
use crate::error::GeoError;

/// Maximum size of a list: ten times a list of all assigned AS numbers.
const LIST_BYTES_MAX: u64 = 32 << 20;

/// The operator's lists, which extend the built-in list.
#[derive(Default)]
pub(crate) struct AsnLists {
    hosting: Vec<u32>,
    proxy: Vec<u32>,
}

impl AsnLists {
    pub(crate) fn open(hosting: &[PathBuf], proxy: &[PathBuf]) -> Result<Self, GeoError> {
        Ok(Self { hosting: read_lists(hosting)?, proxy: read_lists(proxy)? })
    }

    /// Whether any list of the category contains the AS number.
    pub(crate) fn contains(&self, asn: u32, category: AsnCategory) -> bool {
        let operator_list = match category {
            AsnCategory::Hosting => &self.hosting,
            AsnCategory::Proxy => &self.proxy,
        };
        builtin_asn_list::is_in_builtin_list(asn, category) || operator_list.binary_search(&asn).is_ok()
    }
}

fn read_lists(paths: &[PathBuf]) -> Result<Vec<u32>, GeoError> {
    let mut asns = Vec::new();
    for path in paths {
        asns.extend(parse_list(path, &read_list(path)?)?);
    }
    asns.sort_unstable();
    asns.dedup();
    Ok(asns)
}

fn read_list(path: &Path) -> Result<String, GeoError> {
    let unreadable = |reason| GeoError::Unreadable { path: path.to_owned(), reason };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(LIST_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LIST_BYTES_MAX {
        return Err(GeoError::TooLarge { path: path.to_owned(), bytes_max: LIST_BYTES_MAX });
    }
    Ok(text)
}

fn parse_list(path: &Path, text: &str) -> Result<Vec<u32>, GeoError> {
    let mut asns = Vec::new();
    let mut is_first = true;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}').split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match parse_asn(line) {
            Some(asn) => asns.push(asn),
            None if is_first => {}
            None => return Err(GeoError::InvalidAsnLine { path: path.to_owned(), line: index + 1 }),
        }
        is_first = false;
    }
    Ok(asns)
}

/// The AS number at the start of a line.
fn parse_asn(line: &str) -> Option<u32> {
    let token = line.split([',', ';', ' ', '\t']).next()?.trim_matches('"');
    let digits = match token.get(..2) {
        Some(prefix) if prefix.eq_ignore_ascii_case("as") => &token[2..],
        _ => token,
    };
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> Result<Vec<u32>, GeoError> {
        parse_list(Path::new("list"), text)
    }

    #[test]
    fn plain_and_csv_asn_lists_are_parsed() {
        let plain = "# ours\n\nAS64496 # a name, with a comma\nas64497\n64498\n  AS64499\t# x\r\n";
        assert_eq!(parse_text(plain).expect("list parses"), [64496, 64497, 64498, 64499]);
        let csv = "\u{feff}ASN,Organization\n64496,A\n\"64497\",\"B, C\"\nAS64498;D\n";
        assert_eq!(parse_text(csv).expect("list parses"), [64496, 64497, 64498]);
        assert_eq!(parse_text("").expect("list parses"), []);
    }

    #[test]
    fn error_names_the_line_without_an_as_number() {
        for (text, line) in [("64496\nnonsense\n", 2), ("asn,name\n\n# x\nname,64496\n", 4), ("64496\n-1\n", 2)] {
            let error = parse_text(text).expect_err("invalid line is rejected");
            assert!(matches!(error, GeoError::InvalidAsnLine { line: found, .. } if found == line), "{error}");
        }
        assert!(parse_text("x\n4294967296\n").is_err(), "larger than any AS number");
    }
}
