//! Addresses that the small geo database knows, and what the service should say of each.
//!
//! `timezone_offset` stands here only where the zone has no summer time.

use domain::{Facts, Network, Place};

/// One network of the small database.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The network.
    pub network: &'static str,
    /// An address in it.
    pub address: &'static str,
    /// What is known of it.
    pub facts: Facts<'static>,
}

/// A place of which nothing is known.
const NOWHERE: Place<'static> = Place {
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

const NOBODY: Network<'static> = Network { asn: None, org: None, proxy: None, hosting: None };

const fn access(asn: u32, org: &'static str) -> Network<'static> {
    Network { asn: Some(asn), org: Some(org), proxy: Some(false), hosting: Some(false) }
}

const fn country(
    code: &'static str,
    name: &'static str,
    continent: &'static str,
    currency: &'static str,
) -> Place<'static> {
    Place {
        country: Some(code),
        country_name: Some(name),
        continent: Some(continent),
        currency: Some(currency),
        is_eu: Some(false),
        ..NOWHERE
    }
}

/// An address of which nothing is known.
pub const UNKNOWN: &str = "203.0.113.250";

/// Everything known, in the United States.
pub const CALIFORNIA: Sample = Sample {
    network: "73.162.0.0/24",
    address: "73.162.0.7",
    facts: Facts {
        place: Place {
            city: Some("Mountain View"),
            region: Some("California"),
            region_code: Some("US-CA"),
            latitude: Some(37.4056),
            longitude: Some(-122.0775),
            accuracy_km: Some(20),
            timezone: Some("America/Los_Angeles"),
            postal_code: Some("94043"),
            ..country("US", "United States", "NA", "USD")
        },
        network: access(7922, "Comcast Cable Communications, LLC"),
    },
};

/// A country and no city; a zone without summer time.
pub const JAPAN: Sample = Sample {
    network: "203.0.113.64/26",
    address: "203.0.113.70",
    facts: Facts {
        place: Place {
            latitude: Some(35.69),
            longitude: Some(139.69),
            accuracy_km: Some(500),
            timezone: Some("Asia/Tokyo"),
            timezone_offset: Some(32_400),
            ..country("JP", "Japan", "AS", "JPY")
        },
        network: access(2516, "KDDI CORPORATION"),
    },
};

/// In the European Union, with its euro and letters beyond ASCII.
pub const PARIS: Sample = Sample {
    network: "90.84.0.0/24",
    address: "90.84.0.20",
    facts: Facts {
        place: Place {
            city: Some("Paris"),
            region: Some("Île-de-France"),
            region_code: Some("FR-IDF"),
            latitude: Some(48.8534),
            longitude: Some(2.3488),
            accuracy_km: Some(10),
            timezone: Some("Europe/Paris"),
            postal_code: Some("75001"),
            is_eu: Some(true),
            ..country("FR", "France", "EU", "EUR")
        },
        network: access(3215, "Orange"),
    },
};

/// IPv6, in Europe and outside the European Union.
pub const ZURICH: Sample = Sample {
    network: "2001:db8:5eed::/48",
    address: "2001:db8:5eed::53",
    facts: Facts {
        place: Place {
            city: Some("Zürich"),
            region: Some("Zurich"),
            region_code: Some("CH-ZH"),
            latitude: Some(47.3682),
            longitude: Some(8.5671),
            timezone: Some("Europe/Zurich"),
            postal_code: Some("8001"),
            ..country("CH", "Switzerland", "EU", "CHF")
        },
        network: access(559, "SWITCH"),
    },
};

/// IPv6, in the European Union.
pub const BERLIN: Sample = Sample {
    network: "2001:db8:e0::/48",
    address: "2001:db8:e0:1::9",
    facts: Facts {
        place: Place {
            city: Some("Berlin"),
            region: Some("Land Berlin"),
            region_code: Some("DE-BE"),
            latitude: Some(52.5244),
            longitude: Some(13.4105),
            timezone: Some("Europe/Berlin"),
            postal_code: Some("10115"),
            is_eu: Some(true),
            ..country("DE", "Germany", "EU", "EUR")
        },
        network: access(3320, "Deutsche Telekom AG"),
    },
};

/// A known hosting operator.
pub const HOSTING: Sample = Sample {
    network: "192.0.2.0/25",
    address: "192.0.2.10",
    facts: Facts {
        place: Place {
            city: Some("Ashburn"),
            region: Some("Virginia"),
            region_code: Some("US-VA"),
            latitude: Some(39.0469),
            longitude: Some(-77.4903),
            timezone: Some("America/New_York"),
            postal_code: Some("20149"),
            ..country("US", "United States", "NA", "USD")
        },
        network: Network { hosting: Some(true), ..access(16509, "Amazon.com, Inc.") },
    },
};

/// A known VPN operator.
pub const VPN: Sample = Sample {
    network: "192.0.2.128/25",
    address: "192.0.2.200",
    facts: Facts {
        place: Place {
            city: Some("Bucharest"),
            region: Some("București"),
            region_code: Some("RO-B"),
            latitude: Some(44.4323),
            longitude: Some(26.1063),
            timezone: Some("Europe/Bucharest"),
            is_eu: Some(true),
            ..country("RO", "Romania", "EU", "RON")
        },
        network: Network { proxy: Some(true), hosting: Some(true), ..access(9009, "M247 Europe SRL") },
    },
};

/// A network with a number and no name; its number is one for documentation.
pub const NAMELESS: Sample = Sample {
    network: "198.51.100.128/25",
    address: "198.51.100.130",
    facts: Facts {
        place: Place {
            city: Some("São Paulo"),
            region: Some("São Paulo"),
            region_code: Some("BR-SP"),
            latitude: Some(-23.5475),
            longitude: Some(-46.6361),
            timezone: Some("America/Sao_Paulo"),
            timezone_offset: Some(-10_800),
            ..country("BR", "Brazil", "SA", "BRL")
        },
        network: Network { asn: Some(64_500), proxy: Some(false), hosting: Some(false), ..NOBODY },
    },
};

/// Latitude, longitude and offset from UTC are all zero, which is not the same as unknown.
pub const ZERO: Sample = Sample {
    network: "198.18.0.0/24",
    address: "198.18.0.1",
    facts: Facts {
        place: Place {
            latitude: Some(0.0),
            longitude: Some(0.0),
            timezone: Some("Africa/Accra"),
            timezone_offset: Some(0),
            ..country("GH", "Ghana", "AF", "GHS")
        },
        network: access(29_614, "VODAFONE GHANA AS INTERNATIONAL TRANSIT"),
    },
};

/// A network and no place.
pub const PLACELESS: Sample = Sample {
    network: "198.18.1.0/24",
    address: "198.18.1.1",
    facts: Facts { place: NOWHERE, network: access(64_501, "Example Network") },
};

/// A place and no network.
pub const NETWORKLESS: Sample = Sample {
    network: "198.18.2.0/24",
    address: "198.18.2.1",
    facts: Facts {
        place: Place {
            city: Some("Sydney"),
            region: Some("New South Wales"),
            region_code: Some("AU-NSW"),
            latitude: Some(-33.8678),
            longitude: Some(151.2073),
            timezone: Some("Australia/Sydney"),
            postal_code: Some("2000"),
            ..country("AU", "Australia", "OC", "AUD")
        },
        network: NOBODY,
    },
};

/// All of them.
pub const ALL: [Sample; 11] =
    [CALIFORNIA, JAPAN, PARIS, ZURICH, BERLIN, HOSTING, VPN, NAMELESS, ZERO, PLACELESS, NETWORKLESS];
