//! What a database says about itself.

use ipseity_domain::GeoFacts;
use maxminddb::Metadata;

/// What a database tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Places down to the city.
    City,
    /// Countries.
    Country,
    /// Autonomous systems.
    Asn,
    /// VPN, proxy, Tor and hosting addresses.
    Anonymous,
}

impl DatabaseKind {
    /// Tells the kind from a `database_type`, such as `GeoLite2-City`, `city ipv4` or `DBIP-Location-ISP (compat=Enterprise)`.
    pub(crate) fn from_database_type(database_type: &str) -> Option<Self> {
        let database_type = database_type.to_ascii_lowercase();
        // The order matters: a database of places that also names providers is asked for its places.
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

    /// How it is called in answers and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::City => "city",
            Self::Country => "country",
            Self::Asn => "asn",
            Self::Anonymous => "anonymous",
        }
    }

    /// Whether a record tells what the kind promises.
    pub(crate) fn matches_facts(self, facts: &GeoFacts<'_>) -> bool {
        match self {
            Self::City | Self::Country => facts.location.country.is_some(),
            Self::Asn => facts.network.asn.is_some(),
            Self::Anonymous => facts.network.proxy.is_some() || facts.network.hosting.is_some(),
        }
    }
}

/// A database as its metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// What it tells.
    pub kind: DatabaseKind,
    /// The type that its maker gave it, such as `GeoLite2-City`.
    pub database_type: String,
    /// When it was built, Unix time in seconds.
    pub build_epoch_s: u64,
    /// Address family of its search tree: 4, or 6 for one that may hold both.
    pub ip_version: u16,
    /// Nodes of its search tree.
    pub node_count: u32,
    /// Its maker's description, in English if there is one.
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
