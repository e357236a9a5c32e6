//! What several databases say of one address, as one.
//!
//! Files are merged in the order given; the first that knows the country decides it, and the first that knows the AS number
//! decides that. Fields of two places are never mixed: of the records that name the decided country, the most detailed gives
//! the place (a city before a region before a bare country; on a tie the earlier), and only records of the very same
//! country, region and city fill its gaps. So a Country file may stand before a City file, and two City files never make a
//! city of the one with the coordinates of the other.

use std::cmp::Ordering;

use domain::{Facts, Network, Place};

/// What an earlier and a later database say together.
pub(crate) fn merged<'a>(first: Facts<'a>, later: Facts<'a>) -> Facts<'a> {
    Facts { place: merged_place(first.place, later.place), network: merged_network(first.network, later.network) }
}

fn merged_place<'a>(first: Place<'a>, later: Place<'a>) -> Place<'a> {
    if first.country != later.country {
        return if first.country.is_some() { first } else { later };
    }
    let place = match detail(&later).cmp(&detail(&first)) {
        Ordering::Greater => later,
        Ordering::Equal if (first.region, first.city) == (later.region, later.city) => filled(first, later),
        Ordering::Equal | Ordering::Less => first,
    };
    // The country is the same, and so what is said of it.
    Place {
        country_name: first.country_name.or(later.country_name),
        continent: first.continent.or(later.continent),
        ..place
    }
}

/// How closely a place is told; greater is closer.
fn detail(place: &Place<'_>) -> (bool, bool) {
    (place.city.is_some(), place.region.is_some())
}

/// A place with its gaps filled from another record of the same place.
fn filled<'a>(place: Place<'a>, other: Place<'a>) -> Place<'a> {
    // Coordinates and their accuracy belong together: one number of each would be a third place.
    let point = if place.latitude.is_some() { &place } else { &other };
    Place {
        region_code: place.region_code.or(other.region_code),
        latitude: point.latitude,
        longitude: point.longitude,
        accuracy_km: point.accuracy_km,
        timezone: place.timezone.or(other.timezone),
        postal_code: place.postal_code.or(other.postal_code),
        ..place
    }
}

fn merged_network<'a>(first: Network<'a>, later: Network<'a>) -> Network<'a> {
    let (asn, org) = match first.asn {
        None => (later.asn, later.org),
        Some(_) if first.asn == later.asn => (first.asn, first.org.or(later.org)),
        Some(_) => (first.asn, first.org),
    };
    Network { asn, org, proxy: first.proxy.or(later.proxy), hosting: first.hosting.or(later.hosting) }
}
