//! Facts × view → JSON. The one place where a client's address leaves the service: in its owner's answer.

use std::net::IpAddr;

use domain::{Client, Colo, Connection, Facts, Field, HttpProtocol, Network, Place, Tls, TlsVersion, View};
use serde::ser::{Serialize, SerializeMap, Serializer};

/// An answer: what is known of a client, as much of it as the view shows.
pub(crate) struct Answer<'a> {
    pub(crate) client: &'a Client,
    pub(crate) facts: &'a Facts<'a>,
    pub(crate) view: View,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Everything is taken apart without `..`: a new fact cannot leave before someone gives it a field, and so a scope.
        let Client { address, connection } = self.client;
        let Connection { http_protocol, tls, rtt_ms, colo } = connection;
        let Facts { place, network } = self.facts;
        let Place {
            city,
            region,
            region_code,
            country,
            country_name,
            continent,
            latitude,
            longitude,
            // Told on the page that shows visitors themselves; the contract has no field for it.
            accuracy_km: _,
            timezone,
            timezone_offset,
            postal_code,
            is_eu,
            currency,
        } = place;
        let Network { asn, org, proxy, hosting } = network;
        let (v4, v6) = match address.expose() {
            IpAddr::V4(v4) => (Some(v4), None),
            IpAddr::V6(v6) => (None, Some(v6)),
        };
        let mut map = serializer.serialize_map(None)?;
        for field in self.view.fields() {
            let name = field.name();
            match field {
                Field::Status => map.serialize_entry(name, "success"),
                Field::Ip => map.serialize_entry(name, &v4),
                Field::Ipv6 => map.serialize_entry(name, &v6),
                Field::City => map.serialize_entry(name, city),
                Field::Region => map.serialize_entry(name, region),
                Field::RegionCode => map.serialize_entry(name, region_code),
                Field::Country => map.serialize_entry(name, country),
                Field::CountryName => map.serialize_entry(name, country_name),
                Field::Continent => map.serialize_entry(name, continent),
                Field::Latitude => map.serialize_entry(name, latitude),
                Field::Longitude => map.serialize_entry(name, longitude),
                Field::Timezone => map.serialize_entry(name, timezone),
                Field::TimezoneOffset => map.serialize_entry(name, timezone_offset),
                Field::PostalCode => map.serialize_entry(name, postal_code),
                Field::Asn => map.serialize_entry(name, asn),
                Field::Org => map.serialize_entry(name, org),
                Field::As => map.serialize_entry(name, &asn.zip(*org).map(|(asn, org)| format!("AS{asn} {org}"))),
                Field::IsEu => map.serialize_entry(name, is_eu),
                Field::Currency => map.serialize_entry(name, currency),
                Field::HttpProtocol => map.serialize_entry(name, &http_protocol.map(HttpProtocol::name)),
                Field::TlsVersion => {
                    map.serialize_entry(name, &tls.map(|Tls { version, cipher: _ }| TlsVersion::name(version)))
                }
                Field::TlsCipher => map.serialize_entry(name, &tls.and_then(|Tls { version: _, cipher }| cipher)),
                Field::Rtt => map.serialize_entry(name, rtt_ms),
                Field::Colo => map.serialize_entry(name, &colo.as_ref().map(Colo::as_str)),
                Field::Proxy => map.serialize_entry(name, proxy),
                Field::Hosting => map.serialize_entry(name, hosting),
            }?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use domain::{Address, Scope};
    use serde_json::{Value, json};

    use super::*;

    fn answer(address: &str, facts: &Facts<'_>, view: View) -> Value {
        let address = Address::new(address.parse().expect("an address"));
        let client = Client { address, connection: Connection::default() };
        serde_json::to_value(Answer { client: &client, facts, view }).expect("JSON")
    }

    #[test]
    fn unknown_fields_are_null_and_wider_ones_absent() {
        let geo = answer("198.51.100.1", &Facts::default(), View::Scope(Scope::Geo));
        let geo = geo.as_object().expect("an object");
        assert_eq!(geo.len(), 19);
        assert_eq!(geo["city"], Value::Null);
        assert!(!geo.contains_key("rtt"));
    }

    #[test]
    fn latitude_zero_is_a_number() {
        let place = Place { latitude: Some(0.0), longitude: Some(0.0), ..Place::default() };
        let facts = Facts { place, ..Facts::default() };
        assert_eq!(answer("198.51.100.1", &facts, View::Demo)["latitude"], json!(0.0));
    }

    #[test]
    fn as_needs_both_number_and_name() {
        for (asn, org, text) in
            [(Some(64500), Some("Example"), json!("AS64500 Example")), (Some(64500), None, Value::Null)]
        {
            let facts = Facts { network: Network { asn, org, ..Network::default() }, ..Facts::default() };
            assert_eq!(answer("198.51.100.1", &facts, View::Demo)["as"], text);
        }
    }

    #[test]
    fn an_ipv6_client_has_no_ip() {
        let ip = answer("2001:db8::1", &Facts::default(), View::Scope(Scope::Ip));
        assert_eq!(ip, json!({ "status": "success", "ip": null, "ipv6": "2001:db8::1" }));
    }
}
