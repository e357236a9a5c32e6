//! The atlas in use when its files change.

use std::fs;
use std::sync::Arc;

use geo::{Atlas, GeoError, Shelf, Sources};

use crate::database::{File, bytes, file, locate, network, sources};

const NETWORK: &str = "198.51.100.0/24";
const ADDRESS: &str = "198.51.100.7";

fn asn(number: u32) -> Vec<u8> {
    bytes("GeoLite2-ASN", [(NETWORK, network(number, "Ours"))])
}

fn told(atlas: &Atlas) -> (Option<u32>, Option<bool>) {
    let network = locate(atlas, ADDRESS).network;
    (network.asn, network.hosting)
}

#[test]
fn what_did_not_change_stays_in_use() {
    let database = file("GeoLite2-ASN", [(NETWORK, network(64496, "Ours"))]);
    let shelf = Shelf::open(sources(&[&database]), false).expect("a shelf");
    let before = shelf.current();
    let news = shelf.refresh();
    assert!(news.swapped.is_empty() && news.refused.is_empty(), "{news:?}");
    assert!(Arc::ptr_eq(&before, &shelf.current()));
}

#[test]
fn databases_and_lists_are_renewed_apart_and_an_answer_keeps_its_atlas() {
    let (database, list) = (file("GeoLite2-ASN", [(NETWORK, network(64496, "Ours"))]), File::new(b"AS64497\n"));
    let hosting_lists = vec![list.path().to_owned()];
    let shelf = Shelf::open(Sources { hosting_lists, ..sources(&[&database]) }, false).expect("a shelf");
    let first = shelf.current();
    fs::write(database.path(), asn(64497)).expect("a file");
    fs::write(list.path(), "nothing\nof use\n").expect("a file");
    let news = shelf.refresh();
    assert_eq!(news.swapped, [database.path()]);
    assert!(matches!(news.refused[..], [GeoError::BadLine { line: 2, .. }]), "{news:?}");
    assert_eq!(told(&shelf.current()), (Some(64497), Some(true)), "the old list still holds");
    assert_eq!(told(&first), (Some(64496), Some(false)));

    assert!(shelf.refresh().refused.is_empty(), "what was refused is told once");
    fs::write(list.path(), "AS64498\n").expect("a file");
    assert_eq!(shelf.refresh().swapped, [list.path()]);
    assert_eq!(told(&shelf.current()), (Some(64497), Some(false)));
}

#[test]
fn a_database_that_knows_nothing_of_what_was_known_is_refused() {
    let database = file("GeoLite2-ASN", [(NETWORK, network(64496, "Ours"))]);
    let shelf = Shelf::open(sources(&[&database]), false).expect("a shelf");
    fs::write(database.path(), bytes("GeoLite2-ASN", [("203.0.113.0/24", network(64497, "Others"))])).expect("a file");
    let news = shelf.refresh();
    assert!(matches!(news.refused[..], [GeoError::Forgetful { .. }]), "{news:?}");
    assert_eq!(told(&shelf.current()).0, Some(64496));
}
