//! Forwarding headers: X-Forwarded-For and Forwarded (RFC 7239), read from the right.
//!
//! The right end was written by the nearest proxy, the left by whoever liked to. What cannot be read is `None` and never
//! an error: an error would carry the text, which is an address.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::Address;
use http::header::{FORWARDED, HeaderMap, HeaderName};

/// The header by which the trusted proxies name their clients; the other one is never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardingHeader {
    /// X-Forwarded-For
    XForwardedFor,
    /// Forwarded (RFC 7239)
    Forwarded,
}

impl ForwardingHeader {
    /// Reads the header's name, in any letter case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::XForwardedFor, Self::Forwarded]
            .into_iter()
            .find(|header| text.eq_ignore_ascii_case(header.name().as_str()))
    }

    pub(crate) fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => FORWARDED,
        }
    }

    /// Goes through the addresses of all lines of the header, from the right, while they can be read and `go_on` says so.
    pub(crate) fn walk(self, headers: &HeaderMap, mut go_on: impl FnMut(Address) -> bool) {
        let lines = headers.get_all(self.name()).iter().rev();
        let mut step = |hop: Option<IpAddr>| hop.is_some_and(|address| go_on(Address::new(address)));
        // Lines are taken apart one by one, so that an open quotation mark in one cannot swallow another.
        match self {
            Self::XForwardedFor => {
                lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).all(|hop| step(node(hop)))
            }
            Self::Forwarded => {
                lines.flat_map(|line| rsplit_unquoted(line.as_bytes(), b',')).all(|hop| step(forwarded_for(hop)))
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
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
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
    node(value.strip_prefix(b"\"").map_or(Some(value), |open| open.strip_suffix(b"\""))?)
}

/// An address, with or without brackets and port. Zone ids mean nothing beyond their own host and are not read.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    if let Some(bracketed) = text.strip_prefix('[') {
        let (address, port) = bracketed.split_once(']')?;
        (port.is_empty() || is_port(port.strip_prefix(':')?)).then_some(())?;
        return address.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    text.parse().ok().or_else(|| {
        let (address, port) = text.split_once(':')?;
        is_port(port).then_some(())?;
        address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
    })
}

