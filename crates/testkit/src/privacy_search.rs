//! Searches bytes for addresses and keys in every encoding in which they could have been written.
//!
//! Four raw bytes occur by chance about once in four gigabytes of random data per address. Search for IPv4 addresses
//! whose bytes are not text.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use aho_corasick::AhoCorasick;
use anyhow::{Context, Result};

use crate::base64::{base64_encodings, base64_substrings};

/// What to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needle {
    /// An address in all its notations.
    Address(IpAddr),
    /// A text, such as a key.
    Text(String),
    /// Bytes in this order.
    Bytes(Vec<u8>),
}

/// How a needle was encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedleEncoding {
    /// Plain text.
    Text,
    /// Two hexadecimal digits per byte, of the text or the address bytes; also if only unprintable bytes are escaped.
    Hex,
    /// Either alphabet, at any offset within a longer encoded text.
    Base64,
    /// Address bytes in network order; for IPv4 also reversed.
    Binary,
    /// The address as a decimal number.
    Decimal,
}

/// A found needle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivacyFinding {
    /// The needle.
    pub needle: Needle,
    /// Its encoding.
    pub encoding: NeedleEncoding,
    /// Where it was found: the caller's name for the bytes, or the file.
    pub source: String,
    /// Offset in bytes.
    pub offset: usize,
}

#[derive(Clone, Copy)]
struct SearchPattern {
    needle: usize,
    encoding: NeedleEncoding,
    boundary: BoundaryRule,
}

/// When a match is only part of something else.
#[derive(Clone, Copy)]
enum BoundaryRule {
    /// Never, because it is long enough to be unambiguous.
    Unrestricted,
    /// If a decimal digit is next to it.
    NoAdjacentDigit,
    /// If a hexadecimal digit is next to it. Eight digits occur by chance about once in a gigabyte of digests per
    /// address.
    NoAdjacentHexDigit,
}

/// A search for many needles.
pub struct PrivacySearch {
    needles: Vec<Needle>,
    /// Patterns where case matters, and where it does not.
    case_sensitive: (AhoCorasick, Vec<SearchPattern>),
    case_insensitive: (AhoCorasick, Vec<SearchPattern>),
    bytes_searched: AtomicU64,
}

impl PrivacySearch {
    /// Prepares a search for these needles.
    pub fn new(needles: impl IntoIterator<Item = Needle>) -> Result<Self> {
        let needles: Vec<Needle> = needles.into_iter().collect();
        let (mut case_sensitive, mut case_insensitive) = (Vec::new(), Vec::new());
        for (index, needle) in needles.iter().enumerate() {
            for (encoding, boundary, bytes) in encodings_of(needle) {
                let list = match encoding {
                    NeedleEncoding::Text | NeedleEncoding::Hex => &mut case_insensitive,
                    NeedleEncoding::Base64 | NeedleEncoding::Binary | NeedleEncoding::Decimal => &mut case_sensitive,
                };
                list.push((SearchPattern { needle: index, encoding, boundary }, bytes));
            }
        }
        let bytes_searched = AtomicU64::new(0);
        Ok(Self {
            needles,
            case_sensitive: build_automaton(case_sensitive, false)?,
            case_insensitive: build_automaton(case_insensitive, true)?,
            bytes_searched,
        })
    }

    /// Number of bytes searched so far.
    #[must_use]
    pub fn searched_bytes(&self) -> u64 {
        self.bytes_searched.load(Ordering::Relaxed)
    }

    /// Searches bytes; findings call them `source`.
    #[must_use]
    pub fn search_bytes(&self, source: &str, bytes: &[u8]) -> Vec<PrivacyFinding> {
        self.bytes_searched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut findings = Vec::new();
        for (automaton, patterns) in [&self.case_sensitive, &self.case_insensitive] {
            for found in automaton.find_overlapping_iter(bytes) {
                let SearchPattern { needle, encoding, boundary } = patterns[found.pattern().as_usize()];
                let neighbors = [found.start().checked_sub(1), Some(found.end())];
                let mut neighbors = neighbors.into_iter().flatten().filter_map(|at| bytes.get(at));
                let is_embedded = match boundary {
                    BoundaryRule::Unrestricted => false,
                    BoundaryRule::NoAdjacentDigit => neighbors.any(u8::is_ascii_digit),
                    BoundaryRule::NoAdjacentHexDigit => neighbors.any(u8::is_ascii_hexdigit),
                };
                if is_embedded {
                    continue;
                }
                let (needle, source) = (self.needles[needle].clone(), source.to_owned());
                findings.push(PrivacyFinding { needle, encoding, source, offset: found.start() });
            }
        }
        findings
    }

