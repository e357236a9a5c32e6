//! Passkeys: adding one needs more than a session, and a password reset removes all.

use super::authenticator::{Authenticator, Forged};
use super::fixture::{NEW_PASSWORD, PASSWORD, PortalFixture, assert_redirects_to, fresh_email, shared_fixture};

async fn count_rows(fixture: &PortalFixture, table: &str, account_id: i64) -> String {
    fixture.psql(&format!("select count(*) from {table} where account_id = {account_id}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn adding_a_passkey_needs_the_password_and_is_reported_by_email() {
    let fixture = shared_fixture().await;
    let (mut member, mut authenticator) = (fixture.create_member().await, Authenticator::new(fixture));
    for fields in [&[][..], &[("password", "not the password")]] {
        let reply = authenticator.register(&mut member.browser, fields).await;
        assert_eq!(reply.status, 403, "{fields:?}");
        assert!(reply.text().contains("Incorrect password"), "{}", reply.text());
    }
    assert_eq!(count_rows(fixture, "passkeys", member.id).await, "0");

    authenticator.register_for(&mut member, PASSWORD).await;
    let notice = fixture.smtp.wait_for_email(&member.email, "passkey was added").await.expect("email arrives");
    assert!(notice.text.contains("/forgot"), "{}", notice.text);
    let mut browser = fixture.browser();
    assert_redirects_to(&authenticator.sign_in(&mut browser).await, "/keys");
    assert_eq!(browser.get("/keys").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn fresh_passkey_replaces_the_password() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let [mut first, mut second, mut third] = [(); 3].map(|()| Authenticator::new(fixture));
    first.register_for(&mut member, PASSWORD).await;
    fixture.psql(&format!("update accounts set password_hash = null where id = {}", member.id)).await;
    assert_eq!(second.register(&mut member.browser, &[("password", PASSWORD)]).await.status, 403);

    assert!(member.browser.get("/account").await.text().contains("passkey-password"));
    assert_redirects_to(&first.confirm(&mut member.browser).await, "/account");
    assert!(!member.browser.get("/account").await.text().contains("passkey-password"));
    assert_redirects_to(&second.register(&mut member.browser, &[]).await, "/account");
    let email = fresh_email();
    assert_eq!(member.browser.post("/account/email", &[("email", &email)]).await.status, 200);
    let link = fixture.emailed_link_path(&email, "Confirm").await;
    assert_redirects_to(&member.browser.post(&link, &[]).await, "/account");

    let mut elsewhere = fixture.browser();
    assert_redirects_to(&first.sign_in(&mut elsewhere).await, "/keys");
    assert_eq!(third.register(&mut elsewhere, &[]).await.status, 403, "another session is not confirmed");
    let expire = "update sessions set confirmed_at = now() - interval '5 minutes' where account_id";
    fixture.psql(&format!("{expire} = {}", member.id)).await;
    assert_eq!(third.register(&mut member.browser, &[]).await.status, 403, "the confirmation has expired");
}

#[tokio::test(flavor = "multi_thread")]
async fn passkey_of_another_account_confirms_nothing() {
    let fixture = shared_fixture().await;
    let (mut member, mut other) = (fixture.create_member().await, fixture.create_member().await);
    let mut authenticator = Authenticator::new(fixture);
    authenticator.register_for(&mut other, PASSWORD).await;
    assert_eq!(authenticator.confirm(&mut member.browser).await.status, 403);
    assert!(member.browser.get("/account").await.text().contains("passkey-password"));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_handle_of_a_passkey_must_be_that_of_its_account() {
    let fixture = shared_fixture().await;
    let (mut member, other) = (fixture.create_member().await, fixture.create_member().await);
    let mut authenticator = Authenticator::new(fixture);
    authenticator.register_for(&mut member, PASSWORD).await;
    let handle = async |id: i64| {
        let hex = fixture.psql(&format!("select handle from accounts where id = {id}")).await.replace('-', "");
        Authenticator::encode_hex(&hex)
    };
    for (account_id, status) in [(member.id, 303), (other.id, 403)] {
        authenticator.user_handle = Some(handle(account_id).await);
        assert_eq!(authenticator.sign_in(&mut fixture.browser()).await.status, status);
    }
    authenticator.user_handle = None;
    assert_redirects_to(&authenticator.sign_in(&mut fixture.browser()).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn password_reset_removes_passkeys_devices_and_sessions() {
    let fixture = shared_fixture().await;
    let (mut member, mut planted) = (fixture.create_member().await, Authenticator::new(fixture));
    planted.register_for(&mut member, PASSWORD).await;
    let mut thief = fixture.browser();
    assert_redirects_to(&planted.sign_in(&mut thief).await, "/keys");
    assert_eq!(count_rows(fixture, "devices", member.id).await, "1");

    let link = fixture.create_reset_link(&member.email).await;
    // The thief has a copy of the owner's cookies.
    let mut owner = thief.on_node(fixture.node());
    assert_redirects_to(&owner.post(&link, &[("password", NEW_PASSWORD)]).await, "/keys");
    assert_redirects_to(&thief.get("/keys").await, "/signin");
    assert_eq!(planted.sign_in(&mut fixture.browser()).await.status, 403);
    assert_eq!(count_rows(fixture, "passkeys", member.id).await, "0");
    let device = owner.cookie(super::browser::DEVICE_COOKIE).expect("browser has a device cookie");
    let known = format!("select digest = sha256('{device}') from devices where account_id = {}", member.id);
    assert_eq!(fixture.psql(&known).await, "t", "only the new device is known");
    assert_ne!(thief.cookie(super::browser::DEVICE_COOKIE), Some(device));
}

#[tokio::test(flavor = "multi_thread")]
async fn password_change_forgets_devices_and_removes_passkeys_on_request() {
    let fixture = shared_fixture().await;
    let (mut member, mut authenticator) = (fixture.create_member().await, Authenticator::new(fixture));
    authenticator.register_for(&mut member, PASSWORD).await;
    assert_redirects_to(&authenticator.sign_in(&mut fixture.browser()).await, "/keys");
    let change = [("current", PASSWORD), ("password", NEW_PASSWORD)];
    assert_redirects_to(&member.browser.post("/account/password", &change).await, "/account");
    assert_eq!(count_rows(fixture, "passkeys", member.id).await, "1");
    assert_eq!(count_rows(fixture, "sessions", member.id).await, "1");
    let device = member.browser.cookie(super::browser::DEVICE_COOKIE).expect("browser has a device cookie");
    let known = format!("select digest = sha256('{device}') from devices where account_id = {}", member.id);
    assert_eq!(fixture.psql(&known).await, "t", "only this browser is known");

    let change = [("current", NEW_PASSWORD), ("password", PASSWORD), ("delete_credentials", "on")];
    assert_redirects_to(&member.browser.post("/account/password", &change).await, "/account");
    assert_eq!(count_rows(fixture, "passkeys", member.id).await, "0");
    assert_eq!(authenticator.sign_in(&mut fixture.browser()).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_or_replayed_passkey_responses_are_rejected() {
    const BEGIN: &str = "/signin/passkey";
    const FINISH: &str = "/signin/passkey/finish";
    let fixture = shared_fixture().await;
    let (mut member, mut authenticator) = (fixture.create_member().await, Authenticator::new(fixture));
    authenticator.register_for(&mut member, PASSWORD).await;
    let mut browser = fixture.browser();
    assert_redirects_to(&authenticator.sign_in(&mut browser).await, "/keys");

    let origin = |origin: &str| Forged { origin: Some(origin.to_owned()), ..Forged::default() };
    let base_url = &fixture.node().env()["IPSEITY__PUBLIC__BASE_URL"];
    let forgeries = [
        ("another origin", origin("https://attacker.example")),
        ("another port", origin("https://localhost:1")),
        ("a subdomain", origin(&base_url.replace("localhost", "www.localhost"))),
        ("plain HTTP", origin(&base_url.replace("https:", "http:"))),
        ("another relying party", Forged { relying_party: Some("attacker.example"), ..Forged::default() }),
        (
            "another challenge",
            Forged { challenge: Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), ..Forged::default() },
        ),
        ("a registration", Forged { kind: Some("webauthn.create"), ..Forged::default() }),
        ("no user present", Forged { flags: Some(0x04), ..Forged::default() }),
        ("no user verified", Forged { flags: Some(0x01), ..Forged::default() }),
        ("an old counter", Forged { counter: Some(1), ..Forged::default() }),
        ("a wrong signature", Forged { breaks_signature: true, ..Forged::default() }),
    ];
    for (forgery, forged) in forgeries {
        authenticator.forged = forged;
        let mut browser = fixture.browser();
        assert_eq!(authenticator.sign_in(&mut browser).await.status, 403, "{forgery}");
        assert_redirects_to(&browser.get("/keys").await, "/signin");
    }
    authenticator.forged = Forged::default();

    let (mut browser, mut other) = (fixture.browser(), fixture.browser());
    let credential = authenticator.answer_challenge(&mut browser, BEGIN).await;
    authenticator.answer_challenge(&mut other, BEGIN).await;
    let fields = [("credential", credential.as_str())];
    assert_eq!(other.post(FINISH, &fields).await.status, 403, "the challenge of another browser");
    assert_redirects_to(&browser.post(FINISH, &fields).await, "/keys");
    for mut browser in [fixture.browser(), browser] {
        assert_eq!(browser.post(FINISH, &fields).await.status, 403, "replayed");
        authenticator.answer_challenge(&mut browser, BEGIN).await;
        assert_eq!(browser.post(FINISH, &fields).await.status, 403, "replayed after a new challenge");
    }
}
