//! A search of bytes for addresses and keys, in every guise in which they could have been written.
//!
//! Four raw bytes turn up by chance in about every fourth gigabyte of noise per address: look for IPv4 addresses whose bytes no text holds.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io};

use aho_corasick::AhoCorasick;
use anyhow::{Context, Result};

use crate::base64::{base64_anywhere, base64_whole};

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needle {
    /// An address, in all its notations.
    Address(IpAddr),
    /// A text, such as a key.
    Text(String),
}

/// The guise in which a needle was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As people write it.
    Text,
    /// Two hexadecimal digits a byte, of the text or of the address's own bytes; also where only unprintable bytes are escaped so.
    Hex,
    /// Either alphabet, at any place within a longer encoded text.
    Base64,
    /// The address's own bytes, in network order; of IPv4 also in the other.
    Binary,
    /// The address as one decimal number.
    Decimal,
}

/// A needle that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub needle: Needle,
    /// In what guise.
    pub form: Form,
    /// In what was searched: the name that the caller gave, or the file.
    pub place: String,
    /// After how many bytes.
    pub offset: usize,
}

#[derive(Clone, Copy)]
struct Pattern {
    needle: usize,
    form: Form,
    whole: Whole,
}

/// When a finding is part of something else, and none.
#[derive(Clone, Copy)]
enum Whole {
    /// Never: it is long enough to be nothing else.
    Always,
    /// With a decimal digit on either side.
    Number,
    /// With a hexadecimal digit on either side: eight of them turn up in every thousandth megabyte of digests per address.
    Hexadecimal,
}

/// A search for many needles at once.
pub struct Search {
    needles: Vec<Needle>,
    /// Patterns whose letters' case matters, and those where it does not.
    exact: (AhoCorasick, Vec<Pattern>),
    folded: (AhoCorasick, Vec<Pattern>),
    searched: AtomicU64,
}

impl Search {
    /// Prepares a search.
    pub fn open(needles: impl IntoIterator<Item = Needle>) -> Result<Self> {
        let needles: Vec<Needle> = needles.into_iter().collect();
        let (mut exact, mut folded) = (Vec::new(), Vec::new());
        for (index, needle) in needles.iter().enumerate() {
            for (form, whole, bytes) in guises(needle) {
                let list = match form {
                    Form::Text | Form::Hex => &mut folded,
                    Form::Base64 | Form::Binary | Form::Decimal => &mut exact,
                };
                list.push((Pattern { needle: index, form, whole }, bytes));
            }
        }
        let searched = AtomicU64::new(0);
        Ok(Self { needles, exact: automaton(exact, false)?, folded: automaton(folded, true)?, searched })
    }

    /// How many bytes were searched so far.
    #[must_use]
    pub fn searched_bytes(&self) -> u64 {
        self.searched.load(Ordering::Relaxed)
    }

    /// Searches bytes, which findings call `place`.
    #[must_use]
    pub fn bytes(&self, place: &str, bytes: &[u8]) -> Vec<Finding> {
        self.searched.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut findings = Vec::new();
        for (automaton, patterns) in [&self.exact, &self.folded] {
            for found in automaton.find_overlapping_iter(bytes) {
                let Pattern { needle, form, whole } = patterns[found.pattern().as_usize()];
                let beside = [found.start().checked_sub(1), Some(found.end())];
                let mut beside = beside.into_iter().flatten().filter_map(|at| bytes.get(at));
                let is_part = match whole {
                    Whole::Always => false,
                    Whole::Number => beside.any(u8::is_ascii_digit),
                    Whole::Hexadecimal => beside.any(u8::is_ascii_hexdigit),
                };
                if is_part {
                    continue;
                }
                let (needle, place) = (self.needles[needle].clone(), place.to_owned());
                findings.push(Finding { needle, form, place, offset: found.start() });
            }
        }
        findings
    }

    /// Searches a file, or every file under a folder. What vanishes meanwhile is passed over.
    pub fn files(&self, path: &Path) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut waiting = vec![path.to_owned()];
        while let Some(path) = waiting.pop() {
            if path.is_dir() {
                match fs::read_dir(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    entries => {
                        for entry in entries.with_context(|| format!("cannot list {}", path.display()))? {
                            waiting.push(entry?.path());
                        }
                    }
                }
            } else if path.is_file()
                && let Ok(bytes) = fs::read(&path)
            {
                findings.extend(self.bytes(&path.display().to_string(), &bytes));
            }
        }
        Ok(findings)
    }
}

fn automaton(patterns: Vec<(Pattern, Vec<u8>)>, fold: bool) -> Result<(AhoCorasick, Vec<Pattern>)> {
    let (patterns, bytes): (Vec<_>, Vec<_>) = patterns.into_iter().unzip();
    Ok((AhoCorasick::builder().ascii_case_insensitive(fold).build(bytes)?, patterns))
}