    /// Searches a file, or every file in a directory. Skips files that vanish meanwhile.
    pub fn search_files(&self, path: &Path) -> Result<Vec<PrivacyFinding>> {
        let mut findings = Vec::new();
        let mut pending = vec![path.to_owned()];
        while let Some(path) = pending.pop() {
            if path.is_dir() {
                match fs::read_dir(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    entries => {
                        for entry in entries.with_context(|| format!("failed to list {}", path.display()))? {
                            pending.push(entry?.path());
                        }
                    }
                }
            } else if path.is_file()
                && let Ok(bytes) = fs::read(&path)
            {
                findings.extend(self.search_bytes(&path.display().to_string(), &bytes));
            }
        }
        Ok(findings)
    }
}

fn build_automaton(
    patterns: Vec<(SearchPattern, Vec<u8>)>,
    ignore_case: bool,
) -> Result<(AhoCorasick, Vec<SearchPattern>)> {
    let (patterns, bytes): (Vec<_>, Vec<_>) = patterns.into_iter().unzip();
    // A prefilter, which some needles get, calls functions of another crate for each candidate. In a debug build a search
    // with it takes up to a hundred times as long.
    let automaton = AhoCorasick::builder().ascii_case_insensitive(ignore_case).prefilter(false).build(bytes)?;
    Ok((automaton, patterns))
}

fn encodings_of(needle: &Needle) -> Vec<(NeedleEncoding, BoundaryRule, Vec<u8>)> {
    let (texts, raw) = match needle {
        Needle::Bytes(bytes) => {
            return vec![(NeedleEncoding::Binary, BoundaryRule::Unrestricted, bytes.clone())];
        }
        Needle::Text(text) => (vec![text.clone()], None),
        Needle::Address(address) => (notations(*address), Some(octets(*address))),
    };
    let is_v4 = matches!(needle, Needle::Address(IpAddr::V4(_)));
    let mut encodings = Vec::new();
    for text in texts {
        // Uppercase letters have other encodings.
        let uppercase = text.to_uppercase();
        let is_both = raw.is_some() && uppercase != text;
        for text in [Some(&text), is_both.then_some(&uppercase)].into_iter().flatten() {
            encodings.push((NeedleEncoding::Hex, BoundaryRule::Unrestricted, hex::encode(text).into_bytes()));
            let encoded = base64_substrings(text.as_bytes());
            encodings.extend(
                encoded.into_iter().map(|encoded| (NeedleEncoding::Base64, BoundaryRule::Unrestricted, encoded)),
            );
        }
        encodings.push((
            NeedleEncoding::Text,
            if is_v4 { BoundaryRule::NoAdjacentDigit } else { BoundaryRule::Unrestricted },
            text.into_bytes(),
        ));
    }
    if let Some(raw) = raw {
        let number = raw.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
        encodings.push((NeedleEncoding::Decimal, BoundaryRule::NoAdjacentDigit, number.to_string().into_bytes()));
        encodings.push((
            NeedleEncoding::Hex,
            if is_v4 { BoundaryRule::NoAdjacentHexDigit } else { BoundaryRule::Unrestricted },
            hex::encode(&raw).into_bytes(),
        ));
        // Within a longer text only four characters are stable for four bytes, which occur in every text. Search for
        // whole values only.
        let encoded = if is_v4 { base64_encodings(&raw) } else { base64_substrings(&raw) };
        encodings
            .extend(encoded.into_iter().map(|encoded| (NeedleEncoding::Base64, BoundaryRule::Unrestricted, encoded)));
        encodings.push((NeedleEncoding::Hex, BoundaryRule::Unrestricted, escape_like_redis(&raw)));
        if is_v4 {
            encodings.push((NeedleEncoding::Binary, BoundaryRule::Unrestricted, raw.iter().rev().copied().collect()));
        }
        encodings.push((NeedleEncoding::Binary, BoundaryRule::Unrestricted, raw));
    }
    encodings
}

