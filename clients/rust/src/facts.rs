//! The fields of each scope. Every field is always present; unknown values are `None`.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The scope of a key, or the demo.
pub trait LookupScope: DeserializeOwned + sealed::ScopeSpec {}

/// The scope of a key; not the demo.
pub trait KeyScope: LookupScope {
    /// The test key of this scope. It is public, returns made-up data and has no limits.
    const TEST_KEY: &'static str;
}

pub(crate) mod sealed {
    pub trait ScopeSpec {
        const NAME: &'static str;
        /// Path and query below `/api/v1/`.
        const PATH: &'static str;
        /// A field that no narrower scope has.
        const MARKER_FIELD: &'static str;
    }
}

macro_rules! define_scope {
    ($about:literal $scope:ident $name:literal $path:literal $marker_field:literal { $($fields:tt)* }) => {
        #[doc = $about]
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[non_exhaustive]
        pub struct $scope {
            $($fields)*
        }

        impl sealed::ScopeSpec for $scope {
            const NAME: &'static str = $name;
            const PATH: &'static str = $path;
            const MARKER_FIELD: &'static str = $marker_field;
        }

        impl LookupScope for $scope {}
    };
}

/// Each scope has the fields of the previous ones. The demo lacks those of `full`.
macro_rules! define_scopes {
    (ip { $($ip:tt)* } geo { $($geo:tt)* } demo { $($demo:tt)* } full { $($full:tt)* }) => {
        define_scope! { "The fields of scope `ip`." Ip "ip" "ip?scope=ip" "ip" { $($ip)* } }
        define_scope! { "The fields of scope `geo`." Geo "geo" "ip?scope=geo" "country" { $($ip)* $($geo)* } }
        define_scope! { "The fields of the demo." Demo "demo" "ip/demo" "colo" { $($ip)* $($geo)* $($demo)* } }
        define_scope! {
            "The fields of scope `full`." Full "full" "ip?scope=full" "hosting" { $($ip)* $($geo)* $($demo)* $($full)* }
        }
    };
}

define_scopes! {
    ip {
        /// IPv4 address; `None` for a client on IPv6.
        pub ip: Option<Ipv4Addr>,
        /// IPv6 address; `None` for a client on IPv4.
        pub ipv6: Option<Ipv6Addr>,
    }
    geo {
        /// City name in English.
        pub city: Option<String>,
        /// Region or state name in English.
        pub region: Option<String>,
        /// ISO 3166-2 code, such as `US-CA`.
        pub region_code: Option<String>,
        /// ISO 3166-1 alpha-2 code of the country.
        pub country: Option<String>,
        /// Country name in English.
        pub country_name: Option<String>,
        /// Two-letter continent code.
        pub continent: Option<String>,
        /// Degrees north.
        pub latitude: Option<f64>,
        /// Degrees east.
        pub longitude: Option<f64>,
        /// IANA time zone.
        pub timezone: Option<String>,
        /// UTC offset in seconds at the time of the request.
        pub timezone_offset: Option<i32>,
        /// Postal code.
        pub postal_code: Option<String>,
        /// Autonomous system number.
        pub asn: Option<u32>,
        /// Name of the network's organization.
        pub org: Option<String>,
        /// `AS`, the number, a space and the organization; `None` unless both are known.
        pub r#as: Option<String>,
        /// Whether the country is in the European Union.
        pub is_eu: Option<bool>,
        /// ISO 4217 code of the country's currency.
        pub currency: Option<String>,
    }
    demo {
        /// HTTP version of the request.
        pub http_protocol: Option<String>,
        /// TLS version of the connection; `None` for plain HTTP.
        pub tls_version: Option<String>,
        /// Round-trip time in whole milliseconds, measured on the client's socket.
        pub rtt: Option<u32>,
        /// IATA code of the site that served the request.
        pub colo: Option<String>,
    }
    full {
        /// IANA name of the TLS cipher suite; `None` for plain HTTP.
        pub tls_cipher: Option<String>,
        /// Whether the network belongs to a known VPN or proxy operator.
        pub proxy: Option<bool>,
        /// Whether the network belongs to a known hosting or cloud operator.
        pub hosting: Option<bool>,
    }
}

impl KeyScope for Ip {
    const TEST_KEY: &'static str = "ipst_TestIp0000NotASecret000000000000000000000019mvRI";
}

impl KeyScope for Geo {
    const TEST_KEY: &'static str = "ipst_TestGeo000NotASecret00000000000000000000001mr5ps";
}

impl KeyScope for Full {
    const TEST_KEY: &'static str = "ipst_TestFull00NotASecret000000000000000000000003k296";
}
