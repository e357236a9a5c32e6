//! The visitor's lookup for people: short texts and a map, derived from the JSON on the same page.

use ipseity_domain::Address;
use serde::Deserialize;

use crate::host::VisitorLookup;
use crate::html::escape_html;
use crate::landing::map::{MapMarker, draw_map};
use crate::view::filters::with_commas;

/// The fields of a response that the landing page shows as text or on the map.
#[derive(Deserialize)]
pub(crate) struct SelfView {
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

/// Four facts, each with a second line of details, and the caption of the map.
pub(crate) struct SelfViewSummary {
    pub(crate) address: [String; 2],
    pub(crate) location: [String; 2],
    pub(crate) network: [String; 2],
    pub(crate) connection: [String; 2],
    pub(crate) map_caption: String,
}

impl SelfView {
    /// Parses a lookup; `None` if it is not a lookup response.
    pub(super) fn from_lookup(lookup: &VisitorLookup) -> Option<Self> {
        let view: Self = serde_json::from_str(&lookup.json).ok()?;
        Some(Self { accuracy_km: lookup.accuracy_km, ..view })
    }

    pub(super) fn summary(&self) -> SelfViewSummary {
        SelfViewSummary {
            address: self.address(),
            location: self.location(),
            network: self.network(),
            connection: self.connection(),
            map_caption: self.map_caption(),
        }
    }

    pub(super) fn map_svg(&self) -> String {
        let label = escape_html(self.city.as_deref().or(self.country_name.as_deref()).unwrap_or("You"));
        let aria_label = match (self.marker(""), self.location_name()) {
            (Some(_), Some(location)) => format!("Map with {} marked.", escape_html(&location)),
            (Some(_), None) => "Map with one location marked.".to_owned(),
            (None, _) => "World map without a marker.".to_owned(),
        };
        draw_map(self.marker(&label).as_ref(), &aria_label)
    }

