//! Facts about an address. Strings are borrowed from the database.

/// All facts about an address, before the scope selects fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GeoFacts<'a> {
    /// The location of the address.
    pub location: Location<'a>,
    /// The network of the address.
    pub network: Network<'a>,
}

/// The location of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Location<'a> {
    /// City name in English.
    pub city: Option<&'a str>,
    /// Region or state name in English.
    pub region: Option<&'a str>,
    /// ISO 3166-2 code, such as `US-CA`.
    pub region_code: Option<&'a str>,
    /// ISO 3166-1 alpha-2 code.
    pub country: Option<&'a str>,
    /// Country name in English.
    pub country_name: Option<&'a str>,
    /// Two-letter continent code.
    pub continent: Option<&'a str>,
    /// Degrees north.
    pub latitude: Option<f64>,
    /// Degrees east.
    pub longitude: Option<f64>,
    /// Radius around the point, in kilometers, in which the database expects most clients.
    pub accuracy_km: Option<u16>,
    /// IANA time zone.
    pub timezone: Option<&'a str>,
    /// Seconds east of UTC, at the time of the request.
    pub timezone_offset: Option<i32>,
    /// Postal code.
    pub postal_code: Option<&'a str>,
    /// Whether the country is in the European Union.
    pub is_eu: Option<bool>,
    /// ISO 4217 code of the country's legal tender.
    pub currency: Option<&'a str>,
}

impl Location<'_> {
    /// A location without facts.
    pub const UNKNOWN: Self = Self {
        city: None,
        region: None,
        region_code: None,
        country: None,
        country_name: None,
        continent: None,
        latitude: None,
        longitude: None,
        accuracy_km: None,
        timezone: None,
        timezone_offset: None,
        postal_code: None,
        is_eu: None,
        currency: None,
    };
}

/// The network of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network<'a> {
    /// Autonomous system number.
    pub asn: Option<u32>,
    /// Name of the organization that operates it.
    pub org: Option<&'a str>,
    /// Whether it belongs to a known VPN or proxy operator. `None` if unknown.
    pub proxy: Option<bool>,
    /// Whether it belongs to a known hosting or cloud operator. `None` if unknown.
    pub hosting: Option<bool>,
}

impl Network<'_> {
    /// A network without facts.
    pub const UNKNOWN: Self = Self { asn: None, org: None, proxy: None, hosting: None };
}
