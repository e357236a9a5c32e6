//! Facts × view → JSON. The one place where a client's address leaves the service: in its owner's answer.
//!
//! What is told of a record is the same for every address of a network, so that it is written once and kept (`told`); what is the client's own
//! is written into each answer.

use std::net::IpAddr;

use domain::{Client, Colo, Connection, Facts, Field, HttpProtocol, Network, Place, Tls, TlsVersion, View};
use serde::Serialize;

/// Room for an answer: few are longer.
const ANSWER_BYTES: usize = 768;

/// What an answer tells of a place and a network, as JSON: one text for each run of such fields in the view.
pub(crate) struct Told(Vec<Vec<u8>>);

impl Told {
    pub(crate) fn write(facts: &Facts<'_>, view: View) -> Self {
        let (mut runs, mut run) = (Vec::new(), Vec::new());
        for field in view.fields() {
            let end = run.len();
            if end > 0 {
                run.push(b',');
            }
            if !write_told(&mut run, field, facts) && end > 0 {
                run.truncate(end);
                runs.push(std::mem::take(&mut run));
            }
        }
        runs.push(run);
        Self(runs)
    }
}

/// Writes an answer: what is known of a client, as much of it as the view shows. What is told must have been written for the same view.
pub(crate) fn answer(client: &Client, told: &Told, view: View) -> Vec<u8> {
    let mut body = Vec::with_capacity(ANSWER_BYTES);
    let (mut runs, mut is_run) = (told.0.iter(), false);
    for field in view.fields() {
        let end = body.len();
        body.push(if body.is_empty() { b'{' } else { b',' });
        if write_own(&mut body, field, client) {
            is_run = false;
        } else if is_run {
            body.truncate(end);
        } else {
            body.extend_from_slice(runs.next().map_or(&[], Vec::as_slice));
            is_run = true;
        }
    }
    body.push(b'}');
    body
}

fn entry(body: &mut Vec<u8>, field: Field, value: &impl Serialize) {
    body.push(b'"');
    body.extend_from_slice(field.name().as_bytes());
    body.extend_from_slice(b"\":");
    // Writing texts and numbers to memory does not fail.
    let _ = serde_json::to_writer(body, value);
}

/// Writes a field if it is about the client itself and its connection.
fn write_own(body: &mut Vec<u8>, field: Field, client: &Client) -> bool {
    // Everything is taken apart without `..`, here and below: a new fact cannot leave before someone gives it a field, and so a scope.
    let Client { address, connection } = client;
    let Connection { http_protocol, tls, rtt_ms, colo } = connection;
    let (v4, v6) = match address.expose() {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    match field {
        Field::Status => entry(body, field, &"success"),
        Field::Ip => entry(body, field, &v4),
        Field::Ipv6 => entry(body, field, &v6),
        Field::HttpProtocol => entry(body, field, &http_protocol.map(HttpProtocol::name)),
        Field::TlsVersion => {
            entry(body, field, &tls.map(|Tls { version, cipher: _ }| TlsVersion::name(version)));
        }
        Field::TlsCipher => entry(body, field, &tls.and_then(|Tls { version: _, cipher }| cipher)),
        Field::Rtt => entry(body, field, rtt_ms),
        Field::Colo => entry(body, field, &colo.as_ref().map(Colo::as_str)),
        Field::City
        | Field::Region
        | Field::RegionCode
        | Field::Country
        | Field::CountryName
        | Field::Continent
        | Field::Latitude
        | Field::Longitude
        | Field::Timezone
        | Field::TimezoneOffset
        | Field::PostalCode
        | Field::Asn
        | Field::Org
        | Field::As
        | Field::IsEu
        | Field::Currency
        | Field::Proxy
        | Field::Hosting => return false,
    }
    true
}

/// Writes a field if it is told of the record.
fn write_told(body: &mut Vec<u8>, field: Field, facts: &Facts<'_>) -> bool {
    let Facts { place, network } = facts;
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
    match field {
        Field::City => entry(body, field, city),
        Field::Region => entry(body, field, region),
        Field::RegionCode => entry(body, field, region_code),
        Field::Country => entry(body, field, country),
        Field::CountryName => entry(body, field, country_name),
        Field::Continent => entry(body, field, continent),
        Field::Latitude => entry(body, field, latitude),
        Field::Longitude => entry(body, field, longitude),
        Field::Timezone => entry(body, field, timezone),
        Field::TimezoneOffset => entry(body, field, timezone_offset),
        Field::PostalCode => entry(body, field, postal_code),
        Field::Asn => entry(body, field, asn),
        Field::Org => entry(body, field, org),
        Field::As => entry(body, field, &asn.zip(*org).map(|(asn, org)| format!("AS{asn} {org}"))),
        Field::IsEu => entry(body, field, is_eu),
        Field::Currency => entry(body, field, currency),
        Field::Proxy => entry(body, field, proxy),
        Field::Hosting => entry(body, field, hosting),
        Field::Status
        | Field::Ip
        | Field::Ipv6
        | Field::HttpProtocol
        | Field::TlsVersion
        | Field::TlsCipher
        | Field::Rtt
        | Field::Colo => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use domain::{Address, Scope};
    use serde_json::{Value, json};

    use super::*;

    fn answer(address: &str, facts: &Facts<'_>, view: View) -> Value {
        let address = Address::new(address.parse().expect("an address"));
        let client = Client { address, connection: Connection::default() };
        serde_json::from_slice(&super::answer(&client, &Told::write(facts, view), view)).expect("JSON")
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