fn guises(needle: &Needle) -> Vec<(Form, Whole, Vec<u8>)> {
    let (texts, raw) = match needle {
        Needle::Text(text) => (vec![text.clone()], None),
        Needle::Address(address) => (notations(*address), Some(octets(*address))),
    };
    let is_v4 = matches!(needle, Needle::Address(IpAddr::V4(_)));
    let mut guises = Vec::new();
    for text in texts {
        // Encoded, capitals are other bytes.
        let capitals = text.to_uppercase();
        let is_both = raw.is_some() && capitals != text;
        for text in [Some(&text), is_both.then_some(&capitals)].into_iter().flatten() {
            guises.push((Form::Hex, Whole::Always, hex(text.as_bytes())));
            let encoded = base64_anywhere(text.as_bytes());
            guises.extend(encoded.into_iter().map(|encoded| (Form::Base64, Whole::Always, encoded)));
        }
        guises.push((Form::Text, if is_v4 { Whole::Number } else { Whole::Always }, text.into_bytes()));
    }
    if let Some(raw) = raw {
        let number = raw.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
        guises.push((Form::Decimal, Whole::Number, number.to_string().into_bytes()));
        guises.push((Form::Hex, if is_v4 { Whole::Hexadecimal } else { Whole::Always }, hex(&raw)));
        // Of four bytes within a longer text only four characters are certain, and these are in every text: whole values only.
        let encoded = if is_v4 { base64_whole(&raw) } else { base64_anywhere(&raw) };
        guises.extend(encoded.into_iter().map(|encoded| (Form::Base64, Whole::Always, encoded)));
        guises.push((Form::Hex, Whole::Always, escaped(&raw)));
        if is_v4 {
            guises.push((Form::Binary, Whole::Always, raw.iter().rev().copied().collect()));
        }
        guises.push((Form::Binary, Whole::Always, raw));
    }
    guises
}

/// An IPv4 address dotted, with all digits, reversed as in the DNS, and mapped into IPv6; an IPv6 address shortened, with all groups, with
/// all digits, and as in URLs.
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
    // Often two are the same.
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

/// As Redis shows bytes to its monitors, and Rust those of a byte string.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let short = |byte: u8| match byte {
        0x07 => Some(*b"\\a"),
        0x08 => Some(*b"\\b"),
        _ => None,
    };
    bytes.iter().flat_map(|&byte| short(byte).map_or_else(|| byte.escape_ascii().collect(), Vec::from)).collect()
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base64;

    const KEY: &str = "ips_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL";

    fn address(text: &str) -> Needle {
        Needle::Address(text.parse().expect("an address"))
    }

    fn forms(needle: Needle, bytes: &[u8]) -> Vec<Form> {
        let search = Search::open([needle]).expect("a search");
        search.bytes("here", bytes).into_iter().map(|finding| finding.form).collect()
    }

    #[test]
    fn a_planted_ipv4_address_is_found_in_every_guise() {
        for (planted, form) in [
            (&b"from 198.51.100.77, port"[..], Form::Text),
            (b"[::FFFF:C633:644D]", Form::Text),
            (b"77.100.51.198.in-addr.arpa", Form::Text),
            (b"in 0xC633644d.", Form::Hex),
            (b"x 3139382e35312e3130302e3737 y", Form::Hex),
            (b"\x01\x04\xc6\x33\x64\x4d\x00", Form::Binary),
            (b"\x4d\x64\x33\xc6", Form::Binary),
            (b"\"SET\" \"last\" \"\\xc63dM\"", Form::Hex),
            (b"client=3325256781;", Form::Decimal),
            (b"\"xjNkTQ==\"", Form::Base64),
            (b"MTk4LjUxLjEwMC43Nw==", Form::Base64),
        ] {
            assert_eq!(forms(address("198.51.100.77"), planted), [form], "{}", String::from_utf8_lossy(planted));
        }
    }

    #[test]
    fn a_planted_ipv6_address_is_found_in_every_guise() {
        let raw = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x53";
        let framed = [&b"len"[..], raw, b"end"].concat();
        for (planted, form) in [
            (&b"2001:DB8::53 asked"[..], Form::Text),
            (b"2001:db8:0:0:0:0:0:53", Form::Text),
            (b"2001:0db8:0000:0000:0000:0000:0000:0053", Form::Text),
            (b"?ip=2001%3ADB8%3A%3A53&", Form::Text),
            (b"20010db8000000000000000000000053", Form::Hex),
            (b"42540766411282592856903984951653826643", Form::Decimal),
            (&framed, Form::Binary),
            (&base64(b"ip=2001:DB8::53"), Form::Base64),
            (&base64(&framed), Form::Base64),
        ] {
            assert_eq!(forms(address("2001:db8::53"), planted), [form], "{}", String::from_utf8_lossy(planted));
        }
    }

    #[test]
    fn a_planted_key_is_found_wherever_an_encoded_text_holds_it() {
        for before in ["", "a", "ab", "abc", "{\"key\":\""] {
            let planted = base64(format!("{before}{KEY}\"}}").as_bytes());
            assert_eq!(forms(Needle::Text(KEY.to_owned()), &planted), [Form::Base64], "after {before:?}");
        }
        assert_eq!(forms(Needle::Text(KEY.to_owned()), format!("?key={KEY}&").as_bytes()), [Form::Text]);
        assert_eq!(forms(Needle::Text(KEY.to_owned()), &hex(KEY.as_bytes())), [Form::Hex]);
    }

    #[test]
    fn another_address_that_contains_the_digits_is_no_finding() {
        assert_eq!(forms(address("98.51.100.7"), b"198.51.100.77 and 198.51.100.7 and 98.51.100.70"), []);
        assert_eq!(forms(address("198.51.100.77"), b"a digest: 00c633644d12, 33252567810"), []);
    }
}
