//! The house that the tests which only ask and answer share, and what they all need.

use std::time::{SystemTime, UNIX_EPOCH};

use domain::{Place, Scope};
use testkit::{House, HouseOptions, Issued, atlas};
use tokio::sync::OnceCell;

static HOUSE: OnceCell<House> = OnceCell::const_new();

/// The shared house; ends with the process.
pub(crate) async fn house() -> &'static House {
    HOUSE
        .get_or_init(async || {
            House::start(HouseOptions { env: patient(), ..HouseOptions::default() }).await.expect("a house")
        })
        .await
}

/// A key of an account that no other test uses.
pub(crate) async fn fresh_key(house: &House, scope: Scope) -> Issued {
    let email = format!("{:016x}@example.com", fastrand::u64(..));
    house.account(&email).await.expect("an account");
    house.issue(&email, scope).await.expect("a key")
}

/// Settings for machines that do many things at once: the bound on a verdict is there for production, not for a suite on two cores.
pub(crate) fn patient() -> testkit::node::Env {
    [
        ("IPSEITY__LEDGER__TIMEOUT_MS", "5000"),
        ("IPSEITY__STORE__TIMEOUT_MS", "10000"),
        ("IPSEITY__PORTAL__TIMEOUT_MS", "10000"),
        ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "20000"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// A small City database that was built so many days ago.
pub(crate) fn city(age_days: u64) -> Vec<u8> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let place = Place { country: Some("DE"), ..Place::default() };
    atlas::city(now_s - age_days * 86_400, &[("192.0.2.0/24", place)]).expect("a database")
}

/// How large a test is: what the environment says, or as much as a suite can afford.
pub(crate) fn setting(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}
