//! What several databases say of one address, as one.
//!
//! Files are merged in the order given; the first that knows the country decides it, and the first that knows the AS number
//! decides that. Fields of two places are never mixed: of the records that name the decided country, the most detailed gives
//! the place (a city before a region before a bare country; on a tie the earlier), and only records of the very same
//! country, region and city fill its gaps. So a Country file may stand before a City file, and two City files never make a
//! city of the one with the coordinates of the other.

use std::cmp::Ordering;

use ipseity_domain::{GeoFacts, Location, Network};

/// What an earlier and a later database say together.
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
    // The country is the same, and so what is said of it.
    Location {
        country_name: first.country_name.or(later.country_name),
        continent: first.continent.or(later.continent),
        ..location
    }
}

/// How closely a place is told; greater is closer.
fn detail_level(location: &Location<'_>) -> (bool, bool) {
    (location.city.is_some(), location.region.is_some())
}

/// A place with its gaps filled from another record of the same place.
fn fill_gaps<'a>(location: Location<'a>, other: Location<'a>) -> Location<'a> {
    // Coordinates and their accuracy belong together: one number of each would be a third place.
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
