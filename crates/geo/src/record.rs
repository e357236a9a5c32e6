//! The records of all supported schemas, borrowed from the file, with English names only.
//!
//! One type reads both location schemas, which share no field but `city`: the nested one of MaxMind and DB-IP, and the
//! flat one of ip-location-db. It is twice as fast as the complete type of the nested schema in `maxminddb`.

use std::fmt;
use std::marker::PhantomData;

use ipseity_domain::{GeoFacts, Location, Network};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::enrich;

/// A record of a City, Country or Enterprise database.
#[derive(Deserialize)]
pub(crate) struct LocationRecord<'a> {
    #[serde(borrow, default)]
    city: CityName<'a>,

    #[serde(borrow, default)]
    continent: MmdbContinent<'a>,
    #[serde(borrow)]
    country: Option<MmdbNamed<'a>>,
    #[serde(borrow)]
    registered_country: Option<MmdbNamed<'a>>,
    #[serde(borrow, default)]
    location: MmdbLocation<'a>,
    #[serde(borrow, default)]
    postal: MmdbPostal<'a>,
    #[serde(borrow, default, deserialize_with = "deserialize_first")]
    subdivisions: Option<MmdbNamed<'a>>,
    #[serde(borrow)]
    traits: Option<NetworkRecord<'a>>,

    country_code: Option<&'a str>,
    state1: Option<&'a str>,
    postcode: Option<&'a str>,
    latitude: Option<Degrees>,
    longitude: Option<Degrees>,
    timezone: Option<&'a str>,
}

/// A record of an ASN, ISP or Anonymous-IP database, or the same fields of an Enterprise record.
#[derive(Deserialize)]
pub(crate) struct NetworkRecord<'a> {
    autonomous_system_number: Option<u32>,
    autonomous_system_organization: Option<&'a str>,
    #[serde(default)]
    is_hosting_provider: bool,
    #[serde(default)]
    is_anonymous_vpn: bool,
    #[serde(default)]
    is_public_proxy: bool,
    #[serde(default)]
    is_residential_proxy: bool,
    #[serde(default)]
    is_tor_exit_node: bool,
}

#[derive(Default, Deserialize)]
struct MmdbNamed<'a> {
    iso_code: Option<&'a str>,
    #[serde(borrow, default)]
    names: MmdbNames<'a>,
}

#[derive(Default, Deserialize)]
struct MmdbNames<'a> {
    en: Option<&'a str>,
}

#[derive(Default, Deserialize)]
struct MmdbContinent<'a> {
    code: Option<&'a str>,
}

#[derive(Default, Deserialize)]
struct MmdbLocation<'a> {
    latitude: Option<Degrees>,
    longitude: Option<Degrees>,
    accuracy_radius: Option<u16>,
    time_zone: Option<&'a str>,
}

#[derive(Default, Deserialize)]
struct MmdbPostal<'a> {
    code: Option<&'a str>,
}

impl<'a> LocationRecord<'a> {
    /// The recorded facts, without those that follow from them.
    pub(crate) fn into_facts(self) -> GeoFacts<'a> {
        let country = self.country.or(self.registered_country).unwrap_or_default();
        let subdivision = self.subdivisions.unwrap_or_default();
        let region_code = country.iso_code.zip(subdivision.iso_code);
        let nested_coordinates = valid_coordinates(self.location.latitude, self.location.longitude);
        let (latitude, longitude) =
            nested_coordinates.or_else(|| valid_coordinates(self.latitude, self.longitude)).unzip();
        let location = Location {
            city: non_empty(self.city.0),
            region: non_empty(subdivision.names.en.or(self.state1)),
            region_code: region_code.and_then(|(country, code)| enrich::region_code(country, code)),
            country: non_empty(country.iso_code.or(self.country_code)),
            country_name: non_empty(country.names.en),
            continent: non_empty(self.continent.code),
            latitude,
            longitude,
            accuracy_km: nested_coordinates.and(self.location.accuracy_radius),
            timezone: non_empty(self.location.time_zone.or(self.timezone)),
            timezone_offset: None,
            postal_code: non_empty(self.postal.code.or(self.postcode)),
            is_eu: None,
            currency: None,
        };
        GeoFacts { location, network: self.traits.map(NetworkRecord::into_network).unwrap_or_default() }
    }
}