    fn marker<'a>(&'a self, label: &'a str) -> Option<MapMarker<'a>> {
        Some(MapMarker {
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
            (None, None) => return ["Unknown", "The proxy in front of this site did not report it"].map(str::to_owned),
        };
        let visibility = if self.is_private() { "private address" } else { "as the network sees you" };
        [address, format!("{family}, {visibility}")]
    }

    fn location(&self) -> [String; 2] {
        let timezone = self.timezone.as_ref().map(|zone| match self.timezone_offset {
            Some(offset) => format!("{zone}, {}", format_utc_offset(offset)),
            None => zone.clone(),
        });
        let details = [timezone, self.currency.clone()].into_iter().flatten().collect::<Vec<_>>().join(", ");
        [
            self.location_name().unwrap_or_else(|| "Unknown".to_owned()),
            non_empty_or(details, "No data for this address"),
        ]
    }

    fn location_name(&self) -> Option<String> {
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
        let operator_kind = match (self.proxy, self.hosting) {
            (Some(true), Some(true)) => "Known VPN or proxy, in a hosting network",
            (Some(true), _) => "Known VPN or proxy",
            (_, Some(true)) => "Known hosting or cloud provider",
            (Some(false), _) | (_, Some(false)) => "Not a known VPN, proxy or host",
            (None, None) => "No data for this address",
        };
        [name, operator_kind.to_owned()]
    }

    fn connection(&self) -> [String; 2] {
        let protocols =
            [&self.http_protocol, &self.tls_version].into_iter().flatten().cloned().collect::<Vec<_>>().join(" over ");
        let round_trip = self.rtt.map(|ms| if ms == 0 { "RTT under 1 ms".to_owned() } else { format!("RTT {ms} ms") });
        let served_from = self.colo.as_ref().map(|colo| format!("served from {colo}"));
        let details =
            [round_trip, self.tls_cipher.clone(), served_from].into_iter().flatten().collect::<Vec<_>>().join(", ");
        [non_empty_or(protocols, "Unknown"), non_empty_or(details, "Connection details unavailable behind a proxy")]
    }

    fn map_caption(&self) -> String {
        match (self.marker(""), self.accuracy_km) {
            (Some(marker), Some(km)) if marker.is_circle_visible() => {
                format!("Accuracy radius: about {} km", with_commas(&km.to_string()))
            }
            (Some(_), Some(km)) => format!("Accurate to about {km} km"),
            (Some(_), None) => "No accuracy data; the location is approximate".to_owned(),
            (None, _) if self.is_private() => "Private address: no location to show".to_owned(),
            (None, _) if self.ip.is_none() && self.ipv6.is_none() => "Location unknown, like your address".to_owned(),
            (None, _) => "Location unknown: no database lists this address".to_owned(),
        }
    }

    /// Whether the address is private, loopback or link-local.
    fn is_private(&self) -> bool {
        let address = self.ip.as_deref().or(self.ipv6.as_deref()).and_then(|text| text.parse().ok());
        address.is_some_and(|address| Address::new(address).is_private())
    }
}

fn non_empty_or(text: String, fallback: &str) -> String {
    if text.is_empty() { fallback.to_owned() } else { text }
}

/// Formats seconds east of UTC as `UTC+1` or `UTC−3:30`.
fn format_utc_offset(offset_s: i32) -> String {
    let (sign, minutes) = (if offset_s < 0 { '−' } else { '+' }, offset_s.unsigned_abs() / 60);
    match (minutes / 60, minutes % 60) {
        (0, 0) => "UTC".to_owned(),
        (hours, 0) => format!("UTC{sign}{hours}"),
        (hours, minutes) => format!("UTC{sign}{hours}:{minutes:02}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn self_view(response: &serde_json::Value, accuracy_km: Option<u16>) -> SelfView {
        SelfView::from_lookup(&VisitorLookup { json: response.to_string(), accuracy_km, elapsed: Duration::ZERO })
            .expect("JSON is a lookup response")
    }

    #[test]
    fn visitor_sees_location_network_and_accuracy() {
        let response = json!({
            "ip": "90.84.0.20", "city": "Paris", "region": "Île-de-France", "country": "FR", "country_name": "France", "latitude": 48.85,
            "longitude": 2.35, "timezone": "Europe/Paris", "timezone_offset": 3600, "currency": "EUR", "asn": 3215, "org": "Orange",
            "http_protocol": "HTTP/2", "tls_version": "TLSv1.3", "rtt": 12, "proxy": false, "hosting": false,
        });
        let view = self_view(&response, Some(10));
        let summary = view.summary();
        assert_eq!(summary.location, ["Paris, Île-de-France, France", "Europe/Paris, UTC+1, EUR"]);
        assert_eq!(summary.network, ["Orange (AS3215)", "Not a known VPN, proxy or host"]);
        assert_eq!(summary.connection, ["HTTP/2 over TLSv1.3", "RTT 12 ms"]);
        assert!(summary.map_caption.contains("Accurate to about 10 km"), "{}", summary.map_caption);
        assert!(view.map_svg().contains("class=\"dot\"") && view.map_svg().contains("class=\"visitor-country\""));
        assert!(self_view(&response, Some(1000)).summary().map_caption.contains("Accuracy radius: about 1,000 km"));
        assert!(self_view(&response, None).summary().map_caption.contains("No accuracy data"));
    }

    #[test]
    fn missing_location_is_explained() {
        for (address, word) in
            [("127.0.0.1", "Private"), ("10.1.2.3", "Private"), ("203.0.113.250", "Location unknown")]
        {
            let view = self_view(&json!({ "ip": address }), None);
            assert!(view.summary().map_caption.contains(word), "{address}");
            assert!(!view.map_svg().contains("class=\"dot\""));
        }
        assert!(self_view(&json!({ "ipv6": "::1" }), None).summary().map_caption.contains("Private"));
        let unknown = self_view(&json!({ "ip": null, "ipv6": null }), None).summary();
        assert_eq!(unknown.address, ["Unknown", "The proxy in front of this site did not report it"]);
        assert!(unknown.map_caption.contains("like your address"));
    }

    #[test]
    fn location_names_are_escaped() {
        let view = self_view(&json!({ "city": "<b>\"&", "latitude": 1.0, "longitude": 2.0 }), None);
        assert!(view.map_svg().contains("&lt;b&gt;&quot;&amp;") && !view.map_svg().contains("<b>"));
    }

    #[test]
    fn utc_offsets_are_formatted() {
        assert_eq!([3600, 0, -12_600, 20_700].map(format_utc_offset), ["UTC+1", "UTC", "UTC−3:30", "UTC+5:45"]);
    }
}
