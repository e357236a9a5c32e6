//! Writes the JSON body of a lookup. This is the only place where a client's address leaves the service, in
//! the response to that client.
//!
//! The facts about a geo record are the same for every address of a network, so they are rendered once and
//! cached. The facts about the client are written for each request.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipseity_domain::{
    Address, Client, Colo, ConnectionFacts, Field, FieldSet, GeoFacts, HttpProtocol, Location, Network, TlsInfo,
    TlsVersion,
};
use serde::Serialize;

/// Initial capacity of a body. Few bodies are longer.
const BODY_CAPACITY: usize = 768;

/// The facts about a geo record as JSON: one segment for each run of consecutive geo fields in the field set.
pub(super) struct RenderedFacts(Vec<Vec<u8>>);

impl RenderedFacts {
    pub(super) fn render(facts: &GeoFacts<'_>, field_set: FieldSet) -> Self {
        let (mut segments, mut segment) = (Vec::new(), Vec::new());
        for field in field_set.fields() {
            let end = segment.len();
            if end > 0 {
                segment.push(b',');
            }
            if !write_geo_field(&mut segment, field, facts) && end > 0 {
                segment.truncate(end);
                segments.push(std::mem::take(&mut segment));
            }
        }
        segments.push(segment);
        Self(segments)
    }
}

