//! Forwarding headers: X-Forwarded-For and Forwarded (RFC 7239), read from the right, and single-address headers.
//!
//! The nearest proxy writes the right end. Any client can write the left end. Invalid text is `None` and never an
//! error, because an error could carry the text, which may be an address.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{FORWARDED, HeaderMap, HeaderName};
use ipseity_domain::Address;

/// The header in which trusted proxies name their clients. No other forwarding header is read.
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
    /// Every supported header.
    pub const ALL: [Self; 6] = [
        Self::XForwardedFor,
        Self::Forwarded,
        Self::CfConnectingIp,
        Self::TrueClientIp,
        Self::FlyClientIp,
        Self::XRealIp,
    ];

    /// Parses a header name, case-insensitively.
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

    /// Visits the hops of all lines of the header, from the right, while `visit` returns true. Invalid text is `None`.
    /// Empty list elements are skipped (RFC 9110, section 5.6.1.2).
    ///
    /// A single-address header has one hop. If it is repeated, that hop is invalid.
    pub(crate) fn walk_hops(self, headers: &HeaderMap, mut visit: impl FnMut(Option<Address>) -> bool) {
        let mut values = headers.get_all(self.name()).iter().rev();
        let mut visit_hop = |hop: Option<IpAddr>| visit(hop.map(Address::new));
        // Lines are split separately, so that an unclosed quotation mark in one line does not affect another.
        match self {
            Self::XForwardedFor => values
                .flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','))
                .filter(|hop| !hop.trim_ascii().is_empty())
                .all(|hop| visit_hop(parse_node_address(hop))),
            Self::Forwarded => values
                .flat_map(|value| rsplit_unquoted(value.as_bytes(), b','))
                .filter(|hop| !hop.trim_ascii().is_empty())
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
/// The proxy writes the right end. Read from the left, a quotation mark that a client opened could hide it.
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

/// The address in the `for` parameter of a Forwarded element, which must occur once.
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
    // A quoted address needs no escapes. One that has them is invalid.
    parse_node_address(value.strip_prefix(b"\"").map_or(Some(value), |unquoted| unquoted.strip_suffix(b"\""))?)
}

/// An address, with or without brackets and port. Zone ids are invalid, because they are local to a host.
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

/// A port number or an obfuscated port (RFC 7239, section 6.3).
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
            assert_eq!(ForwardingHeader::parse(invalid), None, "{invalid:?}");
        }
    }
}
