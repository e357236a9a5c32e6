//! Neither client addresses nor keys and other secrets are in the log, in the stores or on the pages of the console.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use ipseity_domain::{PlaintextKey, Scope};
use ipseity_store::OperatorRole;
use ipseity_testkit::{Needle, PrivacySearch, TestResponse};

use super::fixture::{ConsoleFixture, TestOperator};
use super::routes::ROUTE_CASES;
use crate::portal::authenticator::Authenticator;
use crate::portal::browser::{Browser, CONSOLE_COOKIE};
use crate::portal::fixture::fresh_email;
use crate::privacy::canaries::{random_v4, random_v6};

/// The operator's address.
const PEER: Ipv4Addr = Ipv4Addr::new(127, 251, 249, 252);

/// What must be found nowhere, and what the console returned.
#[derive(Default)]
struct Tour {
    needles: Vec<Needle>,
    pages: Vec<(String, Vec<u8>)>,
}

impl Tour {
    fn add_address(&mut self, address: impl Into<IpAddr>) -> String {
        let address = address.into();
        self.needles.push(Needle::Address(address));
        address.to_string()
    }

    fn add_key(&mut self, key: &str) {
        self.add_secret(key);
        self.add_secret(&key[14..46]);
    }

    fn add_secret(&mut self, secret: &str) {
        self.needles.push(Needle::Text(secret.to_owned()));
    }