/// Notations of IPv4: dotted, padded, reversed as in DNS, and mapped into IPv6. Of IPv6: shortened, with all groups,
/// padded, and as in URLs.
fn notations(address: IpAddr) -> Vec<String> {
    let mut notations = match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            vec![
                v4.to_string(),
                format!("{a:03}.{b:03}.{c:03}.{d:03}"),
                format!("{d}.{c}.{b}.{a}"),
                format!("::ffff:{high:x}:{low:x}"),
                format!("0:0:0:0:0:ffff:{high:x}:{low:x}"),
            ]
        }
        IpAddr::V6(v6) => {
            let groups = v6.segments();
            let all: Vec<String> = groups.iter().map(|group| format!("{group:x}")).collect();
            let padded: Vec<String> = groups.iter().map(|group| format!("{group:04x}")).collect();
            let mut notations = vec![v6.to_string(), all.join(":"), padded.join(":")];
            notations.extend(notations.clone().iter().map(|text| text.replace(':', "%3a")));
            notations
        }
    };
    // Some notations may be equal.
    notations.sort_unstable();
    notations.dedup();
    notations
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Escapes bytes like Redis' MONITOR and Rust's byte strings.
fn escape_like_redis(bytes: &[u8]) -> Vec<u8> {
    let short = |byte: u8| match byte {
        0x07 => Some(*b"\\a"),
        0x08 => Some(*b"\\b"),
        _ => None,
    };
    bytes.iter().flat_map(|&byte| short(byte).map_or_else(|| byte.escape_ascii().collect(), Vec::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base64;

    const KEY: &str = "ips_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL";

    fn needle_address(text: &str) -> Needle {
        Needle::Address(text.parse().expect("valid address"))
    }

    fn encodings_found(needle: Needle, bytes: &[u8]) -> Vec<NeedleEncoding> {
        let search = PrivacySearch::new([needle]).expect("create a search");
        search.search_bytes("here", bytes).into_iter().map(|finding| finding.encoding).collect()
    }

    #[test]
    fn planted_ipv4_address_is_found_in_every_encoding() {
        for (planted, form) in [
            (&b"from 198.51.100.77, port"[..], NeedleEncoding::Text),
            (b"[::FFFF:C633:644D]", NeedleEncoding::Text),
            (b"77.100.51.198.in-addr.arpa", NeedleEncoding::Text),
            (b"in 0xC633644d.", NeedleEncoding::Hex),
            (b"x 3139382e35312e3130302e3737 y", NeedleEncoding::Hex),
            (b"\x01\x04\xc6\x33\x64\x4d\x00", NeedleEncoding::Binary),
            (b"\x4d\x64\x33\xc6", NeedleEncoding::Binary),
            (b"\"SET\" \"last\" \"\\xc63dM\"", NeedleEncoding::Hex),
            (b"client=3325256781;", NeedleEncoding::Decimal),
            (b"\"xjNkTQ==\"", NeedleEncoding::Base64),
            (b"MTk4LjUxLjEwMC43Nw==", NeedleEncoding::Base64),
        ] {
            assert_eq!(
                encodings_found(needle_address("198.51.100.77"), planted),
                [form],
                "{}",
                String::from_utf8_lossy(planted)
            );
        }
    }

    #[test]
    fn planted_ipv6_address_is_found_in_every_encoding() {
        let raw = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x53";
        let framed = [&b"len"[..], raw, b"end"].concat();
        for (planted, form) in [
            (&b"2001:DB8::53 asked"[..], NeedleEncoding::Text),
            (b"2001:db8:0:0:0:0:0:53", NeedleEncoding::Text),
            (b"2001:0db8:0000:0000:0000:0000:0000:0053", NeedleEncoding::Text),
            (b"?ip=2001%3ADB8%3A%3A53&", NeedleEncoding::Text),
            (b"20010db8000000000000000000000053", NeedleEncoding::Hex),
            (b"42540766411282592856903984951653826643", NeedleEncoding::Decimal),
            (&framed, NeedleEncoding::Binary),
            (&base64(b"ip=2001:DB8::53"), NeedleEncoding::Base64),
            (&base64(&framed), NeedleEncoding::Base64),
        ] {
            assert_eq!(
                encodings_found(needle_address("2001:db8::53"), planted),
                [form],
                "{}",
                String::from_utf8_lossy(planted)
            );
        }
    }

    #[test]
    fn planted_key_is_found_at_any_offset_of_encoded_text() {
        for before in ["", "a", "ab", "abc", "{\"key\":\""] {
            let planted = base64(format!("{before}{KEY}\"}}").as_bytes());
            assert_eq!(
                encodings_found(Needle::Text(KEY.to_owned()), &planted),
                [NeedleEncoding::Base64],
                "after {before:?}"
            );
        }
        assert_eq!(
            encodings_found(Needle::Text(KEY.to_owned()), format!("?key={KEY}&").as_bytes()),
            [NeedleEncoding::Text]
        );
        assert_eq!(encodings_found(Needle::Text(KEY.to_owned()), hex::encode(KEY).as_bytes()), [NeedleEncoding::Hex]);
    }

    #[test]
    fn longer_address_with_the_same_digits_is_not_a_finding() {
        assert_eq!(
            encodings_found(needle_address("98.51.100.7"), b"198.51.100.77 and 198.51.100.7 and 98.51.100.70"),
            []
        );
        assert_eq!(encodings_found(needle_address("198.51.100.77"), b"a digest: 00c633644d12, 33252567810"), []);
    }
}