/// The client's address of each family.
#[derive(Default)]
struct Addresses {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

impl Addresses {
    fn new(own: Address, paired: Option<Address>) -> Self {
        let mut addresses = Self::default();
        // The address of the connection comes last: a token never replaces it.
        for address in paired.into_iter().chain([own]) {
            match address.expose() {
                Some(IpAddr::V4(v4)) => addresses.v4 = Some(v4),
                Some(IpAddr::V6(v6)) => addresses.v6 = Some(v6),
                None => {}
            }
        }
        addresses
    }
}

/// Writes the body. `rendered_facts` must have been rendered for the same field set. `paired_address` is the client's address
/// of the other family, if it is known.
pub(super) fn render_body(
    client: &Client,
    paired_address: Option<Address>,
    rendered_facts: &RenderedFacts,
    field_set: FieldSet,
) -> Vec<u8> {
    // Destructured without `..`, here and below: a new fact does not compile until it has a field, and so a scope.
    let Client { address, connection } = client;
    let addresses = Addresses::new(*address, paired_address);
    let mut body = Vec::with_capacity(BODY_CAPACITY);
    let (mut segments, mut in_segment) = (rendered_facts.0.iter(), false);
    for field in field_set.fields() {
        let end = body.len();
        body.push(if body.is_empty() { b'{' } else { b',' });
        if write_client_field(&mut body, field, &addresses, connection) {
            in_segment = false;
        } else if in_segment {
            body.truncate(end);
        } else {
            body.extend_from_slice(segments.next().map_or(&[], Vec::as_slice));
            in_segment = true;
        }
    }
    body.extend_from_slice(b"}\n");
    body
}

fn write_field(body: &mut Vec<u8>, field: Field, value: &impl Serialize) {
    body.push(b'"');
    body.extend_from_slice(field.name().as_bytes());
    body.extend_from_slice(b"\":");
    // Writing strings and numbers to memory cannot fail.
    let _ = serde_json::to_writer(body, value);
}

/// Writes a field about the client or its connection; returns `false` for a geo field.
fn write_client_field(body: &mut Vec<u8>, field: Field, addresses: &Addresses, connection: &ConnectionFacts) -> bool {
    // Whether the connection is encrypted decides if a key is accepted; the API has no field for it.
    let ConnectionFacts { http_protocol, is_encrypted: _, tls, rtt_ms, colo } = connection;
    match field {
        Field::Status => write_field(body, field, &"success"),
        Field::Ip => write_field(body, field, &addresses.v4),
        Field::Ipv6 => write_field(body, field, &addresses.v6),
        Field::HttpProtocol => write_field(body, field, &http_protocol.map(HttpProtocol::name)),
        Field::TlsVersion => {
            write_field(body, field, &tls.map(|TlsInfo { version, cipher: _ }| TlsVersion::name(version)));
        }
        Field::TlsCipher => write_field(body, field, &tls.and_then(|TlsInfo { version: _, cipher }| cipher)),
        Field::Rtt => write_field(body, field, rtt_ms),
        Field::Colo => write_field(body, field, &colo.as_ref().map(Colo::as_str)),
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

/// Writes a field of the geo record; returns `false` for a field about the client.
fn write_geo_field(body: &mut Vec<u8>, field: Field, facts: &GeoFacts<'_>) -> bool {
    let GeoFacts { location, network } = facts;
    let Location {
        city,
        region,
        region_code,
        country,
        country_name,
        continent,
        latitude,
        longitude,
        // Only the landing page shows it; the API has no field for it.
        accuracy_km: _,
        timezone,
        timezone_offset,
        postal_code,
        is_eu,
        currency,
    } = location;
    let Network { asn, org, proxy, hosting } = network;
    match field {
        Field::City => write_field(body, field, city),
        Field::Region => write_field(body, field, region),
        Field::RegionCode => write_field(body, field, region_code),
        Field::Country => write_field(body, field, country),
        Field::CountryName => write_field(body, field, country_name),
        Field::Continent => write_field(body, field, continent),
        Field::Latitude => write_field(body, field, latitude),
        Field::Longitude => write_field(body, field, longitude),
        Field::Timezone => write_field(body, field, timezone),
        Field::TimezoneOffset => write_field(body, field, timezone_offset),
        Field::PostalCode => write_field(body, field, postal_code),
        Field::Asn => write_field(body, field, asn),
        Field::Org => write_field(body, field, org),
        Field::As => write_field(body, field, &asn.zip(*org).map(|(asn, org)| format!("AS{asn} {org}"))),
        Field::IsEu => write_field(body, field, is_eu),
        Field::Currency => write_field(body, field, currency),
        Field::Proxy => write_field(body, field, proxy),
        Field::Hosting => write_field(body, field, hosting),
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
    use ipseity_domain::Scope;
    use serde_json::{Value, json};

    use super::*;

    fn rendered_json(address: &str, facts: &GeoFacts<'_>, field_set: FieldSet) -> Value {
        let address = Address::new(address.parse().expect("valid address"));
        let client = Client { address, connection: ConnectionFacts::default() };
        serde_json::from_slice(&render_body(&client, None, &RenderedFacts::render(facts, field_set), field_set))
            .expect("valid JSON")
    }

    #[test]
    fn unknown_fields_are_null_and_out_of_scope_ones_absent() {
        let geo = rendered_json("198.51.100.1", &GeoFacts::default(), FieldSet::Scope(Scope::Geo));
        let geo = geo.as_object().expect("JSON object");
        assert_eq!(geo.len(), FieldSet::Scope(Scope::Geo).fields().count());
        assert_eq!(geo["city"], Value::Null);
        assert!(!geo.contains_key("rtt"));
    }

    #[test]
    fn latitude_zero_is_rendered_as_a_number() {
        let location = Location { latitude: Some(0.0), longitude: Some(0.0), ..Location::default() };
        let facts = GeoFacts { location, ..GeoFacts::default() };
        assert_eq!(rendered_json("198.51.100.1", &facts, FieldSet::Demo)["latitude"], json!(0.0));
    }

    #[test]
    fn as_field_requires_both_asn_and_org() {
        for (asn, org, expected) in
            [(Some(64500), Some("Example"), json!("AS64500 Example")), (Some(64500), None, Value::Null)]
        {
            let facts = GeoFacts { network: Network { asn, org, ..Network::default() }, ..GeoFacts::default() };
            assert_eq!(rendered_json("198.51.100.1", &facts, FieldSet::Demo)["as"], expected);
        }
    }

    #[test]
    fn unknown_client_gets_null_in_both_address_fields() {
        let client = Client { address: Address::UNKNOWN, connection: ConnectionFacts::default() };
        let field_set = FieldSet::Scope(Scope::Ip);
        let body = render_body(&client, None, &RenderedFacts::render(&GeoFacts::default(), field_set), field_set);
        assert_eq!(body, b"{\"status\":\"success\",\"ip\":null,\"ipv6\":null}\n");
    }

    #[test]
    fn paired_address_fills_the_other_field_and_replaces_nothing() {
        let address = |text: &str| Address::new(text.parse().expect("valid address"));
        let field_set = FieldSet::Scope(Scope::Ip);
        let facts = RenderedFacts::render(&GeoFacts::default(), field_set);
        for (own, paired, expected) in [
            ("198.51.100.1", "2001:db8::1", ["198.51.100.1", "2001:db8::1"]),
            ("2001:db8::1", "198.51.100.1", ["198.51.100.1", "2001:db8::1"]),
            ("198.51.100.1", "198.51.100.2", ["198.51.100.1", "null"]),
        ] {
            let client = Client { address: address(own), connection: ConnectionFacts::default() };
            let body = render_body(&client, Some(address(paired)), &facts, field_set);
            let body: Value = serde_json::from_slice(&body).expect("valid JSON");
            assert_eq!(["ip", "ipv6"].map(|name| body[name].as_str().unwrap_or("null")), expected);
        }
    }

    #[test]
    fn ipv6_client_gets_null_in_the_ip_field() {
        let ip = rendered_json("2001:db8::1", &GeoFacts::default(), FieldSet::Scope(Scope::Ip));
        assert_eq!(ip, json!({ "status": "success", "ip": null, "ipv6": "2001:db8::1" }));
    }
}