    /// Headers of a request with client addresses.
    fn client_headers(&mut self) -> Vec<(String, String)> {
        let (v4, v6) = (self.add_address(random_v4(129..=223)), self.add_address(random_v6()));
        let headers = [
            ("x-forwarded-for", v4.clone()),
            ("forwarded", format!("for=\"[{v6}]\"")),
            ("cf-connecting-ip", v6.clone()),
            ("x-real-ip", v4.clone()),
            ("user-agent", format!("Firefox/1.0 (Linux; {v6})")),
            ("referer", format!("https://example.com/{v4}")),
        ];
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn keep(&mut self, path: &str, reply: &TestResponse) {
        let location = reply.header("location").unwrap_or_default();
        self.pages.push((format!("page {path}"), [location.as_bytes(), b"\n", &reply.body[..]].concat()));
    }
}

/// Lookups with keys in every state, and with keys that do not exist.
async fn look_up(fixture: &ConsoleFixture, tour: &mut Tour) -> Vec<String> {
    let deployment = &fixture.portal.deployment;
    let email = fresh_email();
    deployment.create_account(&email).await.expect("account is created");
    let key = deployment.issue_key(&email, Scope::Full).await.expect("key is issued");
    let id = ipseity_domain::KeyId::parse(&key.id).expect("valid ID");
    let wrong = PlaintextKey::rotate(id, || fastrand::u8(..));
    let unknown = PlaintextKey::generate(|| fastrand::u8(..));
    let keys = [key.key.clone(), wrong.expose().to_owned(), unknown.expose().to_owned()];
    let mut client = fixture.node().client();
    for key in &keys {
        tour.add_key(key);
        for _ in 0..5 {
            let mut headers = tour.client_headers();
            headers.push(("authorization".to_owned(), format!("Bearer {key}")));
            let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            client.get("/api/v1/ip", &headers).await.expect("response arrives");
        }
    }
    keys.into()
}

/// An operator at an address, with a cookie that must be found nowhere.
async fn operator_from(fixture: &ConsoleFixture, tour: &mut Tour, role: OperatorRole) -> TestOperator {
    let operator = fixture.sign_in(role).await;
    let cookie = operator.browser.cookie(CONSOLE_COOKIE).expect("browser has the cookie").to_owned();
    tour.add_secret(&cookie);
    let mut browser = Browser::open_console_from(fixture.node(), PEER);
    browser.set_cookie(CONSOLE_COOKIE, &cookie);
    TestOperator { browser, ..operator }
}

/// Every route, as each role and without a session.
async fn visit_every_route(fixture: &ConsoleFixture, tour: &mut Tour, keys: &[String]) {
    for case in ROUTE_CASES {
        let mut target = fixture.create_target().await;
        tour.add_secret(&target.link_token);
        keys[0][4..14].clone_into(&mut target.key);
        let role = if case.is_form() { OperatorRole::Admin } else { OperatorRole::Viewer };
        let mut operator = operator_from(fixture, tour, role).await;
        let path = case.path_for(&target, Some(&operator));
        for browser in [&mut Browser::open_console_from(fixture.node(), PEER), &mut operator.browser] {
            browser.set_extra_headers(tour.client_headers());
            // A link may be shown on its own page.
            let reply = case.visit(browser, &path, &target).await;
            if !case.path.starts_with("/join/") {
                tour.keep(&path, &reply);
            }
        }
    }
}

/// A key instead of anything else.
async fn paste_keys(fixture: &ConsoleFixture, tour: &mut Tour, keys: &[String]) {
    let mut admin = operator_from(fixture, tour, OperatorRole::Admin).await;
    for key in keys {
        for path in [
            format!("/search?q={key}"),
            format!("/search?q=Bearer%20{key}"),
            format!("/keys/{key}"),
            format!("/{key}"),
            format!("/nothing?key={key}"),
            format!("/join/{key}"),
        ] {
            admin.browser.set_extra_headers(tour.client_headers());
            let reply = admin.browser.get(&path).await;
            tour.keep(&path[..8.min(path.len())], &reply);
        }
        for (path, field) in [("/sign-ups/invite", "email"), ("/emails/retry", "id")] {
            let reply = admin.browser.post(path, &[(field, key), ("queue", "links")]).await;
            tour.keep(path, &reply);
        }
    }
}

/// Sign-ins that fail, with a key as the credential too.
async fn fail_to_sign_in(fixture: &ConsoleFixture, tour: &mut Tour, keys: &[String]) {
    for credential in ["{}", &keys[0]] {
        let mut browser = Browser::open_console_from(fixture.node(), PEER);
        browser.set_extra_headers(tour.client_headers());
        browser.post("/signin/passkey", &[]).await;
        let reply = browser.post("/signin/passkey/finish", &[("credential", credential)]).await;
        assert_eq!(reply.status, 403);
        tour.keep("/signin/passkey/finish", &reply);
    }
    let mut unknown = Authenticator::for_origin(&fixture.node().console_url());
    assert_eq!(unknown.sign_in(&mut Browser::open_console_from(fixture.node(), PEER)).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_data_is_found_after_a_tour() {
    let settings = [("IPSEITY__LOG__LEVEL", "trace"), ("IPSEITY__LOG__ACCESS", "true")];
    let (fixture, mut tour) = (ConsoleFixture::open(&settings).await, Tour::default());
    tour.add_address(PEER);
    let keys = look_up(&fixture, &mut tour).await;
    visit_every_route(&fixture, &mut tour, &keys).await;
    paste_keys(&fixture, &mut tour, &keys).await;
    fail_to_sign_in(&fixture, &mut tour, &keys).await;

    let deployment = &fixture.portal.deployment;
    // A leak that must be found.
    let (planted, table) = ("planted-6f1c2a9b", "insert into plans (name, daily_limit) values");
    fixture.psql(&format!("{table} ('{planted}', 1)")).await;
    let control = PrivacySearch::new([Needle::Text(planted.to_owned())]).expect("search is created");
    let dump = deployment.postgres.dump("ipseity").await.expect("data is dumped");
    assert!(!control.search_bytes("PostgreSQL", &dump).is_empty());

    let search = PrivacySearch::new(tour.needles).expect("search is created");
    let mut findings = search.search_bytes("PostgreSQL", &dump);
    findings.extend(search.search_bytes("Redis", &deployment.redis.dump_all().await.expect("data is read")));
    findings.extend(search.search_files(Path::new(fixture.node().dir())).expect("files are searched"));
    for (path, bytes) in &tour.pages {
        findings.extend(search.search_bytes(path, bytes));
    }
    assert!(findings.is_empty(), "{:#?}", &findings[..findings.len().min(5)]);
}
