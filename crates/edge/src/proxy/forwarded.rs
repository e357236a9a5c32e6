//! Forwarding headers: X-Forwarded-For and Forwarded (RFC 7239), read from the right, and those that hold one address.
//!
//! The right end was written by the nearest proxy, the left by whoever liked to. What cannot be read is `None` and never
//! an error: an error would carry the text, which is an address.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{FORWARDED, HeaderMap, HeaderName};
use ipseity_domain::Address;

/// The header by which the trusted proxies name their clients; the others are never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingHeader {
    /// X-Forwarded-For
    XForwardedFor,
    /// Forwarded (RFC 7239)
    Forwarded,
    /// CF-Connecting-IP
    CfConnectingIp,
    /// True-Client-IP
    TrueClientIp,
    /// Fly-Client-IP
    FlyClientIp,
    /// X-Real-IP
    XRealIp,
}

impl ForwardingHeader {
    /// Every header that can be chosen.
    pub const ALL: [Self; 6] = [
        Self::XForwardedFor,
        Self::Forwarded,
        Self::CfConnectingIp,
        Self::TrueClientIp,
        Self::FlyClientIp,
        Self::XRealIp,
    ];

    /// Reads the header's name, in any letter case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|header| text.eq_ignore_ascii_case(header.name().as_str()))
    }

    /// The header's name.
    #[must_use]
    pub fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => const { HeaderName::from_static("x-forwarded-for") },
            Self::Forwarded => FORWARDED,
            Self::CfConnectingIp => const { HeaderName::from_static("cf-connecting-ip") },
            Self::TrueClientIp => const { HeaderName::from_static("true-client-ip") },
            Self::FlyClientIp => const { HeaderName::from_static("fly-client-ip") },
            Self::XRealIp => const { HeaderName::from_static("x-real-ip") },
        }
    }

    /// Goes through the hops of all lines of the header, from the right, while `go_on` says so; `None` is what is no address.
    ///
    /// A header that holds one address has one hop: several lines of it name nobody.
    pub(crate) fn walk_hops(self, headers: &HeaderMap, mut visit: impl FnMut(Option<Address>) -> bool) {
        let mut values = headers.get_all(self.name()).iter().rev();
        let mut visit_hop = |hop: Option<IpAddr>| visit(hop.map(Address::new));
        // Lines are taken apart one by one, so that an open quotation mark in one cannot swallow another.
        match self {
            Self::XForwardedFor => values
                .flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','))
                .all(|hop| visit_hop(parse_node_address(hop))),
            Self::Forwarded => values
                .flat_map(|value| rsplit_unquoted(value.as_bytes(), b','))
                .all(|hop| visit_hop(parse_forwarded_for(hop))),
            Self::CfConnectingIp | Self::TrueClientIp | Self::FlyClientIp | Self::XRealIp => {
                let single = values.next().filter(|_| values.next().is_none());
                visit_hop(single.and_then(|value| parse_node_address(value.as_bytes())))
            }
        };
    }
}

/// Splits from the right at separators outside quotation marks.
///
/// From the right, because the proxy's own end is well formed: from the left, a mark that a stranger opened would swallow it.
fn rsplit_unquoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    iter::from_fn(move || {
        let text = rest.take()?;
        let mut quoted = false;
        for (at, &byte) in text.iter().enumerate().rev() {
            if byte == b'"' && !(quoted && is_escaped(text, at)) {
                quoted = !quoted;
            } else if byte == separator && !quoted {
                rest = Some(&text[..at]);
                return Some(&text[at + 1..]);
            }
        }
        Some(text)
    })
}

fn is_escaped(text: &[u8], at: usize) -> bool {
    text[..at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// The address in the one `for` parameter of a Forwarded element.
fn parse_forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut values = rsplit_unquoted(element, b';').filter_map(|pair| {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = pair.split_at(equals);
        name.eq_ignore_ascii_case(b"for").then_some(&value[1..])
    });
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    // A quoted address needs no escapes; one that has them is not read.
    parse_node_address(value.strip_prefix(b"\"").map_or(Some(value), |unquoted| unquoted.strip_suffix(b"\""))?)
}

/// An address, with or without brackets and port. Zone ids mean nothing beyond their own host and are not read.
fn parse_node_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        (port.is_empty() || is_node_port(port.strip_prefix(':')?)).then_some(())?;
        return address.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    text.parse().ok().or_else(|| {
        let (address, port) = text.split_once(':')?;
        is_node_port(port).then_some(())?;
        address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
    })
}

/// A port, or an obfuscated one (RFC 7239, section 6.3).
fn is_node_port(text: &str) -> bool {
    if let Some(obfuscated) = text.strip_prefix('_') {
        return !obfuscated.is_empty()
            && obfuscated.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    }
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 5 && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarding_header_is_parsed_from_its_name() {
        for header in ForwardingHeader::ALL {
            assert_eq!(ForwardingHeader::parse(&header.name().as_str().to_uppercase()), Some(header));
        }
        for invalid in ["", "x-client-ip", "forwarded "] {
            assert_eq!(ForwardingHeader::parse(invalid), None, "{invalid} passed");
        }
    }
}
