//! A search of bytes for addresses and keys, in every guise in which they could have been written.
//!
//! Four raw bytes turn up by chance in about every fourth gigabyte per address; search for IPv4 in binary with few needles.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use aho_corasick::AhoCorasick;
use anyhow::{Context, Result};

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
    /// Two hexadecimal digits a byte, of the text or of the address's own bytes.
    Hex,
    /// Either alphabet, at any place within a longer encoded text.
    Base64,
    /// The address's own bytes, in network order.
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
    /// Digits on either side make it part of another number.
    stands_alone: bool,
}

/// A search for many needles at once.
pub struct Search {
    needles: Vec<Needle>,
    /// Patterns whose letters' case matters, and those where it does not.
    exact: (AhoCorasick, Vec<Pattern>),
    folded: (AhoCorasick, Vec<Pattern>),
}

impl Search {
    /// Prepares a search.
    pub fn open(needles: impl IntoIterator<Item = Needle>) -> Result<Self> {
        let needles: Vec<Needle> = needles.into_iter().collect();
        let (mut exact, mut folded) = (Vec::new(), Vec::new());
        for (index, needle) in needles.iter().enumerate() {
            for (form, stands_alone, bytes) in guises(needle) {
                let list = match form {
                    Form::Text | Form::Hex => &mut folded,
                    Form::Base64 | Form::Binary | Form::Decimal => &mut exact,
                };
                list.push((Pattern { needle: index, form, stands_alone }, bytes));
            }
        }
        Ok(Self { needles, exact: automaton(exact, false)?, folded: automaton(folded, true)? })
    }

    /// Searches bytes, which findings call `place`.
    #[must_use]
    pub fn bytes(&self, place: &str, bytes: &[u8]) -> Vec<Finding> {
        let is_digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
        let mut findings = Vec::new();
        for (automaton, patterns) in [&self.exact, &self.folded] {
            for found in automaton.find_overlapping_iter(bytes) {
                let Pattern { needle, form, stands_alone } = patterns[found.pattern().as_usize()];
                if stands_alone && (is_digit(found.start().checked_sub(1)) || is_digit(Some(found.end()))) {
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
                for entry in fs::read_dir(&path).with_context(|| format!("cannot list {}", path.display()))? {
                    waiting.push(entry?.path());
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

fn guises(needle: &Needle) -> Vec<(Form, bool, Vec<u8>)> {
    let (texts, raw) = match needle {
        Needle::Text(text) => (vec![text.clone()], None),
        Needle::Address(address) => (notations(*address), Some(octets(*address))),
    };
    let is_v4 = matches!(needle, Needle::Address(IpAddr::V4(_)));
    let mut guises = Vec::new();
    for text in texts {
        guises.push((Form::Hex, false, hex(text.as_bytes())));
        guises.extend(base64_anywhere(text.as_bytes()).into_iter().map(|encoded| (Form::Base64, false, encoded)));
        guises.push((Form::Text, is_v4, text.into_bytes()));
    }
    if let Some(raw) = raw {
        let number = raw.iter().fold(0_u128, |number, &byte| number << 8 | u128::from(byte));
        guises.push((Form::Decimal, true, number.to_string().into_bytes()));
        guises.push((Form::Hex, false, hex(&raw)));
        // Of four bytes within a longer text only four characters are certain, and these are in every text: whole values only.
        let encoded = if is_v4 { base64_whole(&raw) } else { base64_anywhere(&raw) };
        guises.extend(encoded.into_iter().map(|encoded| (Form::Base64, false, encoded)));
        guises.push((Form::Binary, false, raw));
    }
    guises
}

/// An IPv4 address dotted and as mapped into IPv6; an IPv6 address shortened, with all groups, and with all digits.
fn notations(address: IpAddr) -> Vec<String> {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            vec![v4.to_string(), format!("::ffff:{high:x}:{low:x}")]
        }
        IpAddr::V6(v6) => {
            let groups = v6.segments();
            let all: Vec<String> = groups.iter().map(|group| format!("{group:x}")).collect();
            let padded: Vec<String> = groups.iter().map(|group| format!("{group:04x}")).collect();
            let mut notations = vec![v6.to_string(), all.join(":"), padded.join(":")];
            notations.dedup();
            notations
        }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// The characters that are certain wherever the bytes begin within a longer encoded text.
fn base64_anywhere(bytes: &[u8]) -> Vec<Vec<u8>> {
    let certain = |before: usize| {
        let encoded = base64(&[&vec![0; before], bytes].concat());
        let first = (before * 8).div_ceil(6);
        let end = (before + bytes.len()) * 8 / 6;
        encoded[first..end].to_vec()
    };
    (0..3).flat_map(|before| both_alphabets(certain(before))).collect()
}

fn base64_whole(bytes: &[u8]) -> Vec<Vec<u8>> {
    both_alphabets(base64(bytes))
}

fn both_alphabets(encoded: Vec<u8>) -> Vec<Vec<u8>> {
    let for_urls: Vec<u8> = encoded
        .iter()
        .map(|&character| match character {
            b'+' => b'-',
            b'/' => b'_',
            other => other,
        })
        .collect();
    if for_urls == encoded { vec![encoded] } else { vec![encoded, for_urls] }
}

/// Base64 without padding.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let encode = |chunk: &[u8]| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        (0..=chunk.len()).map(|at| ALPHABET[(bits >> (18 - 6 * at) & 63) as usize]).collect::<Vec<u8>>()
    };
    bytes.chunks(3).flat_map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ips_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKL";

    fn address(text: &str) -> Needle {
        Needle::Address(text.parse().expect("an address"))
    }

    fn forms(needle: Needle, bytes: &[u8]) -> Vec<Form> {
        let search = Search::open([needle]).expect("a search");
        search.bytes("here", bytes).into_iter().map(|finding| finding.form).collect()
    }

    #[test]
    fn base64_is_as_in_the_rfc() {
        for (plain, encoded) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), encoded.as_bytes());
        }
    }

    #[test]
    fn a_planted_ipv4_address_is_found_in_every_guise() {
        for (planted, form) in [
            (&b"from 198.51.100.77, port"[..], Form::Text),
            (b"[::FFFF:C633:644D]", Form::Text),
            (b"in C633644d.", Form::Hex),
            (b"x 3139382e35312e3130302e3737 y", Form::Hex),
            (b"\x01\x04\xc6\x33\x64\x4d\x00", Form::Binary),
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
            (b"20010db8000000000000000000000053", Form::Hex),
            (b"42540766411282592856903984951653826643", Form::Decimal),
            (&framed, Form::Binary),
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
    }
}
