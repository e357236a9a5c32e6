//! What a visitor's own answer looks like to a person: sentences and a map, made of the very JSON that stands beside them.

use std::net::IpAddr;

use serde::Deserialize;

use super::Reflection;
use super::map::{Spot, drawn};

/// The parts of an answer that are shown as a picture.
#[derive(Deserialize)]
pub(crate) struct Sight {
    ip: Option<String>,
    ipv6: Option<String>,
    city: Option<String>,
    region: Option<String>,
    country: Option<String>,
    country_name: Option<String>,
    latitude: Option<f64>,
    longitude: Option<f64>,
    timezone: Option<String>,
    timezone_offset: Option<i32>,
    currency: Option<String>,
    asn: Option<u32>,
    org: Option<String>,
    http_protocol: Option<String>,
    tls_version: Option<String>,
    tls_cipher: Option<String>,
    rtt: Option<u32>,
    colo: Option<String>,
    proxy: Option<bool>,
    hosting: Option<bool>,
    #[serde(skip)]
    accuracy_km: Option<u16>,
}

/// Four facts, each a line and a smaller one under it; and a sentence about the map.
pub(crate) struct Shown {
    pub(crate) address: [String; 2],
    pub(crate) place: [String; 2],
    pub(crate) network: [String; 2],
    pub(crate) connection: [String; 2],
    pub(crate) caption: String,
}

impl Sight {
    /// `None` for what is no answer.
    pub(super) fn of(reflection: &Reflection) -> Option<Self> {
        let sight: Self = serde_json::from_str(&reflection.json).ok()?;
        Some(Self { accuracy_km: reflection.accuracy_km, ..sight })
    }

    pub(super) fn shown(&self) -> Shown {
        Shown {
            address: self.address(),
            place: self.place(),
            network: self.network(),
            connection: self.connection(),
            caption: self.caption(),
        }
    }

    pub(super) fn map(&self) -> String {
        let label = escaped(self.city.as_deref().or(self.country_name.as_deref()).unwrap_or("You"));
        let sentence = match (self.spot(""), self.place_name()) {
            (Some(_), Some(place)) => format!("A map of the world; {} is marked.", escaped(&place)),
            (Some(_), None) => "A map of the world with one place marked.".to_owned(),
            (None, _) => "A map of the world; no place is marked.".to_owned(),
        };
        drawn(self.spot(&label).as_ref(), &sentence)
    }

    fn spot<'a>(&'a self, label: &'a str) -> Option<Spot<'a>> {
        Some(Spot {
            latitude: self.latitude?,
            longitude: self.longitude?,
            accuracy_km: self.accuracy_km,
            country: self.country.as_deref(),
            label,
        })
    }

    fn address(&self) -> [String; 2] {
        let (address, family) = match (&self.ip, &self.ipv6) {
            (Some(address), _) => (address.clone(), "IPv4"),
            (None, Some(address)) => (address.clone(), "IPv6"),
            (None, None) => ("unknown".to_owned(), "no address"),
        };
        let reach = if self.is_private() { "for private networks" } else { "as the network sees you" };
        [address, format!("{family}, {reach}")]
    }

    fn place(&self) -> [String; 2] {
        let clock = self.timezone.as_ref().map(|zone| match self.timezone_offset {
            Some(offset) => format!("{zone}, {}", utc(offset)),
            None => zone.clone(),
        });
        let details = [clock, self.currency.clone()].into_iter().flatten().collect::<Vec<_>>().join(", ");
        [
            self.place_name().unwrap_or_else(|| "Unknown".to_owned()),
            or_else(details, "no place is known of this address"),
        ]
    }