/// A port, or an obfuscated one (RFC 7239, section 6.3).
fn is_port(text: &str) -> bool {
    if let Some(hidden) = text.strip_prefix('_') {
        return !hidden.is_empty()
            && hidden.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    }
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() <= 5 && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::Trust;

    const PROXY: &str = "10.0.0.1";
    const XFF: ForwardingHeader = ForwardingHeader::XForwardedFor;
    const FWD: ForwardingHeader = ForwardingHeader::Forwarded;

    fn address(text: &str) -> Address {
        Address::new(text.parse().expect("an address"))
    }

    /// Who is answered when `peer` sends these header lines; 10.0.0.0/8 and fd00::/8 are trusted.
    #[track_caller]
    fn holds(header: ForwardingHeader, peer: &str, lines: &[&[u8]], client: &str, forwarded: bool) {
        let networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().expect("a network"));
        let trust = Trust::new(networks.to_vec(), header).expect("safe networks");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header.name(), HeaderValue::from_bytes(line).expect("a header value"));
        }
        // The other header must never be read.
        let other = if header == XFF { FWD } else { XFF };
        headers.append(other.name(), HeaderValue::from_static("for=203.0.113.66"));
        let origin = trust.origin(address(peer), &headers);
        let lines: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
        assert!(origin.address == address(client), "{lines:?} from {peer} named {}", origin.address.expose());
        assert_eq!(origin.forwarded, forwarded, "{lines:?} from {peer}");
    }

    #[test]
    fn the_first_untrusted_address_from_the_right_is_the_client() {
        let vectors: [(&str, &[&[u8]], &str); 22] = [
            (PROXY, &[b"198.51.100.7"], "198.51.100.7"),
            (PROXY, &[b"203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            (PROXY, &[b"203.0.113.9,198.51.100.7,10.2.3.4"], "198.51.100.7"),
            (PROXY, &[b"203.0.113.9", b"198.51.100.7"], "198.51.100.7"),
            (PROXY, &[b"203.0.113.9, 198.51.100.7", b"10.2.3.4, 10.2.3.5"], "198.51.100.7"),
            (PROXY, &[b"198.51.100.7", b"10.2.3.4", b"fd00::9"], "198.51.100.7"),
            (PROXY, &[b"\t 198.51.100.7 \t"], "198.51.100.7"),
            (PROXY, &[b"198.51.100.7:4711"], "198.51.100.7"),
            (PROXY, &[b"198.51.100.7:0"], "198.51.100.7"),
            (PROXY, &[b"198.51.100.7:65535"], "198.51.100.7"),
            (PROXY, &[b"2001:db8::7"], "2001:db8::7"),
            (PROXY, &[b"[2001:db8::7]"], "2001:db8::7"),
            (PROXY, &[b"[2001:db8::7]:4711"], "2001:db8::7"),
            (PROXY, &[b"2001:DB8:0:0::7"], "2001:db8::7"),
            (PROXY, &[b"::ffff:198.51.100.7"], "198.51.100.7"),
            (PROXY, &[b"[::ffff:c633:6407]:80"], "198.51.100.7"),
            (PROXY, &[b"198.51.100.7, ::ffff:10.2.3.4"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &[b"198.51.100.7"], "198.51.100.7"),
            ("fd00::1", &[b"198.51.100.7"], "198.51.100.7"),
            (PROXY, &[b"_spoof, 198.51.100.7"], "198.51.100.7"),
            (PROXY, &[b"\xff\xfe, 198.51.100.7"], "198.51.100.7"),
            (PROXY, &[b"\", 198.51.100.7"], "198.51.100.7"),
        ];
        for (peer, lines, client) in vectors {
            holds(XFF, peer, lines, client, true);
        }
    }

    #[test]
    fn when_all_are_trusted_the_leftmost_is_the_client() {
        holds(XFF, PROXY, &[b"10.9.9.9"], "10.9.9.9", true);
        holds(XFF, PROXY, &[b"10.9.9.9, 10.2.3.4", b"10.2.3.5"], "10.9.9.9", true);
        holds(FWD, PROXY, &[b"for=10.9.9.9, for=\"[fd00::5]\""], "10.9.9.9", true);
    }

    #[test]
    fn the_walk_ends_at_what_is_no_address() {
        let vectors: [(&[&[u8]], &str); 24] = [
            (&[b""], PROXY),
            (&[b" "], PROXY),
            (&[b"unknown"], PROXY),
            (&[b"_hidden"], PROXY),
            (&[b"198.51.100.7, unknown"], PROXY),
            (&[b"198.51.100.7,"], PROXY),
            (&[b"198.51.100.7,,10.2.3.4"], "10.2.3.4"),
            (&[b"198.51.100.7, garbage, 10.2.3.4"], "10.2.3.4"),
            (&[b"198.51.100.7", b"", b"10.2.3.4"], "10.2.3.4"),
            (&[b"fe80::1%eth0"], PROXY),
            (&[b"[fe80::1%1]:80"], PROXY),
            (&[b"198.51.100.7 203.0.113.9"], PROXY),
            (&[b"198.51.100"], PROXY),
            (&[b"198.51.100.07"], PROXY),
            (&[b"198.51.100.256"], PROXY),
            (&[b"3325256711"], PROXY),
            (&[b"198.51.100.7:"], PROXY),
            (&[b"198.51.100.7:65536"], PROXY),
            (&[b"198.51.100.7:+80"], PROXY),
            (&[b"[198.51.100.7]"], PROXY),
            (&[b"[2001:db8::7"], PROXY),
            (&[b"[2001:db8::7]80"], PROXY),
            (&[b"\"198.51.100.7\""], PROXY),
            (&[b"for=198.51.100.7"], PROXY),
        ];
        for (lines, client) in vectors {
            holds(XFF, PROXY, lines, client, true);
        }
    }

    #[test]
    fn a_forwarded_element_names_its_client_once() {
        let vectors: [(&[&[u8]], &str); 24] = [
            (&[b"for=198.51.100.7"], "198.51.100.7"),
            (&[b"For=198.51.100.7"], "198.51.100.7"),
            (&[b"FOR=\"198.51.100.7\""], "198.51.100.7"),
            (&[b"for=\"198.51.100.7:4711\""], "198.51.100.7"),
            (&[b"for=\"198.51.100.7:_port-1\""], "198.51.100.7"),
            (&[b"for=\"[2001:db8::1]\""], "2001:db8::1"),
            (&[b"for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
            (&[b"proto=https;for=198.51.100.7;by=10.0.0.1"], "198.51.100.7"),
            (&[b"by=\"a;for=203.0.113.9,b\" ; for=198.51.100.7"], "198.51.100.7"),
            (&[b"for=203.0.113.9, for=198.51.100.7, for=10.2.3.4"], "198.51.100.7"),
            (&[b"for=203.0.113.9", b"for=198.51.100.7"], "198.51.100.7"),
            (&[b"for=\"203.0.113.9, for=198.51.100.7"], "198.51.100.7"),
            (&[b"for=203.0.113.9, for=\"", b"for=198.51.100.7"], "198.51.100.7"),
            (&[b"for=203.0.113.9, x=\", for=\"[2001:db8::1]\""], "2001:db8::1"),
            (&[b"for=198.51.100.7;x=\"a\\\",b\""], "198.51.100.7"),
            (&[b"for=unknown"], PROXY),
            (&[b"for=_hidden"], PROXY),
            (&[b"for=198.51.100.7;for=203.0.113.9"], PROXY),
            (&[b"for=198.51.100.7, proto=https"], PROXY),
            (&[b"for=198.51.100.7, for=\"_x\", for=10.2.3.4"], "10.2.3.4"),
            (&[b"for = 198.51.100.7"], PROXY),
            (&[b"for=\"[fe80::1%25eth0]\""], PROXY),
            (&[b"for=\"198.51.100.\\7\""], PROXY),
            (&[b"198.51.100.7"], PROXY),
        ];
        for (lines, client) in vectors {
            holds(FWD, PROXY, lines, client, true);
        }
    }

    #[test]
    fn an_untrusted_peer_is_itself_the_client() {
        for peer in ["192.0.2.1", "11.0.0.1", "2001:db8::1", "::ffff:192.0.2.1", "::10.0.0.1"] {
            holds(XFF, peer, &[b"198.51.100.7"], peer, false);
            holds(FWD, peer, &[b"for=198.51.100.7"], peer, false);
        }
    }

    #[test]
    fn a_trusted_peer_without_the_header_is_itself_the_client() {
        for peer in [PROXY, "::ffff:10.0.0.1", "fd00::1"] {
            holds(XFF, peer, &[], peer, false);
            holds(FWD, peer, &[], peer, false);
        }
    }

    #[test]
    fn a_header_is_chosen_by_its_name() {
        assert_eq!(ForwardingHeader::parse("x-forwarded-for"), Some(XFF));
        assert_eq!(ForwardingHeader::parse("Forwarded"), Some(FWD));
        for odd in ["", "x-real-ip", "forwarded "] {
            assert_eq!(ForwardingHeader::parse(odd), None, "{odd} passed");
        }
    }
}
