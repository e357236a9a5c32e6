//! The PROXY protocol's header, versions 1 and 2: what a proxy says of its client before the client's first byte.
//!
//! Strict, because only machines write it: what is odd in any way is refused whole. Nothing here decides who may send one, and
//! nothing that is refused is told, since it may hold an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::{Address, HttpProtocol, Tls};

use crate::report;

const V1_BEGINNING: &[u8] = b"PROXY ";
/// The longest line of version 1, its end included.
const V1_BYTES_MAX: usize = 107;
const V2_BEGINNING: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_BYTES: usize = 16;
const UNIX_BYTES: usize = 216;

const TLV_ALPN: u8 = 0x01;
const TLV_CRC32C: u8 = 0x03;
const TLV_TLS: u8 = 0x20;
const TLV_TLS_VERSION: u8 = 0x21;
const TLV_TLS_CIPHER: u8 = 0x23;
const CLIENT_USED_TLS: u8 = 0x01;

/// What a PROXY header says.
#[derive(Clone, Copy)]
pub enum Announcement {
    /// The proxy speaks for itself, as for a health check.
    Proxy,
    /// It speaks for a client that it does not name.
    Unnamed,
    /// It speaks for this client.
    Client(Announced),
}

/// A client as a PROXY header names it.
#[derive(Clone, Copy)]
pub struct Announced {
    /// Its address.
    pub address: Address,
    /// The TLS session that the proxy ended.
    pub tls: Option<Tls>,
    /// The protocol that was agreed on in that session.
    pub http_protocol: Option<HttpProtocol>,
}

/// What the bytes read so far are.
pub enum Reading {
    /// A whole header, of so many bytes.
    Whole(Announcement, usize),
    /// The beginning of one.
    Beginning,
    /// None.
    Refused,
}

/// Reads the header at the beginning of the bytes; one of more than `bytes_max` bytes is refused.
#[must_use]
pub fn read_proxy_header(bytes: &[u8], bytes_max: usize) -> Reading {
    let read = if begins(bytes, V1_BEGINNING) {
        read_v1(bytes)
    } else if begins(bytes, V2_BEGINNING) {
        read_v2(bytes, bytes_max)
    } else {
        None
    };
    read.unwrap_or(Reading::Refused)
}

fn begins(bytes: &[u8], beginning: &[u8]) -> bool {
    let common = bytes.len().min(beginning.len());
    bytes[..common] == beginning[..common]
}

fn read_v1(bytes: &[u8]) -> Option<Reading> {
    let seen = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return (bytes.len() < V1_BYTES_MAX).then_some(Reading::Beginning);
    };
    let line = std::str::from_utf8(&seen[..end]).ok()?;
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    let announcement = if family == "UNKNOWN" {
        Announcement::Unnamed
    } else {
        let (source, destination) = (words.next()?, words.next()?);
        let address = match family {
            "TCP4" => IpAddr::V4(v1_addresses::<Ipv4Addr>(source, destination)?),
            "TCP6" => IpAddr::V6(v1_addresses::<Ipv6Addr>(source, destination)?),
            _ => return None,
        };
        let ports_are_whole = is_port(words.next()?) && is_port(words.next()?) && words.next().is_none();
        ports_are_whole.then_some(Announcement::Client(Announced {
            address: Address::new(address),
            tls: None,
            http_protocol: None,
        }))?
    };
    Some(Reading::Whole(announcement, end + 2))
}

fn v1_addresses<A: std::str::FromStr>(source: &str, destination: &str) -> Option<A> {
    destination.parse::<A>().ok()?;
    source.parse().ok()
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port.to_string() == text)
}

fn read_v2(bytes: &[u8], bytes_max: usize) -> Option<Reading> {
    let Some(fixed) = bytes.first_chunk::<V2_FIXED_BYTES>() else { return Some(Reading::Beginning) };
    let [.., command, family, high, low] = *fixed;
    let end = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if !matches!(command, 0x20 | 0x21) || end > bytes_max {
        return None;
    }
    let Some(header) = bytes.get(..end) else { return Some(Reading::Beginning) };
    let rest = &header[V2_FIXED_BYTES..];
    // What follows the command "local" is of no meaning, whatever the family.
    let announcement = if command == 0x20 { Announcement::Proxy } else { v2_announcement(header, family, rest)? };
    Some(Reading::Whole(announcement, end))
}

