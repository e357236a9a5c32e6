//! The current atlas when its files change.

use std::fs;
use std::sync::Arc;

use ipseity_geo::{Atlas, AtlasReloader, AtlasSources, GeoError};

use crate::fixture::{TempFile, asn_record, atlas_sources, database_bytes, database_file, locate};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

fn asn_database(number: u32) -> Vec<u8> {
    database_bytes("GeoLite2-ASN", [(NETWORK, asn_record(number, "Ours"))])
}

fn asn_and_hosting(atlas: &Atlas) -> (Option<u32>, Option<bool>) {
    let network = locate(atlas, ADDRESS).network;
    (network.asn, network.hosting)
}

#[test]
fn unchanged_files_are_not_reloaded() {
    let database = database_file("GeoLite2-ASN", [(NETWORK, asn_record(64496, "Ours"))]);
    let reloader = AtlasReloader::open(atlas_sources(&[&database]), false).expect("databases open");
    let before = reloader.current();
    let report = reloader.refresh();
    assert!(report.reloaded.is_empty() && report.rejected.is_empty(), "{report:?}");
    assert!(Arc::ptr_eq(&before, &reloader.current()));
}

#[test]
fn databases_and_lists_reload_independently() {
    let (database, list) =
        (database_file("GeoLite2-ASN", [(NETWORK, asn_record(64496, "Ours"))]), TempFile::new(b"AS64497\n"));
    let hosting_lists = vec![list.path().to_owned()];
    let reloader = AtlasReloader::open(AtlasSources { hosting_lists, ..atlas_sources(&[&database]) }, false)
        .expect("databases open");
    let first = reloader.current();
    fs::write(database.path(), asn_database(64497)).expect("file is written");
    fs::write(list.path(), "nothing\nof use\n").expect("file is written");
    let report = reloader.refresh();
    assert_eq!(report.reloaded, [database.path()]);
    assert!(matches!(report.rejected[..], [GeoError::InvalidAsnLine { line: 2, .. }]), "{report:?}");
    assert_eq!(asn_and_hosting(&reloader.current()), (Some(64497), Some(true)), "the old list is still in use");
    assert_eq!(asn_and_hosting(&first), (Some(64496), Some(false)));

    assert!(reloader.refresh().rejected.is_empty(), "an error is reported once");
    fs::write(list.path(), "AS64498\n").expect("file is written");
    assert_eq!(reloader.refresh().reloaded, [list.path()]);
    assert_eq!(asn_and_hosting(&reloader.current()), (Some(64497), Some(false)));
}

#[test]
fn optional_file_is_loaded_when_it_appears_and_others_must_exist() {
    let database = database_file("GeoLite2-ASN", [(NETWORK, asn_record(64496, "Ours"))]);
    let later = database.path().with_extension("later");
    let files = vec![later.clone(), database.path().to_owned()];
    let sources = AtlasSources { files, ..AtlasSources::default() };
    assert!(AtlasReloader::open(sources.clone(), false).is_err());

    let optional_files = vec![later.clone()];
    let reloader = AtlasReloader::open(AtlasSources { optional_files, ..sources }, false).expect("databases open");
    assert_eq!(reloader.current().files().collect::<Vec<_>>(), [database.path()]);
    fs::write(&later, &asn_database(64497)[..200]).expect("file is written");
    assert_eq!(reloader.refresh().rejected.len(), 1);
    fs::write(&later, asn_database(64497)).expect("file is written");
    assert_eq!(reloader.refresh().reloaded, [&*later]);
    assert_eq!(asn_and_hosting(&reloader.current()).0, Some(64497), "it takes precedence");
    fs::remove_file(&later).expect("file is removed");
    assert_eq!(reloader.refresh().rejected.len(), 1);
    assert_eq!(asn_and_hosting(&reloader.current()).0, Some(64497), "the old data is still in use");
}

#[test]
fn database_that_lost_all_coverage_is_rejected() {
    let database = database_file("GeoLite2-ASN", [(NETWORK, asn_record(64496, "Ours"))]);
    let reloader = AtlasReloader::open(atlas_sources(&[&database]), false).expect("databases open");
    fs::write(database.path(), database_bytes("GeoLite2-ASN", [("203.0.113.0/24", asn_record(64497, "Others"))]))
        .expect("file is written");
    let report = reloader.refresh();
    assert!(matches!(report.rejected[..], [GeoError::LostCoverage { .. }]), "{report:?}");
    assert_eq!(asn_and_hosting(&reloader.current()).0, Some(64496));
}