    fn place_name(&self) -> Option<String> {
        let mut parts: Vec<&str> = Vec::new();
        for part in [&self.city, &self.region, &self.country_name].into_iter().flatten() {
            if !parts.contains(&part.as_str()) {
                parts.push(part);
            }
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    fn network(&self) -> [String; 2] {
        let name = match (self.asn, &self.org) {
            (Some(asn), Some(org)) => format!("{org} (AS{asn})"),
            (Some(asn), None) => format!("AS{asn}"),
            (None, Some(org)) => org.clone(),
            (None, None) => "Unknown".to_owned(),
        };
        let kind = match (self.proxy, self.hosting) {
            (Some(true), Some(true)) => "a known VPN or proxy operator, in a hosting network",
            (Some(true), _) => "a known VPN or proxy operator",
            (_, Some(true)) => "a known hosting or cloud operator",
            (Some(false), _) | (_, Some(false)) => "no known VPN, proxy or hosting operator",
            (None, None) => "no operator is known of this address",
        };
        [name, kind.to_owned()]
    }

    fn connection(&self) -> [String; 2] {
        let spoken =
            [&self.http_protocol, &self.tls_version].into_iter().flatten().cloned().collect::<Vec<_>>().join(" over ");
        let far = self.rtt.map(|ms| if ms == 0 { "less than 1 ms away".to_owned() } else { format!("{ms} ms away") });
        let site = self.colo.as_ref().map(|colo| format!("answered in {colo}"));
        let details = [far, self.tls_cipher.clone(), site].into_iter().flatten().collect::<Vec<_>>().join(", ");
        [or_else(spoken, "Unknown"), or_else(details, "the proxy in front tells nothing of it")]
    }

    fn caption(&self) -> String {
        match (self.spot(""), self.accuracy_km) {
            (Some(spot), Some(km)) if spot.is_circle_seen() => {
                format!("The circle is drawn to scale: the database expects you within {km} km of the dot.")
            }
            (Some(_), Some(km)) => {
                format!("The database expects you within {km} km of the dot, which is less than the dot itself covers.")
            }
            (Some(_), None) => {
                "The database does not say how sure it is: take the dot for the town, not for you.".to_owned()
            }
            (None, _) if self.is_private() => {
                "Your address belongs to a private network and so to no place. Seen from the Internet, your town would be marked here."
                    .to_owned()
            }
            (None, _) => "No database in use here knows where this address is, so nothing is marked: we do not guess.".to_owned(),
        }
    }

    /// Whether the address is one that the Internet does not route.
    fn is_private(&self) -> bool {
        let address = self.ip.as_deref().or(self.ipv6.as_deref()).and_then(|text| text.parse().ok());
        match address {
            Some(IpAddr::V4(v4)) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
            Some(IpAddr::V6(v6)) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
            None => false,
        }
    }
}

fn or_else(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

/// Seconds east of UTC as `UTC+1` or `UTC−3:30`.
fn utc(offset_s: i32) -> String {
    let (sign, minutes) = (if offset_s < 0 { '−' } else { '+' }, offset_s.unsigned_abs() / 60);
    match (minutes / 60, minutes % 60) {
        (0, 0) => "UTC".to_owned(),
        (hours, 0) => format!("UTC{sign}{hours}"),
        (hours, minutes) => format!("UTC{sign}{hours}:{minutes:02}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn sight(answer: &serde_json::Value, accuracy_km: Option<u16>) -> Sight {
        Sight::of(&Reflection { json: answer.to_string(), accuracy_km, took: Duration::ZERO }).expect("an answer")
    }

    #[test]
    fn a_visitor_sees_where_the_database_thinks_it_is_and_how_surely() {
        let answer = json!({
            "ip": "90.84.0.20", "city": "Paris", "region": "Île-de-France", "country": "FR", "country_name": "France", "latitude": 48.85,
            "longitude": 2.35, "timezone": "Europe/Paris", "timezone_offset": 3600, "currency": "EUR", "asn": 3215, "org": "Orange",
            "http_protocol": "HTTP/2", "tls_version": "TLSv1.3", "rtt": 12, "proxy": false, "hosting": false,
        });
        let seen = sight(&answer, Some(10));
        let shown = seen.shown();
        assert_eq!(shown.place, ["Paris, Île-de-France, France", "Europe/Paris, UTC+1, EUR"]);
        assert_eq!(shown.network, ["Orange (AS3215)", "no known VPN, proxy or hosting operator"]);
        assert_eq!(shown.connection, ["HTTP/2 over TLSv1.3", "12 ms away"]);
        assert!(shown.caption.contains("within 10 km"), "{}", shown.caption);
        assert!(seen.map().contains("class=\"dot\"") && seen.map().contains("class=\"own\""));
        assert!(sight(&answer, Some(1000)).shown().caption.contains("drawn to scale"));
        assert!(sight(&answer, None).shown().caption.contains("not for you"));
    }

    #[test]
    fn whoever_has_no_place_is_told_why() {
        for (address, word) in [("127.0.0.1", "private"), ("10.1.2.3", "private"), ("203.0.113.250", "do not guess")] {
            let seen = sight(&json!({ "ip": address }), None);
            assert!(seen.shown().caption.contains(word), "{address}");
            assert!(!seen.map().contains("class=\"dot\""));
        }
        assert!(sight(&json!({ "ipv6": "::1" }), None).shown().caption.contains("private"));
    }

    #[test]
    fn names_are_text() {
        let seen = sight(&json!({ "city": "<b>\"&", "latitude": 1.0, "longitude": 2.0 }), None);
        assert!(seen.map().contains("&lt;b>&quot;&amp;") && !seen.map().contains("<b>"));
    }

    #[test]
    fn offsets_are_written_as_people_write_them() {
        assert_eq!([3600, 0, -12_600, 20_700].map(utc), ["UTC+1", "UTC", "UTC−3:30", "UTC+5:45"]);
    }
}
