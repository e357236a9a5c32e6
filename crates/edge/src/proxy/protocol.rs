//! The PROXY protocol, versions 1 and 2: a header in which a proxy names its client.
//!
//! Parsing is strict: any deviation makes the whole header invalid. An invalid header is never shown, since it may
//! contain an address. The caller decides which peers may send a header.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipseity_domain::{Address, HttpProtocol, TlsInfo};

use crate::proxy::headers;

const V1_PREFIX: &[u8] = b"PROXY ";
/// The longest line of version 1, including CRLF.
const V1_BYTES_MAX: usize = 107;
const V2_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_HEADER_BYTES: usize = 16;
const V2_UNIX_ADDRESSES_BYTES: usize = 216;

const TLV_ALPN: u8 = 0x01;
const TLV_CRC32C: u8 = 0x03;
const TLV_TLS: u8 = 0x20;
const TLV_TLS_VERSION: u8 = 0x21;
const TLV_TLS_CIPHER: u8 = 0x23;
const CLIENT_USED_TLS: u8 = 0x01;

/// The content of a PROXY header.
#[derive(Clone, Copy)]
pub enum ProxyHeader {
    /// The connection is the proxy's, such as a health check.
    Local,
    /// The connection is a client's that the header does not name.
    Unknown,
    /// The connection is this client's.
    Client(ProxiedClient),
}

/// The client that a PROXY header names.
#[derive(Clone, Copy)]
pub struct ProxiedClient {
    /// The client's address.
    pub address: Address,
    /// Whether the client used TLS, if the proxy reports it.
    pub is_encrypted: Option<bool>,
    /// The TLS session between client and proxy.
    pub tls: Option<TlsInfo>,
    /// The protocol that this session negotiated.
    pub http_protocol: Option<HttpProtocol>,
}

/// The result of parsing the bytes received so far.
pub enum ProxyHeaderStatus {
    /// A complete header and its length in bytes.
    Complete(ProxyHeader, usize),
    /// The start of a header.
    Partial,
    /// Not a valid header.
    Invalid,
}

/// Parses the header at the start of the bytes. A version 2 header longer than `bytes_max` is invalid.
#[must_use]
pub fn parse_proxy_header(bytes: &[u8], bytes_max: usize) -> ProxyHeaderStatus {
    let status = if matches_prefix_so_far(bytes, V1_PREFIX) {
        parse_v1(bytes)
    } else if matches_prefix_so_far(bytes, V2_SIGNATURE) {
        parse_v2(bytes, bytes_max)
    } else {
        None
    };
    status.unwrap_or(ProxyHeaderStatus::Invalid)
}

fn matches_prefix_so_far(bytes: &[u8], prefix: &[u8]) -> bool {
    let common = bytes.len().min(prefix.len());
    bytes[..common] == prefix[..common]
}

fn parse_v1(bytes: &[u8]) -> Option<ProxyHeaderStatus> {
    let head = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = head.windows(2).position(|pair| pair == b"\r\n") else {
        return (bytes.len() < V1_BYTES_MAX).then_some(ProxyHeaderStatus::Partial);
    };
    let line = std::str::from_utf8(&head[..end]).ok()?;
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    let proxy_header = if family == "UNKNOWN" {
        ProxyHeader::Unknown
    } else {
        let (source, destination) = (words.next()?, words.next()?);
        let address = match family {
            "TCP4" => IpAddr::V4(parse_v1_source::<Ipv4Addr>(source, destination)?),
            "TCP6" => IpAddr::V6(parse_v1_source::<Ipv6Addr>(source, destination)?),
            _ => return None,
        };
        let ports_are_valid =
            is_canonical_port(words.next()?) && is_canonical_port(words.next()?) && words.next().is_none();
        ports_are_valid.then_some(ProxyHeader::Client(ProxiedClient {
            address: Address::new(address),
            is_encrypted: None,
            tls: None,
            http_protocol: None,
        }))?
    };
    Some(ProxyHeaderStatus::Complete(proxy_header, end + 2))
}

fn parse_v1_source<A: std::str::FromStr>(source: &str, destination: &str) -> Option<A> {
    destination.parse::<A>().ok()?;
    source.parse().ok()
}

fn is_canonical_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port.to_string() == text)
}

fn parse_v2(bytes: &[u8], bytes_max: usize) -> Option<ProxyHeaderStatus> {
    let Some(fixed) = bytes.first_chunk::<V2_FIXED_HEADER_BYTES>() else { return Some(ProxyHeaderStatus::Partial) };
    let [.., command, family, high, low] = *fixed;
    let end = V2_FIXED_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if !matches!(command, 0x20 | 0x21) || end > bytes_max {
        return None;
    }
    let Some(header) = bytes.get(..end) else { return Some(ProxyHeaderStatus::Partial) };
    let rest = &header[V2_FIXED_HEADER_BYTES..];
    // The rest of a header with the command "local" has no meaning, whatever the family.
    let proxy_header = if command == 0x20 { ProxyHeader::Local } else { parse_v2_payload(header, family, rest)? };
    Some(ProxyHeaderStatus::Complete(proxy_header, end))
}