fn v2_announcement(header: &[u8], family: u8, rest: &[u8]) -> Option<Announcement> {
    let (address, extensions) = match family {
        // Streams and datagrams alike: a proxy may have taken its client's connection over QUIC.
        0x11 | 0x12 => {
            let (addresses, extensions) = rest.split_first_chunk::<12>()?;
            (Some(IpAddr::from(*addresses.first_chunk::<4>()?)), extensions)
        }
        0x21 | 0x22 => {
            let (addresses, extensions) = rest.split_first_chunk::<36>()?;
            (Some(IpAddr::from(*addresses.first_chunk::<16>()?)), extensions)
        }
        0x31 | 0x32 => (None, rest.get(UNIX_BYTES..)?),
        0x00 => (None, rest),
        _ => return None,
    };
    let (tls, http_protocol) = v2_extensions(header, extensions)?;
    Some(address.map_or(Announcement::Unnamed, |address| {
        Announcement::Client(Announced { address: Address::new(address), tls, http_protocol })
    }))
}

/// The session and the protocol told in the extensions; `None` when one is torn, told twice, or not what was sent.
fn v2_extensions(header: &[u8], mut rest: &[u8]) -> Option<(Option<Tls>, Option<HttpProtocol>)> {
    let (mut tls, mut alpn, mut checksum) = (None, None, None);
    while let Some(Tlv { kind, value, behind }) = tlv(rest)? {
        let twice = match kind {
            TLV_TLS => tls.replace(session(value)?).is_some(),
            TLV_ALPN => alpn.replace(value).is_some(),
            TLV_CRC32C => {
                let place = header.len() - behind.len() - value.len();
                checksum.replace(u32::from_be_bytes(value.try_into().ok()?) == crc32c_without(header, place)).is_some()
            }
            _ => false,
        };
        if twice {
            return None;
        }
        rest = behind;
    }
    let http_protocol = alpn.and_then(|name| std::str::from_utf8(name).ok()).and_then(report::http_protocol);
    (checksum != Some(false)).then_some((tls.flatten(), http_protocol))
}

/// An extension, and the bytes behind it.
struct Tlv<'a> {
    kind: u8,
    value: &'a [u8],
    behind: &'a [u8],
}

/// The next extension, or nothing more; `None` when it is torn.
fn tlv(bytes: &[u8]) -> Option<Option<Tlv<'_>>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let ([kind, high, low], behind) = bytes.split_first_chunk::<3>()?;
    let (value, behind) = behind.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
    Some(Some(Tlv { kind: *kind, value, behind }))
}

/// The session in a TLS extension, if the client used TLS and the version is one that we know; `None` when it is torn.
fn session(value: &[u8]) -> Option<Option<Tls>> {
    // The flags, then whether the client's certificate was verified, which nobody is asked for here.
    let ([client, _, _, _, _], mut rest) = value.split_first_chunk::<5>()?;
    let (mut version, mut cipher) = (None, None);
    while let Some(Tlv { kind, value, behind }) = tlv(rest)? {
        let text = std::str::from_utf8(value).ok();
        match kind {
            TLV_TLS_VERSION => version = text.and_then(report::tls_version),
            TLV_TLS_CIPHER => cipher = text.and_then(report::tls_cipher),
            _ => {}
        }
        rest = behind;
    }
    let used = client & CLIENT_USED_TLS != 0;
    Some(version.filter(|_| used).map(|version| Tls { version, cipher }))
}

/// CRC-32C of the header, with the four bytes of the checksum itself as zeroes.
fn crc32c_without(header: &[u8], place: usize) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let mut crc = u32::MAX;
    for (at, &byte) in header.iter().enumerate() {
        crc ^= if (place..place + 4).contains(&at) { 0 } else { u32::from(byte) };
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of CRC-32C; the four zeroes stand outside the text.
        assert_eq!(crc32c_without(b"123456789", 9), 0xE306_9283);
    }
}
