//! Sites whose remote nodes home nodes trust.

use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_store::{Store, StoreError, StoreRefusal};

use crate::fixture::{StoreFixture, expect_refusal, random_digest};

async fn site_names(store: &Store) -> Vec<String> {
    store.sites().list().await.expect("sites are listed").into_iter().map(|site| site.name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn added_site_is_listed_with_its_certificate() {
    let StoreFixture { store, .. } = &StoreFixture::open().await;
    assert_eq!(store.sites().list().await.expect("sites are listed"), []);
    let certificate = random_digest();
    store.sites().add("fra", &certificate).await.expect("site is added");
    let sites = store.sites().list().await.expect("sites are listed");
    assert_eq!(sites.len(), 1);
    assert_eq!((sites[0].name.as_str(), sites[0].certificate_sha256), ("fra", certificate));
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(sites[0].created_s.unsigned_abs().abs_diff(now_s) < 60, "{}", sites[0].created_s);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_and_certificate_belong_to_one_site() {
    let StoreFixture { store, .. } = &StoreFixture::open().await;
    let certificate = random_digest();
    store.sites().add("fra", &certificate).await.expect("site is added");
    assert_eq!(expect_refusal(store.sites().add("fra", &random_digest()).await), StoreRefusal::SiteExists);
    assert_eq!(expect_refusal(store.sites().add("lhr", &certificate).await), StoreRefusal::SiteCertificateExists);
    let sites = store.sites().list().await.expect("sites are listed");
    assert_eq!(sites.len(), 1);
    assert_eq!(sites[0].certificate_sha256, certificate, "the first certificate stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_site_names_are_rejected() {
    let StoreFixture { store, .. } = &StoreFixture::open().await;
    let longest = "a".repeat(32);
    for name in ["a", "7", "fra-2", "a--b", &longest] {
        store.sites().add(name, &random_digest()).await.expect("name is valid");
    }
    let too_long = "a".repeat(33);
    for name in ["", "-", "-fra", "fra-", "FRA", "fra_2", "fra.example", "fra 2", "fra\n", "fr\u{e4}", &too_long] {
        let refusal = expect_refusal(store.sites().add(name, &random_digest()).await);
        assert_eq!(refusal, StoreRefusal::InvalidSiteName, "{name:?}");
    }
    assert_eq!(site_names(store).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_must_be_a_sha256_fingerprint() {
    let fixture = StoreFixture::open().await;
    for bytes in ["''", "'\\x00'", "decode(repeat('00', 33), 'hex')"] {
        let insert = format!("insert into sites (name, certificate_sha256) values ('fra', {bytes}::bytea)");
        let error = fixture.sql_error(&insert).await;
        assert!(error.contains("sites_certificate_sha256_check"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_site_can_be_added_with_another_certificate() {
    let StoreFixture { store, .. } = &StoreFixture::open().await;
    store.sites().add("fra", &random_digest()).await.expect("site is added");
    store.sites().add("lhr", &random_digest()).await.expect("site is added");
    assert!(store.sites().remove("fra").await.expect("query succeeds"));
    assert!(!store.sites().remove("fra").await.expect("query succeeds"), "it no longer exists");
    assert_eq!(site_names(store).await, ["lhr"]);
    store.sites().add("fra", &random_digest()).await.expect("the name is free");
    assert_eq!(site_names(store).await, ["fra", "lhr"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sites_are_listed_by_name_in_byte_order() {
    let StoreFixture { store, .. } = &StoreFixture::open().await;
    // A locale may ignore the hyphen.
    for name in ["lhr", "fra2", "fra-3", "ams", "fra"] {
        store.sites().add(name, &random_digest()).await.expect("site is added");
    }
    assert_eq!(site_names(store).await, ["ams", "fra", "fra-3", "fra2", "lhr"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_role_reads_sites_but_cannot_change_them() {
    let fixture = StoreFixture::open().await;
    let node_store = fixture.node_store().await;
    fixture.store.sites().add("fra", &random_digest()).await.expect("site is added");
    // The rights are granted again by each migration.
    fixture.store.migrate().await.expect("repeated migration succeeds");
    assert_eq!(site_names(&node_store).await, ["fra"]);
    let rejections = [
        node_store.sites().add("lhr", &random_digest()).await.expect_err("nodes cannot add a site"),
        node_store.sites().remove("fra").await.map(|_| ()).expect_err("nodes cannot remove a site"),
    ];
    for error in rejections {
        assert!(matches!(error, StoreError::Fault(_)), "{error:?}");
    }
    let can_change = async |store: &Store| store.sites().can_change().await.expect("query succeeds");
    assert_eq!((can_change(&node_store).await, can_change(&fixture.store).await), (false, true));
    for change in ["update sites set name = 'lhr'", "truncate sites", "drop table sites"] {
        let error = fixture.sql_error(&format!("set session authorization clerk; {change}")).await;
        assert!(error.contains("permission denied") || error.contains("must be owner"), "{change}: {error}");
    }
    assert!(node_store.inspect_server().await.expect("doctor can inspect").can_write, "a node needs no more");
    assert_eq!(site_names(&fixture.store).await, ["fra"]);
}

async fn claim(store: &Store, site: &str, node: &str) -> Option<i16> {
    store.sites().claim_slot(site, node).await.expect("PostgreSQL answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_belongs_to_one_process_of_a_site_until_it_expires() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    for site in ["fra", "lhr"] {
        store.sites().add(site, &random_digest()).await.expect("site is added");
    }
    assert_eq!(claim(store, "fra", "first").await, Some(0));
    assert_eq!(claim(store, "fra", "second").await, None, "another process of the site has it");
    assert_eq!(claim(store, "lhr", "third").await, Some(1));
    assert_eq!(claim(store, "fra", "first").await, Some(0), "renewed");
    fixture.sql("update remote_slots set expires_at = now() - interval '1 second' where site = 'fra'").await;
    assert_eq!(claim(store, "fra", "second").await, Some(0), "taken over");
    assert_eq!(claim(store, "fra", "first").await, None);
    assert!(store.sites().remove("fra").await.expect("site is removed"));
    store.sites().add("ams", &random_digest()).await.expect("site is added");
    assert_eq!(claim(store, "ams", "fourth").await, Some(0), "the slot of a removed site is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn node_31_gets_a_slot_when_another_expires() {
    let fixture = StoreFixture::open().await;
    let store = &fixture.store;
    let mut claims = tokio::task::JoinSet::new();
    for site in 0..31 {
        let (store, name) = (store.clone(), format!("site-{site}"));
        store.sites().add(&name, &random_digest()).await.expect("site is added");
        claims.spawn(async move { claim(&store, &name, "node").await });
    }
    let mut slots: Vec<_> = claims.join_all().await.into_iter().flatten().collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..30).collect::<Vec<_>>(), "each slot once");
    store.sites().add("last", &random_digest()).await.expect("site is added");
    assert_eq!(claim(store, "last", "node").await, None);
    fixture.sql("update remote_slots set expires_at = now() - interval '1 second' where slot = 17").await;
    assert_eq!(claim(store, "last", "node").await, Some(17));
}
