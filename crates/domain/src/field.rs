//! The fields of a response, in order, and which field set contains which.

use crate::scope::Scope;

/// The fields of a scope, or the fixed fields of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldSet {
    /// The fields of a scope.
    Scope(Scope),
    /// The fields of the demo.
    Demo,
}

macro_rules! define_fields {
    ($($variant:ident $name:literal $scope:ident $demo:ident $json:literal $description:literal;)+) => {
        /// A field of a response.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Field {
            $(#[doc = $description] $variant,)+
        }

        impl Field {
            /// All fields, in the order of a response.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The field's name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// What the field means, in one sentence.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self { $(Self::$variant => $description,)+ }
            }

            /// The JSON type of the field if it is not null.
            #[must_use]
            pub const fn json_type(self) -> &'static str {
                match self { $(Self::$variant => $json,)+ }
            }

            /// The narrowest scope that contains the field.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$variant => Scope::$scope,)+ }
            }

            /// Whether the demo contains the field.
            #[must_use]
            pub const fn in_demo(self) -> bool {
                match self { $(Self::$variant => $demo,)+ }
            }
        }
    };
}

define_fields! {
    Status         "status"          Ip   true  "string" "Always `success`.";
    Ip             "ip"              Ip   true  "string" "IPv4 address. Null for clients that connect over IPv6 and send no token.";
    Ipv6           "ipv6"            Ip   true  "string" "IPv6 address. Null for clients that connect over IPv4 and send no token.";
    City           "city"            Geo  true  "string" "City name in English.";
    Region         "region"          Geo  true  "string" "Region or state name in English.";
    RegionCode     "region_code"     Geo  true  "string" "ISO 3166-2 code, such as `US-CA`.";
    Country        "country"         Geo  true  "string" "ISO 3166-1 alpha-2 code of the country.";
    CountryName    "country_name"    Geo  true  "string" "Country name in English.";
    Continent      "continent"       Geo  true  "string" "Two-letter continent code.";
    Latitude       "latitude"        Geo  true  "number" "Degrees north.";
    Longitude      "longitude"       Geo  true  "number" "Degrees east.";
    Timezone       "timezone"        Geo  true  "string" "IANA time zone.";
    TimezoneOffset "timezone_offset" Geo  true  "integer" "UTC offset in seconds at the time of the request.";
    PostalCode     "postal_code"     Geo  true  "string" "Postal code.";
    Asn            "asn"             Geo  true  "integer" "Autonomous system number.";
    Org            "org"             Geo  true  "string" "Name of the organization that operates the network.";
    As             "as"              Geo  true  "string" "`AS`, the number, a space and the organization. Null unless both are known.";
    IsEu           "is_eu"           Geo  true  "boolean" "Whether the country is in the European Union.";
    Currency       "currency"        Geo  true  "string" "ISO 4217 code of the country's currency.";
    HttpProtocol   "http_protocol"   Full true  "string" "HTTP version of the request.";
    TlsVersion     "tls_version"     Full true  "string" "TLS version of the connection. Null without TLS.";
    TlsCipher      "tls_cipher"      Full false "string" "IANA name of the TLS cipher suite. Null without TLS.";
    Rtt            "rtt"             Full true  "integer" "Round-trip time in whole milliseconds, measured on the client's socket.";
    Colo           "colo"            Full true  "string" "IATA code of the site that served the request.";
    Proxy          "proxy"           Full false "boolean" "Whether the network belongs to a known VPN or proxy operator.";
    Hosting        "hosting"         Full false "boolean" "Whether the network belongs to a known hosting or cloud operator.";
}

impl FieldSet {
    /// Whether the set contains a field.
    #[must_use]
    pub fn contains(self, field: Field) -> bool {
        match self {
            Self::Scope(scope) => field.scope() <= scope,
            Self::Demo => field.in_demo(),
        }
    }

    /// The fields of the set, in the order of a response.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::ALL.into_iter().filter(move |field| self.contains(*field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_scope_has_status_ip_and_ipv6() {
        let names: Vec<_> = FieldSet::Scope(Scope::Ip).fields().map(Field::name).collect();
        assert_eq!(names, ["status", "ip", "ipv6"]);
    }

    #[test]
    fn full_scope_has_every_field() {
        assert_eq!(FieldSet::Scope(Scope::Full).fields().count(), Field::ALL.len());
        assert_eq!(Field::ALL.len(), 26);
    }

    #[test]
    fn demo_has_geo_and_four_connection_fields() {
        let beyond_geo: Vec<_> =
            FieldSet::Demo.fields().filter(|field| field.scope() == Scope::Full).map(Field::name).collect();
        assert_eq!(beyond_geo, ["http_protocol", "tls_version", "rtt", "colo"]);
        assert!(FieldSet::Scope(Scope::Geo).fields().all(|field| FieldSet::Demo.contains(field)));
    }
}
