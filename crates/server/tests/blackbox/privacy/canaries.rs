//! Addresses, keys and other secrets that are sent to the deployment and must be found nowhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Mutex;

use ipseity_testkit::{Needle, NeedleEncoding, PrivacyFinding, PrivacySearch};

/// A peer outside the trusted networks counts as a client.
pub(crate) const PEER: Ipv4Addr = Ipv4Addr::new(127, 250, 249, 252);
/// Number of addresses that are used in turn, half of each family.
const ADDRESSES: usize = 2_000;
/// Number of IPv4 addresses that are also searched as four raw bytes and are used more often. With a thousand, a chance
/// match in a run's megabytes of digests and checksums would occur about once in six runs.
const BINARY_MARKED: usize = 20;
/// First octets of the IPv4 addresses.
const FIRST_OCTETS: RangeInclusive<u8> = 129..=223;

pub(crate) struct Canaries {
    addresses: Vec<IpAddr>,
    next: Mutex<usize>,
    secrets: Mutex<Vec<String>>,
}

impl Canaries {
    pub(crate) fn generate() -> Self {
        let addresses = (0..ADDRESSES)
            .map(|index| if index % 2 == 0 { random_v4(FIRST_OCTETS).into() } else { random_v6().into() })
            .collect();
        Self { addresses, next: Mutex::new(0), secrets: Mutex::default() }
    }

    /// The next address. Every fourth is one that is searched as raw bytes.
    pub(crate) fn next_address(&self) -> IpAddr {
        let mut next = self.next.lock().expect("lock is not poisoned");
        *next += 1;
        let index = if next.is_multiple_of(4) { 2 * (*next / 4 % BINARY_MARKED) } else { *next % ADDRESSES };
        self.addresses[index]
    }

    /// Whether these four bytes of a file match an address by chance.
    pub(crate) fn is_coincidence(&self, finding: &PrivacyFinding) -> bool {
        let Needle::Address(address) = &finding.needle else { return false };
        let mut marked = self.addresses.iter().step_by(2).take(BINARY_MARKED).chain([&IpAddr::V4(PEER)]);
        finding.encoding == NeedleEncoding::Binary && address.is_ipv4() && marked.all(|marked| marked != address)
    }

    /// The next address in one of its notations, both usual and unusual ones.
    pub(crate) fn next_spelling(&self) -> String {
        random_spelling(self.next_address())
    }

    /// Registers a key, whose secret must not be found either.
    pub(crate) fn register_key(&self, key: &str) -> String {
        self.register_secret(key.get(14..46).expect("key has a secret"));
        self.register_secret(key)
    }

    /// Registers a password or a session cookie.
    pub(crate) fn register_secret(&self, text: &str) -> String {
        self.secrets.lock().expect("lock is not poisoned").push(text.to_owned());
        text.to_owned()
    }

    /// Headers with client addresses, in all formats that the service, its proxies and others use.
    pub(crate) fn client_headers(&self) -> Vec<(String, String)> {
        let [client, spoofed] = [self.next_spelling(), self.next_spelling()];
        let quoted = |text: &str| if text.contains(':') { format!("\"[{text}]\"") } else { text.to_owned() };
        let forwarded = match fastrand::u8(..4) {
            0 => format!("for={}", quoted(&client)),
            1 => format!("for={spoofed}, for={};proto=https;by={}", quoted(&client), quoted(&self.next_spelling())),
            2 => format!("for=\"{client}"),
            _ => format!("for={client};for={spoofed}"),
        };
        let x_forwarded_for = match fastrand::u8(..4) {
            0 => client.clone(),
            1 => format!("{spoofed}, {client}"),
            2 => format!("\"{client}\""),
            _ => format!("{client} {spoofed}"),
        };
        let lines = [
            ("x-forwarded-for", x_forwarded_for),
            ("forwarded", forwarded),
            ("cf-connecting-ip", client),
            ("true-client-ip", spoofed),
            ("fly-client-ip", self.next_spelling()),
            ("x-real-ip", self.next_spelling()),
            ("referer", format!("https://example.com/{}", self.next_spelling())),
            ("user-agent", format!("Firefox/1.0 (Linux; {})", self.next_spelling())),
        ];
        lines.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Everything that may have been sent.
    pub(crate) fn needles(&self) -> Vec<Needle> {
        let secrets = self.secrets.lock().expect("lock is not poisoned").clone();
        let addresses = self.addresses.iter().copied().chain([IpAddr::V4(PEER)]);
        addresses.map(Needle::Address).chain(secrets.into_iter().map(Needle::Text)).collect()
    }

    pub(crate) fn build_search(&self) -> PrivacySearch {
        PrivacySearch::new(self.needles()).expect("create a search")
    }
}

/// Uses bytes that are not valid UTF-8 in this order, so that a match in a file is not text.
pub(crate) fn random_v4(first: RangeInclusive<u8>) -> Ipv4Addr {
    let byte = || fastrand::u8(0xF8..=0xFE);
    Ipv4Addr::new(fastrand::u8(first), byte(), byte(), byte())
}

pub(crate) fn random_v6() -> Ipv6Addr {
    Ipv6Addr::from(0x2001_0db8_u128 << 96 | fastrand::u128(..) >> 32)
}

fn random_spelling(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => match fastrand::u8(..8) {
            0..3 => v4.to_string(),
            3 => format!("{v4}:4711"),
            4 => format!("::ffff:{v4}"),
            5 => v4.to_ipv6_mapped().segments().map(|group| format!("{group:x}")).join(":"),
            6 => format!("{:#x}", v4.to_bits()),
            _ => v4.to_bits().to_string(),
        },
        IpAddr::V6(v6) => match fastrand::u8(..8) {
            0..3 => v6.to_string(),
            3 => v6.to_string().to_uppercase(),
            4 => v6.segments().map(|group| format!("{group:04x}")).join(":"),
            5 => format!("[{v6}]:4711"),
            6 => format!("{v6}%eth0"),
            _ => v6.to_bits().to_string(),
        },
    }
}
