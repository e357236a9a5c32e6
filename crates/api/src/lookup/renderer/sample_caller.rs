//! Made-up callers, for test keys and for the examples of the OpenAPI document. All addresses and AS numbers are reserved
//! for documentation (RFC 5737, RFC 3849, RFC 5398), so none of them belongs to anyone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipseity_domain::{
    Address, Client, Colo, ConnectionFacts, FieldSet, GeoFacts, HttpProtocol, Location, Network, TlsInfo, TlsVersion,
};

use crate::lookup::renderer::body::{RenderedFacts, render_body};

/// A made-up caller. Every value is constant, so that tests can compare with it.
pub(crate) struct SampleCaller {
    /// The value of the parameter `as`.
    pub(crate) name: &'static str,
    address: Option<IpAddr>,
    connection: Option<SampleConnection>,
    facts: GeoFacts<'static>,
}

struct SampleConnection {
    http_protocol: HttpProtocol,
    rtt_ms: u32,
    colo: &'static str,
}

/// Someone at home, and the caller of a request without `as`.
pub(crate) const HOME: SampleCaller = SampleCaller {
    name: "home",
    address: Some(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7))),
    connection: Some(SampleConnection { http_protocol: HttpProtocol::Http2, rtt_ms: 12, colo: "CDG" }),
    facts: GeoFacts {
        location: Location {
            city: Some("Paris"),
            region: Some("Île-de-France"),
            region_code: Some("FR-IDF"),
            country: Some("FR"),
            country_name: Some("France"),
            continent: Some("EU"),
            latitude: Some(48.8534),
            longitude: Some(2.3488),
            timezone: Some("Europe/Paris"),
            timezone_offset: Some(3600),
            postal_code: Some("75001"),
            is_eu: Some(true),
            currency: Some("EUR"),
            ..Location::UNKNOWN
        },
        network: Network { asn: Some(64500), org: Some("Example Networks"), proxy: Some(false), hosting: Some(false) },
    },
};

/// The callers by which applications can test how they handle addresses, missing values and kinds of networks.
pub(crate) static SAMPLE_CALLERS: [SampleCaller; 7] = [
    HOME,
    SampleCaller {
        name: "ipv6",
        address: Some(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 7))),
        connection: Some(SampleConnection { http_protocol: HttpProtocol::Http3, rtt_ms: 0, colo: "NRT" }),
        facts: GeoFacts {
            location: Location {
                city: Some("Tokyo"),
                region: Some("Tokyo"),
                region_code: Some("JP-13"),
                country: Some("JP"),
                country_name: Some("Japan"),
                continent: Some("AS"),
                latitude: Some(35.6895),
                longitude: Some(139.6917),
                timezone: Some("Asia/Tokyo"),
                timezone_offset: Some(32_400),
                postal_code: Some("100-0001"),
                is_eu: Some(false),
                currency: Some("JPY"),
                ..Location::UNKNOWN
            },
            network: Network { asn: Some(64501), org: Some("Example Fiber"), proxy: Some(false), hosting: Some(false) },
        },
    },
    // Carriers send many people through one exchange, so databases often know only the country.
    SampleCaller {
        name: "mobile",
        address: Some(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 23))),
        connection: Some(SampleConnection { http_protocol: HttpProtocol::Http2, rtt_ms: 180, colo: "GRU" }),
        facts: GeoFacts {
            location: Location {
                country: Some("BR"),
                country_name: Some("Brazil"),
                continent: Some("SA"),
                latitude: Some(-10.0),
                longitude: Some(-55.0),
                timezone: Some("America/Sao_Paulo"),
                timezone_offset: Some(-10_800),
                is_eu: Some(false),
                currency: Some("BRL"),
                ..Location::UNKNOWN
            },
            network: Network {
                asn: Some(64502),
                org: Some("Example Mobile"),
                proxy: Some(false),
                hosting: Some(false),
            },
        },
    },
    SampleCaller {
        name: "datacenter",
        address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 80))),
        connection: Some(SampleConnection { http_protocol: HttpProtocol::Http11, rtt_ms: 2, colo: "KEF" }),
        facts: GeoFacts {
            location: Location {
                city: Some("Reykjavík"),
                region: Some("Capital Region"),
                region_code: Some("IS-1"),
                country: Some("IS"),
                country_name: Some("Iceland"),
                continent: Some("EU"),
                latitude: Some(64.1355),
                longitude: Some(-21.8954),
                timezone: Some("Atlantic/Reykjavik"),
                timezone_offset: Some(0),
                postal_code: Some("101"),
                is_eu: Some(false),
                currency: Some("ISK"),
                ..Location::UNKNOWN
            },
            network: Network { asn: Some(64503), org: Some("Example Cloud"), proxy: Some(false), hosting: Some(true) },
        },
    },
    SampleCaller {
        name: "vpn",
        address: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 44))),
        connection: Some(SampleConnection { http_protocol: HttpProtocol::Http2, rtt_ms: 95, colo: "SIN" }),
        facts: GeoFacts {
            location: Location {
                city: Some("Singapore"),
                country: Some("SG"),
                country_name: Some("Singapore"),
                continent: Some("AS"),
                latitude: Some(1.2897),
                longitude: Some(103.8501),
                timezone: Some("Asia/Singapore"),
                timezone_offset: Some(28_800),
                is_eu: Some(false),
                currency: Some("SGD"),
                ..Location::UNKNOWN
            },
            network: Network { asn: Some(64504), org: Some("Example VPN"), proxy: Some(true), hosting: Some(true) },
        },
    },
    // The databases do not have the address.
    SampleCaller {
        name: "unknown",
        address: Some(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 99))),
        connection: Some(SampleConnection { http_protocol: HttpProtocol::Http11, rtt_ms: 30, colo: "FRA" }),
        facts: GeoFacts { location: Location::UNKNOWN, network: Network::UNKNOWN },
    },
    // A proxy in front of the service does not name the client.
    SampleCaller {
        name: "no-address",
        address: None,
        connection: None,
        facts: GeoFacts { location: Location::UNKNOWN, network: Network::UNKNOWN },
    },
];

