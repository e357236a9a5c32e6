//! Header lines from untrusted clients and from proxies in front of them, and the client that must be identified.

use ipseity_edge::ForwardingHeader;

use crate::spoofing::{TRUSTED_PROXY, UNKNOWN_CLIENT, UNTRUSTED_PEER};

/// The header lines of a peer, and the expected client.
pub struct SpoofingVector {
    pub peer: &'static str,
    pub header_lines: Vec<Vec<u8>>,
    pub client: &'static str,
}

/// Connection headers, as a proxy sends them.
pub const CONNECTION_HEADER_LINES: [&str; 5] = [
    "x-client-tls-version: TLSv1.2",
    "x-client-tls-cipher: ECDHE-RSA-AES128-GCM-SHA256",
    "x-client-protocol: HTTP/2.0",
    "x-client-rtt: 12345us",
    "x-client-colo: SJC",
];

type HeaderValues = &'static [&'static [u8]];

/// All vectors for a node that reads this header.
pub fn vectors_for(header: ForwardingHeader) -> Vec<SpoofingVector> {
    let cases: &[(HeaderValues, &str)] = match header {
        ForwardingHeader::XForwardedFor => X_FORWARDED_FOR_VECTORS,
        ForwardingHeader::Forwarded => FORWARDED_VECTORS,
        ForwardingHeader::CfConnectingIp
        | ForwardingHeader::TrueClientIp
        | ForwardingHeader::FlyClientIp
        | ForwardingHeader::XRealIp => SINGLE_ADDRESS_VECTORS,
    };
    let header_line = |name: &str, value: &[u8]| [name.as_bytes(), b": ", value].concat();
    let name = header.name();
    let from_proxy = cases.iter().map(|(values, client)| SpoofingVector {
        peer: TRUSTED_PROXY,
        header_lines: values.iter().map(|value| header_line(name.as_str(), value)).collect(),
        client,
    });
    // The same lines from an untrusted peer are ignored.
    let from_untrusted = cases.iter().take(8).map(|(values, _)| SpoofingVector {
        peer: UNTRUSTED_PEER,
        header_lines: values.iter().map(|value| header_line(name.as_str(), value)).collect(),
        client: UNTRUSTED_PEER,
    });
    // Other headers are never read, because a proxy forwards them from its client.
    let other_headers = ForwardingHeader::ALL.into_iter().filter(|other| *other != header).flat_map(|other| {
        let spoof = |peer| SpoofingVector {
            peer,
            header_lines: vec![header_line(other.name().as_str(), b"203.0.113.66")],
            client: peer,
        };
        [TRUSTED_PROXY, UNTRUSTED_PEER].map(spoof)
    });
    let all_headers = SpoofingVector {
        peer: TRUSTED_PROXY,
        header_lines: ForwardingHeader::ALL
            .into_iter()
            .map(|other| {
                let value: &[u8] =
                    if other == ForwardingHeader::Forwarded { b"for=198.51.100.7" } else { b"198.51.100.7" };
                header_line(other.name().as_str(), if other == header { value } else { b"203.0.113.66" })
            })
            .collect(),
        client: "198.51.100.7",
    };
    from_proxy.chain(from_untrusted).chain(other_headers).chain([all_headers]).collect()
}

