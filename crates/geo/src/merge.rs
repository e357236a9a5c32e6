//! Merges the records of several databases for one address.
//!
//! Files are merged in order. The first one with a country determines the country, and the first one with an AS number
//! determines the AS number. Of the records in that country, the most detailed one determines the location: a city wins
//! over a region, and a region over a country. On a tie, the earlier record wins. Only records with the same country,
//! region and city fill its gaps. So a Country file may precede a City file, and a response never has the city of one
//! file with the coordinates of another city.

use std::cmp::Ordering;

use ipseity_domain::{GeoFacts, Location, Network};

/// Merges the facts of an earlier and a later database.
pub(crate) fn merge_facts<'a>(first: GeoFacts<'a>, later: GeoFacts<'a>) -> GeoFacts<'a> {
    GeoFacts {
        location: merge_location(first.location, later.location),
        network: merge_network(first.network, later.network),
    }
}

fn merge_location<'a>(first: Location<'a>, later: Location<'a>) -> Location<'a> {
    if first.country != later.country {
        return if first.country.is_some() { first } else { later };
    }
    let location = match detail_level(&later).cmp(&detail_level(&first)) {
        Ordering::Greater => later,
        Ordering::Equal if (first.region, first.city) == (later.region, later.city) => fill_gaps(first, later),
        Ordering::Equal | Ordering::Less => first,
    };
    // The country is the same, so its name and continent can be merged.
    Location {
        country_name: first.country_name.or(later.country_name),
        continent: first.continent.or(later.continent),
        ..location
    }
}

/// The level of detail of a location. Greater is more detailed.
fn detail_level(location: &Location<'_>) -> (bool, bool) {
    (location.city.is_some(), location.region.is_some())
}

/// Fills the gaps of a location from another record of the same location.
fn fill_gaps<'a>(location: Location<'a>, other: Location<'a>) -> Location<'a> {
    // Coordinates and their accuracy come from one record. Mixed, they would be a different point.
    let coordinates = if location.latitude.is_some() { &location } else { &other };
    Location {
        region_code: location.region_code.or(other.region_code),
        latitude: coordinates.latitude,
        longitude: coordinates.longitude,
        accuracy_km: coordinates.accuracy_km,
        timezone: location.timezone.or(other.timezone),
        postal_code: location.postal_code.or(other.postal_code),
        ..location
    }
}

fn merge_network<'a>(first: Network<'a>, later: Network<'a>) -> Network<'a> {
    let (asn, org) = match first.asn {
        None => (later.asn, later.org),
        Some(_) if first.asn == later.asn => (first.asn, first.org.or(later.org)),
        Some(_) => (first.asn, first.org),
    };
    Network { asn, org, proxy: first.proxy.or(later.proxy), hosting: first.hosting.or(later.hosting) }
}
