//! Attributions that the licenses of databases require.

use crate::edition::Edition;

/// The attribution of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseAttribution {
    /// The text that the license requires.
    pub text: &'static str,
    /// The URL that the license requires as a link.
    pub url: &'static str,
}

const MAXMIND_URL: &str = "https://www.maxmind.com";

/// Providers by the prefix of their database types, in lower case.
const PROVIDERS: [(&str, DatabaseAttribution); 3] = [
    (
        "geolite2",
        DatabaseAttribution {
            text: "This product includes GeoLite2 data created by MaxMind, available from https://www.maxmind.com.",
            url: MAXMIND_URL,
        },
    ),
    (
        "geoip2",
        DatabaseAttribution {
            text: "This product includes GeoIP2 data created by MaxMind, available from https://www.maxmind.com.",
            url: MAXMIND_URL,
        },
    ),
    ("dbip", DatabaseAttribution { text: "IP Geolocation by DB-IP", url: "https://db-ip.com" }),
];

/// ip-location-db files do not name a provider. Their locations come from DB-IP and others, under CC BY 4.0.
const IP_LOCATION_DB_ATTRIBUTION: DatabaseAttribution = DatabaseAttribution {
    text: "IP Geolocation by DB-IP (https://db-ip.com) and others, gathered by ip-location-db \
        (https://github.com/sapics/ip-location-db), licensed under CC BY 4.0.",
    url: "https://db-ip.com",
};

impl Edition {
    /// The attribution that the license requires. `None` for an unknown provider.
    #[must_use]
    pub fn attribution(&self) -> Option<DatabaseAttribution> {
        let database_type = self.database_type.to_ascii_lowercase();
        let provider = PROVIDERS.into_iter().find(|(provider, _)| database_type.starts_with(provider));
        let is_ip_location_db =
            || ["city ip", "country ip", "asn ip"].iter().any(|name| database_type.starts_with(name));
        provider
            .map(|(_, attribution)| attribution)
            .or_else(|| is_ip_location_db().then_some(IP_LOCATION_DB_ATTRIBUTION))
    }

    /// The build time in RFC 3339 format. Empty if it is out of range.
    #[must_use]
    pub fn built_at(&self) -> String {
        let built_s = i64::try_from(self.build_epoch_s).unwrap_or(i64::MAX);
        jiff::Timestamp::from_second(built_s).map(|built| built.to_string()).unwrap_or_default()
    }

    /// Whole days between the build and `now_s`, in Unix time.
    #[must_use]
    pub fn age_days(&self, now_s: u64) -> u64 {
        now_s.saturating_sub(self.build_epoch_s) / 86_400
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edition::DatabaseKind;

    fn edition_of_type(database_type: &str) -> Edition {
        Edition {
            kind: DatabaseKind::City,
            database_type: database_type.to_owned(),
            build_epoch_s: 1_767_225_600,
            ip_version: 6,
            node_count: 1,
            description: String::new(),
        }
    }

    #[test]
    fn each_provider_is_attributed() {
        for (database_type, word) in [
            ("GeoLite2-City", "GeoLite2 data created by MaxMind"),
            ("GeoIP2-ISP", "GeoIP2 data created by MaxMind"),
            ("DBIP-City-Lite", "IP Geolocation by DB-IP"),
            ("city ipv4", "CC BY 4.0"),
        ] {
            let text = edition_of_type(database_type).attribution().map(|attribution| attribution.text);
            assert!(text.is_some_and(|text| text.contains(word)), "{database_type}: {text:?}");
        }
        assert_eq!(edition_of_type("Own-City").attribution(), None);
    }

    #[test]
    fn edition_has_a_build_date_and_an_age() {
        let edition = edition_of_type("GeoLite2-City");
        assert_eq!(edition.built_at(), "2026-01-01T00:00:00Z");
        assert_eq!((edition.age_days(0), edition.age_days(edition.build_epoch_s + 2 * 86_400)), (0, 2));
    }
}