impl<'a> NetworkRecord<'a> {
    /// The recorded facts, without those that follow from them.
    pub(crate) fn into_facts(self) -> GeoFacts<'a> {
        GeoFacts { network: self.into_network(), ..GeoFacts::default() }
    }

    fn into_network(self) -> Network<'a> {
        let is_proxy =
            self.is_anonymous_vpn || self.is_public_proxy || self.is_residential_proxy || self.is_tor_exit_node;
        Network {
            // 0 is reserved and means "not routed".
            asn: self.autonomous_system_number.filter(|&asn| asn != 0),
            org: non_empty(self.autonomous_system_organization),
            // A missing flag means unknown, because such a database lists only positives.
            proxy: is_proxy.then_some(true),
            hosting: self.is_hosting_provider.then_some(true),
        }
    }
}

/// The coordinates, if both are in range.
fn valid_coordinates(latitude: Option<Degrees>, longitude: Option<Degrees>) -> Option<(f64, f64)> {
    let (latitude, longitude) = (latitude?.0, longitude?.0);
    (latitude.abs() <= 90.0 && longitude.abs() <= 180.0).then_some((latitude, longitude))
}

/// The name of a city: a string, or an entry of a map of names.
#[derive(Default)]
struct CityName<'a>(Option<&'a str>);

impl<'de: 'a, 'a> Deserialize<'de> for CityName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CityNameVisitor;

        impl<'de> Visitor<'de> for CityNameVisitor {
            type Value = CityName<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a map")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(CityName(Some(text)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Ok(CityName(MmdbNamed::deserialize(MapAccessDeserializer::new(map))?.names.en))
            }
        }

        deserializer.deserialize_any(CityNameVisitor)
    }
}

/// A coordinate, stored with 64 or 32 bits.
struct Degrees(f64);

impl<'de> Deserialize<'de> for Degrees {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DegreesVisitor;

        impl Visitor<'_> for DegreesVisitor {
            type Value = Degrees;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }

            fn visit_f64<E>(self, number: f64) -> Result<Degrees, E> {
                Ok(Degrees(number))
            }

            fn visit_f32<E>(self, number: f32) -> Result<Degrees, E> {
                Ok(Degrees(shortest_decimal(number)))
            }
        }

        deserializer.deserialize_any(DegreesVisitor)
    }
}

/// The shortest decimal that rounds to the same 32-bit number: 7.16595, not 7.165949821472168.
fn shortest_decimal(number: f32) -> f64 {
    let exact = f64::from(number);
    // Integer and power of ten are exact, so the division rounds once, as a parser does.
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12]
        .into_iter()
        .map(|power| (exact * power).round() / power)
        .find(|&decimal| decimal as f32 == number)
        .unwrap_or(exact)
}

/// Treats an empty string as unknown.
fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// Reads the first element of a list and skips the rest, without an allocation.
fn deserialize_first<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    struct FirstElementVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for FirstElementVisitor<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let first = list.next_element()?;
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    deserializer.deserialize_seq(FirstElementVisitor(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_coordinate_has_no_spurious_digits() {
        for number in [0.0, -0.5, 7.165_95, -27.4767, 153.017, 38.0, -118.405, 179.999_98, 0.1, -0.000_12] {
            assert_eq!(shortest_decimal(number).to_string(), number.to_string());
        }
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let number = (rng.f32() - 0.5) * 360.0;
            if number.abs() > 0.01 {
                assert_eq!(shortest_decimal(number).to_string(), number.to_string());
            }
        }
    }

    #[test]
    fn out_of_range_coordinates_are_none() {
        let coordinates = |latitude, longitude| valid_coordinates(Some(Degrees(latitude)), Some(Degrees(longitude)));
        assert_eq!(coordinates(90.0, -180.0), Some((90.0, -180.0)));
        for (latitude, longitude) in [(90.1, 0.0), (0.0, 181.0), (f64::NAN, 0.0), (0.0, f64::INFINITY)] {
            assert_eq!(coordinates(latitude, longitude), None);
        }
    }
}