fn parse_v2_payload(header: &[u8], family: u8, rest: &[u8]) -> Option<ProxyHeader> {
    let (address, tlvs) = match family {
        // Datagrams too, because the client may have connected to the proxy over QUIC.
        0x11 | 0x12 => {
            let (addresses, tlvs) = rest.split_first_chunk::<12>()?;
            (Some(IpAddr::from(*addresses.first_chunk::<4>()?)), tlvs)
        }
        0x21 | 0x22 => {
            let (addresses, tlvs) = rest.split_first_chunk::<36>()?;
            (Some(IpAddr::from(*addresses.first_chunk::<16>()?)), tlvs)
        }
        0x31 | 0x32 => (None, rest.get(V2_UNIX_ADDRESSES_BYTES..)?),
        0x00 => (None, rest),
        _ => return None,
    };
    let Extensions { tls, http_protocol } = parse_v2_tlvs(header, tlvs)?;
    Some(address.map_or(ProxyHeader::Unknown, |address| {
        ProxyHeader::Client(ProxiedClient {
            address: Address::new(address),
            is_encrypted: tls.map(|tls| tls.is_encrypted),
            tls: tls.and_then(|tls| tls.session),
            http_protocol,
        })
    }))
}

/// What the extensions report.
struct Extensions {
    tls: Option<TlsExtension>,
    http_protocol: Option<HttpProtocol>,
}

/// The TLS extension. A proxy may send it for a plaintext connection too.
#[derive(Clone, Copy)]
struct TlsExtension {
    is_encrypted: bool,
    /// `None` if the client did not use TLS of a known version.
    session: Option<TlsInfo>,
}

/// `None` if an extension is truncated or repeated, or the checksum does not match.
fn parse_v2_tlvs(header: &[u8], mut rest: &[u8]) -> Option<Extensions> {
    let (mut tls, mut alpn, mut checksum) = (None, None, None);
    while let Some(Tlv { kind, value, remaining }) = next_tlv(rest)? {
        let is_duplicate = match kind {
            TLV_TLS => tls.replace(parse_tls_tlv(value)?).is_some(),
            TLV_ALPN => alpn.replace(value).is_some(),
            TLV_CRC32C => {
                let checksum_offset = header.len() - remaining.len() - value.len();
                checksum
                    .replace(
                        u32::from_be_bytes(value.try_into().ok()?)
                            == crc32c_with_zeroed_checksum(header, checksum_offset),
                    )
                    .is_some()
            }
            _ => false,
        };
        if is_duplicate {
            return None;
        }
        rest = remaining;
    }
    let http_protocol = alpn.and_then(|name| std::str::from_utf8(name).ok()).and_then(headers::parse_http_protocol);
    (checksum != Some(false)).then_some(Extensions { tls, http_protocol })
}

/// An extension (type, length, value), and the bytes after it.
struct Tlv<'a> {
    kind: u8,
    value: &'a [u8],
    remaining: &'a [u8],
}

/// The next extension, or `Some(None)` at the end. `None` if it is truncated.
fn next_tlv(bytes: &[u8]) -> Option<Option<Tlv<'_>>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let ([kind, high, low], remaining) = bytes.split_first_chunk::<3>()?;
    let (value, remaining) = remaining.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
    Some(Some(Tlv { kind: *kind, value, remaining }))
}

/// `None` if the extension is truncated.
fn parse_tls_tlv(value: &[u8]) -> Option<TlsExtension> {
    // The flags, then the verification result of a client certificate, which this service does not use.
    let ([client_flags, _, _, _, _], mut rest) = value.split_first_chunk::<5>()?;
    let (mut version, mut cipher) = (None, None);
    while let Some(Tlv { kind, value, remaining }) = next_tlv(rest)? {
        let text = std::str::from_utf8(value).ok();
        match kind {
            TLV_TLS_VERSION => version = text.and_then(headers::parse_tls_version),
            TLV_TLS_CIPHER => cipher = text.and_then(headers::parse_tls_cipher),
            _ => {}
        }
        rest = remaining;
    }
    let is_encrypted = client_flags & CLIENT_USED_TLS != 0;
    let session = version.filter(|_| is_encrypted).map(|version| TlsInfo { version, cipher });
    Some(TlsExtension { is_encrypted, session })
}

/// CRC-32C of the header, with the four bytes of the checksum taken as zeros.
fn crc32c_with_zeroed_checksum(header: &[u8], checksum_offset: usize) -> u32 {
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    let mut crc = u32::MAX;
    for (index, &byte) in header.iter().enumerate() {
        crc ^= if (checksum_offset..checksum_offset + 4).contains(&index) { 0 } else { u32::from(byte) };
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
    fn tls_extension_reports_whether_the_connection_is_encrypted() {
        for (flags, is_encrypted) in [(None, None), (Some(0), Some(false)), (Some(CLIENT_USED_TLS), Some(true))] {
            let tlv = flags.map_or(Vec::new(), |flags| vec![TLV_TLS, 0, 5, flags, 0, 0, 0, 0]);
            let length = u8::try_from(12 + tlv.len()).expect("short header");
            let header = [V2_SIGNATURE, &[0x21, 0x11, 0, length], &[198, 51, 100, 7, 192, 0, 2, 1, 0, 1, 0, 2], &tlv];
            let ProxyHeaderStatus::Complete(ProxyHeader::Client(client), _) = parse_proxy_header(&header.concat(), 100)
            else {
                panic!("invalid header")
            };
            assert_eq!((client.is_encrypted, client.tls), (is_encrypted, None));
        }
    }

    #[test]
    fn proxy_header_checksum_is_crc32c() {
        // The standard check value of CRC-32C. The zeroed bytes are past the end of the text.
        assert_eq!(crc32c_with_zeroed_checksum(b"123456789", 9), 0xE306_9283);
    }
}
