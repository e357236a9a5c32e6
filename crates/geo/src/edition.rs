//! What a database says about itself.

use maxminddb::Metadata;

/// What a database tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Places down to the city.
    City,
    /// Countries.
    Country,
    /// Autonomous systems.
    Asn,
}

impl Kind {
    /// Tells the kind from a `database_type`, such as `GeoLite2-City` or `DBIP-Location-ISP (compat=Enterprise)`.
    pub(crate) fn find(database_type: &str) -> Option<Self> {
        // The order matters: a database of places that also names providers is asked for its places.
        [
            ("City", Self::City),
            ("Enterprise", Self::City),
            ("Country", Self::Country),
            ("ASN", Self::Asn),
            ("ISP", Self::Asn),
        ]
        .into_iter()
        .find_map(|(word, kind)| database_type.contains(word).then_some(kind))
    }
}

/// A database as its metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edition {
    /// What it tells.
    pub kind: Kind,
    /// The type that its maker gave it, such as `GeoLite2-City`.
    pub database_type: String,
    /// When it was built, Unix time in seconds.
    pub build_epoch_s: u64,
    /// Nodes of its search tree.
    pub node_count: u32,
    /// Its maker's description, in English if there is one.
    pub description: String,
}

impl Edition {
    pub(crate) fn new(kind: Kind, metadata: &Metadata) -> Self {
        let description = metadata.description.get("en").or_else(|| metadata.description.values().next());
        Self {
            kind,
            database_type: metadata.database_type.clone(),
            build_epoch_s: metadata.build_epoch,
            node_count: metadata.node_count,
            description: description.cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_told_by_the_type() {
        for (database_type, kind) in [
            ("GeoLite2-City", Some(Kind::City)),
            ("GeoIP2-Enterprise", Some(Kind::City)),
            ("DBIP-Location-ISP (compat=Enterprise)", Some(Kind::City)),
            ("GeoIP2-Country", Some(Kind::Country)),
            ("GeoLite2-ASN", Some(Kind::Asn)),
            ("GeoIP2-ISP", Some(Kind::Asn)),
            ("GeoIP2-Connection-Type", None),
            ("", None),
        ] {
            assert_eq!(Kind::find(database_type), kind, "{database_type}");
        }
    }
}
