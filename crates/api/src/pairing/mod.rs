//! Pairing: both addresses of a caller in one response.
//!
//! A connection shows one address. So the service has a host name that is reachable over IPv4 only and one over IPv6 only. A
//! caller requests a token at the host of the other family (`GET /api/v1/pair`), and sends it with its lookup. The token seals
//! the address of the connection that requested it. Nothing is stored.

pub(crate) mod handler;
mod host_family;
pub(crate) mod pair_throttle;
mod token;

use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use ipseity_domain::{Address, Client};

use self::host_family::HostFamilies;
use self::pair_throttle::PairThrottle;
pub(crate) use self::token::UnusedToken;
use crate::sealed::TokenSealer;
use crate::wall_clock::wall_clock;

/// The request header with up to two tokens, separated by a comma.
pub(crate) const PAIR_HEADER: HeaderName = HeaderName::from_static("ipseity-pair");
/// The response header that says why no token was used.
pub(crate) const PAIR_UNUSED_HEADER: HeaderName = HeaderName::from_static("ipseity-pair-unused");
/// One for each family: a caller may not know which one its lookup uses.
const TOKENS_MAX: usize = 2;

/// Settings of pairing.
pub struct PairingOptions {
    /// URL whose host is reachable over IPv4 only.
    pub ipv4_url: String,
    /// Host name of that URL, in lower case.
    pub ipv4_host: String,
    /// URL whose host is reachable over IPv6 only.
    pub ipv6_url: String,
    /// Host name of that URL, in lower case.
    pub ipv6_host: String,
    /// Origin of the base URL, as browsers send it.
    pub base_origin: String,
    /// How long a token is valid, in seconds.
    pub token_lifetime_s: u64,
    /// Maximum number of tokens per network and minute.
    pub tokens_per_subnet_per_min_max: u32,
    /// Maximum number of networks whose tokens are counted.
    pub networks_max: usize,
}

/// Issues tokens, and reads those of lookups.
pub struct Pairing {
    sealer: Arc<TokenSealer>,
    host_families: HostFamilies,
    /// The URLs for IPv4 and for IPv6.
    urls: [String; 2],
    base_origin: HeaderValue,
    token_lifetime_s: u64,
    throttle: PairThrottle,
}

impl Pairing {
    /// Creates the pairing. Returns `None` if the origin is not a valid header value.
    #[must_use]
    pub fn new(options: PairingOptions, sealer: Arc<TokenSealer>) -> Option<Self> {
        Some(Self {
            sealer,
            host_families: HostFamilies::new(options.ipv4_host, options.ipv6_host),
            urls: [options.ipv4_url, options.ipv6_url],
            base_origin: HeaderValue::try_from(options.base_origin).ok()?,
            token_lifetime_s: options.token_lifetime_s,
            throttle: PairThrottle::new(options.tokens_per_subnet_per_min_max, options.networks_max),
        })
    }

    /// The URLs for IPv4 and for IPv6.
    #[must_use]
    pub const fn urls(&self) -> &[String; 2] {
        &self.urls
    }

    /// Whether the host of a request is for the other family. A browser may reuse a connection for another host with the same
    /// certificate (RFC 9113, section 9.1.1).
    pub(crate) fn is_misdirected<B>(&self, client: &Client, request: &Request<B>) -> bool {
        let host_family = self.host_families.family_of(request.uri(), request.headers());
        host_family.is_some_and(|family| client.address.family() != Some(family))
    }

    /// The other address of a client: that of the first token that can be used. `None` without a token.
    pub(crate) fn paired_address(
        &self,
        client: &Client,
        headers: &HeaderMap,
        now_s: u64,
    ) -> Option<Result<Address, UnusedToken>> {
        let mut result = None;
        for token in tokens(headers) {
            let opened = token::open(&self.sealer, self.origin(headers), token, now_s)
                .and_then(|address| token::check_family(address, client));
            match (&result, &opened) {
                (_, Ok(_)) => return Some(opened),
                // Of two tokens, one is of the same family. The reason is that of the other one.
                (None | Some(Err(UnusedToken::SameFamily)), Err(_)) => result = Some(opened),
                (Some(_), Err(_)) => {}
            }
        }
        result
    }

    /// The origin that a token is bound to. Browsers send none to the origin of the page itself, and programs never do.
    fn origin<'a>(&'a self, headers: &'a HeaderMap) -> &'a [u8] {
        headers.get(ORIGIN).unwrap_or(&self.base_origin).as_bytes()
    }
}

/// The tokens of a request.
fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(PAIR_HEADER).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).take(TOKENS_MAX)
}

