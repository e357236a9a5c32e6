//! What is known about an address. Strings are borrowed from the database edition that was asked.

/// Everything that an answer can draw on, before the scope narrows it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GeoFacts<'a> {
    /// Where the address is.
    pub location: Location<'a>,
    /// Whose network it belongs to.
    pub network: Network<'a>,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Location<'a> {
    /// City name in English.
    pub city: Option<&'a str>,
    /// Region or state name in English.
    pub region: Option<&'a str>,
    /// Whole ISO 3166-2 code, such as `US-CA`.
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
    /// Kilometres around the point within which the database expects most of its clients.
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

/// Whose network an address belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network<'a> {
    /// Autonomous system number.
    pub asn: Option<u32>,
    /// Name of the organisation behind it.
    pub org: Option<&'a str>,
    /// Known VPN or proxy operator; `None` when the number is unknown.
    pub proxy: Option<bool>,
    /// Known hosting or cloud operator; `None` when the number is unknown.
    pub hosting: Option<bool>,
}
