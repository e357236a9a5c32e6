//! The metadata of a database.

use ipseity_domain::GeoFacts;
use maxminddb::Metadata;

/// The kind of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Locations with cities.
    City,
    /// Countries.
    Country,
    /// Autonomous systems.
    Asn,
    /// VPN, proxy, Tor and hosting addresses.
    Anonymous,
}

impl DatabaseKind {
    /// The kind of a `database_type`, such as `GeoLite2-City`, `city ipv4` or `DBIP-Location-ISP (compat=Enterprise)`.
    pub(crate) fn from_database_type(database_type: &str) -> Option<Self> {
        let database_type = database_type.to_ascii_lowercase();
        // The order matters: a location database with provider names counts as a location database.
        [
            ("anonymous", Self::Anonymous),
            ("city", Self::City),
            ("enterprise", Self::City),
            ("country", Self::Country),
            ("asn", Self::Asn),
            ("isp", Self::Asn),
        ]
        .into_iter()
        .find_map(|(word, kind)| database_type.contains(word).then_some(kind))
    }

    /// The name in responses and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::City => "city",
            Self::Country => "country",
            Self::Asn => "asn",
            Self::Anonymous => "anonymous",
        }
    }

    /// Whether a record has facts of this kind.
    pub(crate) fn matches_facts(self, facts: &GeoFacts<'_>) -> bool {
        match self {
            Self::City | Self::Country => facts.location.country.is_some(),
            Self::Asn => facts.network.asn.is_some(),
            Self::Anonymous => facts.network.proxy.is_some() || facts.network.hosting.is_some(),
        }
    }
}

/// An edition of a database, as its metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// The kind of facts.
    pub kind: DatabaseKind,
    /// The provider's type name, such as `GeoLite2-City`.
    pub database_type: String,
    /// The build time, as Unix time in seconds.
    pub build_epoch_s: u64,
    /// Address family of the search tree: 4, or 6 for a tree that may contain both.
    pub ip_version: u16,
    /// Nodes of the search tree.
    pub node_count: u32,
    /// The provider's description, in English if available.
    pub description: String,
}

impl Edition {
    pub(crate) fn new(kind: DatabaseKind, metadata: &Metadata) -> Self {
        let description = metadata.description.get("en").or_else(|| metadata.description.values().next());
        Self {
            kind,
            database_type: metadata.database_type.clone(),
            build_epoch_s: metadata.build_epoch,
            ip_version: metadata.ip_version,
            node_count: metadata.node_count,
            description: description.cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_detected_from_the_database_type() {
        for (database_type, kind) in [
            ("GeoLite2-City", Some(DatabaseKind::City)),
            ("GeoIP2-Enterprise", Some(DatabaseKind::City)),
            ("DBIP-Location-ISP (compat=Enterprise)", Some(DatabaseKind::City)),
            ("GeoIP2-Country", Some(DatabaseKind::Country)),
            ("GeoLite2-ASN", Some(DatabaseKind::Asn)),
            ("GeoIP2-ISP", Some(DatabaseKind::Asn)),
            ("GeoIP2-Anonymous-IP", Some(DatabaseKind::Anonymous)),
            ("city ipv6", Some(DatabaseKind::City)),
            ("country ipvAll", Some(DatabaseKind::Country)),
            ("GeoIP2-Connection-Type", None),
            ("", None),
        ] {
            assert_eq!(DatabaseKind::from_database_type(database_type), kind, "{database_type}");
        }
    }
}