/// Without pairing, a token cannot be read.
pub(crate) fn paired_address(
    pairing: Option<&Pairing>,
    client: &Client,
    headers: &HeaderMap,
) -> Option<Result<Address, UnusedToken>> {
    match pairing {
        // Most lookups have no token.
        _ if !headers.contains_key(PAIR_HEADER) => None,
        Some(pairing) => pairing.paired_address(client, headers, wall_clock().as_secs()),
        None => Some(Err(UnusedToken::Unreadable)),
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::ConnectionFacts;

    use super::*;
    use crate::sealed::forgeries::forgeries_of;

    const NOW_S: u64 = 1_800_000_000;
    const IPV4: &str = "198.51.100.7";
    const IPV6: &str = "2001:db8::7";

    fn pairing() -> Pairing {
        let options = PairingOptions {
            ipv4_url: "https://ipv4.example.com".to_owned(),
            ipv4_host: "ipv4.example.com".to_owned(),
            ipv6_url: "https://ipv6.example.com".to_owned(),
            ipv6_host: "ipv6.example.com".to_owned(),
            base_origin: "https://ip.example.com".to_owned(),
            token_lifetime_s: 30,
            tokens_per_subnet_per_min_max: 10,
            networks_max: 10,
        };
        let sealer = TokenSealer::new("https://ip.example.com".to_owned(), None);
        Pairing::new(options, Arc::new(sealer)).expect("valid origin")
    }

    fn client(address: &str) -> Client {
        let address = Address::new(address.parse().expect("address parses"));
        Client { address, connection: ConnectionFacts::default() }
    }

    fn header_map(lines: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value.parse().expect("valid header"));
        }
        headers
    }

    fn issued(pairing: &Pairing, address: &str, origin: &[(HeaderName, &str)]) -> String {
        let address = client(address).address;
        let token = token::seal(&pairing.sealer, pairing.origin(&header_map(origin)), address, 30, NOW_S);
        token.expect("token is sealed")
    }

    /// Which of the two addresses was added, or why no token was used.
    fn paired(
        pairing: &Pairing,
        address: &str,
        lines: &[(HeaderName, &str)],
        now_s: u64,
    ) -> Result<&'static str, &'static str> {
        let paired = pairing.paired_address(&client(address), &header_map(lines), now_s).expect("a token was sent");
        let text = |added| [IPV4, IPV6].into_iter().find(|text| client(text).address == added).expect("known address");
        paired.map(text).map_err(UnusedToken::name)
    }

    #[test]
    fn token_adds_the_address_of_the_other_family() {
        let pairing = pairing();
        for (own, other) in [(IPV4, IPV6), (IPV6, IPV4), ("::ffff:198.51.100.7", IPV6)] {
            let token = issued(&pairing, other, &[]);
            assert_eq!(paired(&pairing, own, &[(PAIR_HEADER, &token)], NOW_S), Ok(other));
            assert_eq!(paired(&pairing, other, &[(PAIR_HEADER, &token)], NOW_S), Err("same-family"));
        }
        let token = issued(&pairing, IPV4, &[]);
        let unknown = Client { address: Address::UNKNOWN, connection: ConnectionFacts::default() };
        let paired = pairing.paired_address(&unknown, &header_map(&[(PAIR_HEADER, &token)]), NOW_S);
        assert!(paired == Some(Err(UnusedToken::SameFamily)), "nothing is added to an unknown address");
        assert!(pairing.paired_address(&unknown, &HeaderMap::new(), NOW_S).is_none());
    }

    #[test]
    fn forged_and_changed_tokens_add_no_address() {
        let pairing = pairing();
        // Spaces around tokens are ignored.
        let is_changed = |forged: &String| forged.is_ascii() && !forged.starts_with(' ');
        for forged in forgeries_of(&issued(&pairing, IPV4, &[])).filter(is_changed) {
            let paired = paired(&pairing, IPV6, &[(PAIR_HEADER, &forged)], NOW_S);
            assert_eq!(paired, Err("unreadable"), "{forged}");
        }
    }

    #[test]
    fn token_expires_with_a_tolerance_of_two_seconds() {
        let pairing = pairing();
        let token = issued(&pairing, IPV4, &[]);
        for (after_s, expected) in
            [(0, Ok(())), (30, Ok(())), (32, Ok(())), (33, Err("expired")), (900, Err("expired"))]
        {
            let paired = paired(&pairing, IPV6, &[(PAIR_HEADER, &token)], NOW_S + after_s);
            assert_eq!(paired.map(drop), expected, "{after_s}");
        }
        assert_eq!(paired(&pairing, IPV6, &[(PAIR_HEADER, &token)], NOW_S + 3_600), Err("unreadable"));
    }

    #[test]
    fn token_is_bound_to_the_origin() {
        let pairing = pairing();
        let origins = ["https://shop.example", "https://shop.example.", "null"].map(|origin| vec![(ORIGIN, origin)]);
        let origins = [origins.to_vec(), vec![Vec::new()]].concat();
        for origin in &origins {
            let token = issued(&pairing, IPV4, origin);
            for sent_by in &origins {
                let lines = [sent_by, &[(PAIR_HEADER, &*token)][..]].concat();
                let expected = if origin == sent_by { Ok(IPV4) } else { Err("unreadable") };
                assert_eq!(paired(&pairing, IPV6, &lines, NOW_S), expected, "{origin:?} {sent_by:?}");
            }
        }
        let token = issued(&pairing, IPV4, &[(ORIGIN, "https://ip.example.com")]);
        let same_origin = paired(&pairing, IPV6, &[(PAIR_HEADER, &token)], NOW_S);
        assert_eq!(same_origin, Ok(IPV4), "a page of the service sends no Origin to it");
    }

    #[test]
    fn of_two_tokens_the_other_family_is_used() {
        let pairing = pairing();
        let [v4, v6] = [IPV4, IPV6].map(|address| issued(&pairing, address, &[]));
        for list in [format!("{v4},{v6}"), format!("{v6} , {v4}")] {
            assert_eq!(paired(&pairing, IPV4, &[(PAIR_HEADER, &list)], NOW_S), Ok(IPV6));
            assert_eq!(paired(&pairing, IPV6, &[(PAIR_HEADER, &list)], NOW_S), Ok(IPV4));
        }
        let two_lines = [(PAIR_HEADER, &*v4), (PAIR_HEADER, &*v6)];
        assert_eq!(paired(&pairing, IPV4, &two_lines, NOW_S), Ok(IPV6));
        for list in [format!("{v4},x"), format!("x,{v4}"), format!("x,x,{v6}")] {
            assert_eq!(paired(&pairing, IPV4, &[(PAIR_HEADER, &list)], NOW_S), Err("unreadable"), "{list}");
        }
        assert_eq!(paired(&pairing, IPV4, &[(PAIR_HEADER, "")], NOW_S), Err("unreadable"));
    }
}