impl SampleCaller {
    /// The caller with a name, in upper or lower case.
    pub(crate) fn find(name: &str) -> Option<&'static Self> {
        SAMPLE_CALLERS.iter().find(|caller| caller.name.eq_ignore_ascii_case(name))
    }

    /// The body of a lookup by this caller.
    pub(crate) fn body(&self, field_set: FieldSet) -> Vec<u8> {
        let address = self.address.map_or(Address::UNKNOWN, Address::new);
        let client = Client { address, connection: self.connection_facts() };
        render_body(&client, None, &RenderedFacts::render(&self.facts, field_set), field_set)
    }

    fn connection_facts(&self) -> ConnectionFacts {
        let Some(SampleConnection { http_protocol, rtt_ms, colo }) = &self.connection else {
            return ConnectionFacts::default();
        };
        ConnectionFacts {
            http_protocol: Some(*http_protocol),
            is_encrypted: Some(true),
            tls: Some(TlsInfo { version: TlsVersion::V13, cipher: Some("TLS_AES_128_GCM_SHA256") }),
            rtt_ms: Some(*rtt_ms),
            colo: Colo::parse(colo),
        }
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::Scope;
    use serde_json::Value;

    use super::*;

    fn is_for_documentation(address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => v4.is_documentation(),
            IpAddr::V6(v6) => v6.segments()[..2] == [0x2001, 0xdb8],
        }
    }

    #[test]
    fn sample_callers_have_only_addresses_and_networks_for_documentation() {
        for caller in &SAMPLE_CALLERS {
            assert!(caller.address.is_none_or(is_for_documentation), "{}", caller.name);
            assert!(caller.facts.network.asn.is_none_or(|asn| (64_496..=64_511).contains(&asn)), "{}", caller.name);
            let colo = caller.connection.as_ref().map(|connection| connection.colo);
            assert!(colo.is_none_or(|colo| Colo::parse(colo).is_some()), "{}", caller.name);
        }
    }

    #[test]
    fn sample_callers_have_distinct_names_and_bodies() {
        let full = FieldSet::Scope(Scope::Full);
        let bodies = SAMPLE_CALLERS.iter().map(|caller| caller.body(full)).collect::<std::collections::HashSet<_>>();
        let names = SAMPLE_CALLERS.iter().map(|caller| caller.name).collect::<std::collections::HashSet<_>>();
        assert_eq!((bodies.len(), names.len()), (SAMPLE_CALLERS.len(), SAMPLE_CALLERS.len()));
    }

    #[test]
    fn caller_without_address_has_only_null() {
        let body = SAMPLE_CALLERS.last().map(|caller| caller.body(FieldSet::Scope(Scope::Full))).expect("callers");
        let body: serde_json::Map<String, Value> = serde_json::from_slice(&body).expect("JSON object");
        assert!(body.iter().all(|(name, value)| (name == "status") != value.is_null()), "{body:?}");
    }
}