const X_FORWARDED_FOR_VECTORS: &[(HeaderValues, &str)] = &[
    (&[b"198.51.100.7"], "198.51.100.7"),
    (&[b"203.0.113.9, 198.51.100.7"], "198.51.100.7"),
    (&[b"203.0.113.9,198.51.100.7,10.2.3.4"], "198.51.100.7"),
    (&[b"203.0.113.9", b"198.51.100.7"], "198.51.100.7"),
    (&[b"203.0.113.9, 198.51.100.7", b"10.2.3.4, 10.2.3.5"], "198.51.100.7"),
    (&[b"198.51.100.7", b"10.2.3.4", b"fd00::9"], "198.51.100.7"),
    (&[b"10.0.0.1, 198.51.100.7"], "198.51.100.7"),
    (&[b"127.0.0.1, 198.51.100.7"], "198.51.100.7"),
    (&[b"127.0.0.1, 203.0.113.9, 198.51.100.7, 127.0.0.1"], "198.51.100.7"),
    (&[b"\t 198.51.100.7 \t"], "198.51.100.7"),
    (&[b"198.51.100.7:4711"], "198.51.100.7"),
    (&[b"198.51.100.7:0"], "198.51.100.7"),
    (&[b"198.51.100.7:65535"], "198.51.100.7"),
    (&[b"2001:db8::7"], "2001:db8::7"),
    (&[b"[2001:db8::7]"], "2001:db8::7"),
    (&[b"[2001:db8::7]:4711"], "2001:db8::7"),
    (&[b"2001:DB8:0:0::7"], "2001:db8::7"),
    (&[b"::ffff:198.51.100.7"], "198.51.100.7"),
    (&[b"::FFFF:198.51.100.7"], "198.51.100.7"),
    (&[b"::ffff:c633:6407"], "198.51.100.7"),
    (&[b"0:0:0:0:0:ffff:c633:6407"], "198.51.100.7"),
    (&[b"[::ffff:c633:6407]:80"], "198.51.100.7"),
    (&[b"203.0.113.9, 198.51.100.7, ::ffff:10.2.3.4"], "198.51.100.7"),
    (&[b"203.0.113.9, 198.51.100.7, ::ffff:a02:304"], "198.51.100.7"),
    (&[b"203.0.113.9, ::10.2.3.4"], "::a02:304"),
    (&[b"203.0.113.9, 64:ff9b::a02:304"], "64:ff9b::a02:304"),
    (&[b"_spoof, 198.51.100.7"], "198.51.100.7"),
    (&[b"\xff\xfe, 198.51.100.7"], "198.51.100.7"),
    (&[b"\", 198.51.100.7"], "198.51.100.7"),
    (&[b"203.0.113.9,, 198.51.100.7"], "198.51.100.7"),
    // All are trusted, so the leftmost is the client.
    (&[b"10.9.9.9"], "10.9.9.9"),
    (&[b"10.9.9.9, 10.2.3.4", b"10.2.3.5"], "10.9.9.9"),
    // Empty entries are skipped. An invalid entry ends the search, and the client is unknown.
    (&[b""], UNKNOWN_CLIENT),
    (&[b" "], UNKNOWN_CLIENT),
    (&[b","], UNKNOWN_CLIENT),
    (&[b"unknown"], UNKNOWN_CLIENT),
    (&[b"_hidden"], UNKNOWN_CLIENT),
    (&[b"203.0.113.9, unknown"], UNKNOWN_CLIENT),
    (&[b"203.0.113.9,"], "203.0.113.9"),
    (&[b"203.0.113.9, "], "203.0.113.9"),
    (&[b"203.0.113.9,,10.2.3.4"], "203.0.113.9"),
    (&[b"203.0.113.9, garbage, 10.2.3.4"], UNKNOWN_CLIENT),
    (&[b"203.0.113.9", b"", b"10.2.3.4"], "203.0.113.9"),
    (&[b"fe80::1%eth0"], UNKNOWN_CLIENT),
    (&[b"fe80::1%25eth0"], UNKNOWN_CLIENT),
    (&[b"[fe80::1%1]:80"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7%1"], UNKNOWN_CLIENT),
    (&[b"203.0.113.9 198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"203.0.113.9;198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"198.51.100"], UNKNOWN_CLIENT),
    (&[b"198.51.100.07"], UNKNOWN_CLIENT),
    (&[b"198.51.100.256"], UNKNOWN_CLIENT),
    (&[b"0306.063.0144.07"], UNKNOWN_CLIENT),
    (&[b"0xc6.0x33.0x64.0x07"], UNKNOWN_CLIENT),
    (&[b"0xc6336407"], UNKNOWN_CLIENT),
    (&[b"3325256711"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7."], UNKNOWN_CLIENT),
    (&[b"198.51.100.7/32"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7:"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7:65536"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7:+80"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7:80:80"], UNKNOWN_CLIENT),
    (&[b"[198.51.100.7]"], UNKNOWN_CLIENT),
    (&[b"[2001:db8::7"], UNKNOWN_CLIENT),
    (&[b"2001:db8::7]"], UNKNOWN_CLIENT),
    (&[b"[2001:db8::7]80"], UNKNOWN_CLIENT),
    (&[b"[[2001:db8::7]]"], UNKNOWN_CLIENT),
    (&[b"2001:db8::7::1"], UNKNOWN_CLIENT),
    (&[b"::ffff:198.51.100.256"], UNKNOWN_CLIENT),
    (&[b"\"198.51.100.7\""], UNKNOWN_CLIENT),
    (&[b"'198.51.100.7'"], UNKNOWN_CLIENT),
    (&[b"for=198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"localhost"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7\xc2\xa0"], UNKNOWN_CLIENT),
];

const FORWARDED_VECTORS: &[(HeaderValues, &str)] = &[
    (&[b"for=198.51.100.7"], "198.51.100.7"),
    (&[b"For=198.51.100.7"], "198.51.100.7"),
    (&[b"FOR=\"198.51.100.7\""], "198.51.100.7"),
    (&[b"for=\"198.51.100.7:4711\""], "198.51.100.7"),
    (&[b"for=\"198.51.100.7:_port-1\""], "198.51.100.7"),
    (&[b"for=\"[2001:db8::1]\""], "2001:db8::1"),
    (&[b"for=\"[2001:db8::1]:4711\""], "2001:db8::1"),
    (&[b"for=\"[::ffff:c633:6407]\""], "198.51.100.7"),
    (&[b"proto=https;for=198.51.100.7;by=10.0.0.1"], "198.51.100.7"),
    (&[b"by=\"a;for=203.0.113.9,b\" ; for=198.51.100.7"], "198.51.100.7"),
    (&[b"for=203.0.113.9, for=198.51.100.7, for=10.2.3.4"], "198.51.100.7"),
    (&[b"for=203.0.113.9", b"for=198.51.100.7"], "198.51.100.7"),
    (&[b"for=\"203.0.113.9, for=198.51.100.7"], "198.51.100.7"),
    (&[b"for=203.0.113.9, for=\"", b"for=198.51.100.7"], "198.51.100.7"),
    (&[b"for=203.0.113.9, x=\", for=\"[2001:db8::1]\""], "2001:db8::1"),
    (&[b"for=198.51.100.7;x=\"a\\\",b\""], "198.51.100.7"),
    (&[b"for=10.9.9.9, for=\"[fd00::5]\""], "10.9.9.9"),
    (&[b""], UNKNOWN_CLIENT),
    (&[b","], UNKNOWN_CLIENT),
    (&[b"for="], UNKNOWN_CLIENT),
    (&[b"for=\"\""], UNKNOWN_CLIENT),
    (&[b"for=unknown"], UNKNOWN_CLIENT),
    (&[b"for=_hidden"], UNKNOWN_CLIENT),
    (&[b"for=203.0.113.9, for=_hidden"], UNKNOWN_CLIENT),
    (&[b"for=203.0.113.9,, for=10.2.3.4"], "203.0.113.9"),
    (&[b" , for=203.0.113.9, ,"], "203.0.113.9"),
    (&[b"for=198.51.100.7;for=203.0.113.9"], UNKNOWN_CLIENT),
    (&[b"for=198.51.100.7;FOR=203.0.113.9"], UNKNOWN_CLIENT),
    (&[b"for=203.0.113.9, proto=https"], UNKNOWN_CLIENT),
    (&[b"for=203.0.113.9, by=10.2.3.4"], UNKNOWN_CLIENT),
    (&[b"for=203.0.113.9, for=\"_x\", for=10.2.3.4"], UNKNOWN_CLIENT),
    (&[b"for = 198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"for=\"[fe80::1%25eth0]\""], UNKNOWN_CLIENT),
    (&[b"for=\"198.51.100.\\7\""], UNKNOWN_CLIENT),
    (&[b"for='198.51.100.7'"], UNKNOWN_CLIENT),
    (&[b"for=198.51.100.7\""], UNKNOWN_CLIENT),
    (&[b"xfor=198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7"], UNKNOWN_CLIENT),
];

const SINGLE_ADDRESS_VECTORS: &[(HeaderValues, &str)] = &[
    (&[b"198.51.100.7"], "198.51.100.7"),
    (&[b"2001:db8::7"], "2001:db8::7"),
    (&[b"::ffff:c633:6407"], "198.51.100.7"),
    (&[b" 198.51.100.7 "], "198.51.100.7"),
    (&[b"10.2.3.4"], "10.2.3.4"),
    // The proxy writes one address. A list or a second line comes from the client.
    (&[b"203.0.113.9, 198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"203.0.113.9", b"198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"198.51.100.7", b"198.51.100.7"], UNKNOWN_CLIENT),
    (&[b""], UNKNOWN_CLIENT),
    (&[b"unknown"], UNKNOWN_CLIENT),
    (&[b"fe80::1%1"], UNKNOWN_CLIENT),
    (&[b"for=198.51.100.7"], UNKNOWN_CLIENT),
    (&[b"198.51.100.07"], UNKNOWN_CLIENT),
];
