//! Two-factor authentication: setup, sign-in, recovery, enforcement, and what an attacker with the password or the mailbox cannot
//! do.

use std::process::Command;
use std::time::{Duration, SystemTime};

use ipseity_domain::Scope;
use ipseity_testkit::TestResponse;

use super::authenticator::Authenticator;
use super::browser::Browser;
use super::fixture::{
    NEW_PASSWORD, PASSWORD, PortalFixture, TestMember, assert_redirects_to, fresh_email, shared_fixture,
};

const STEP_S: u64 = 30;

/// An authenticator app. openssl computes the HMAC.
struct AuthenticatorApp {
    secret: Vec<u8>,
}

impl AuthenticatorApp {
    /// Reads the key from the setup page, as a person would type it.
    fn from_page(page: &TestResponse) -> Self {
        let text = page.text();
        let (_, rest) = text.split_once(r#"<code id="totp-secret">"#).unwrap_or_else(|| panic!("no key on {text}"));
        let key: String = rest.chars().take_while(|c| *c != '<').filter(char::is_ascii_alphanumeric).collect();
        let mut bits = key.chars().map(|c| "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".find(c).expect("key is Base32"));
        let mut secret = Vec::new();
        let (mut buffer, mut length) = (0_usize, 0);
        for value in bits.by_ref() {
            (buffer, length) = (buffer << 5 | value, length + 5);
            if length >= 8 {
                length -= 8;
                secret.push((buffer >> length) as u8);
                buffer &= (1 << length) - 1;
            }
        }
        Self { secret }
    }

    fn code_at(&self, step: u64) -> String {
        let key = self.secret.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let counter = step.to_be_bytes().iter().map(|byte| format!("\\{byte:03o}")).collect::<String>();
        let script = format!("printf '{counter}' | openssl dgst -sha1 -mac HMAC -macopt hexkey:{key} -r");
        let output = Command::new("sh").args(["-c", &script]).output().expect("openssl runs");
        let hex = String::from_utf8(output.stdout).expect("output is text");
        let byte =
            |index: usize| u32::from_str_radix(&hex[2 * index..2 * index + 2], 16).expect("output is hexadecimal");
        let offset = (byte(19) & 0xf) as usize;
        let bits = (0..4).fold(0, |bits, index| bits << 8 | byte(offset + index)) & 0x7fff_ffff;
        format!("{:06}", bits % 1_000_000)
    }

    /// A code that was not used before: each call waits for a new time step if needed.
    async fn next_code(&self, fixture: &PortalFixture, account_id: i64) -> String {
        loop {
            let step =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("clock is set").as_secs() / STEP_S;
            let used = fixture.psql(&format!("select totp_step from accounts where id = {account_id}")).await;
            // The next step is accepted too.
            let next = used.parse::<u64>().expect("step is a number").max(step - 1) + 1;
            if next <= step + 1 {
                return self.code_at(next);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

pub(super) fn recovery_codes(page: &TestResponse) -> Vec<String> {
    let text = page.text();
    let (_, rest) = text.split_once(r#"<code id="recovery-codes">"#).unwrap_or_else(|| panic!("no codes on {text}"));
    let codes = rest.split('<').next().unwrap_or_default();
    codes.lines().map(str::to_owned).collect()
}

/// Sets up an app. Returns it with the recovery codes.
async fn set_up_app(fixture: &PortalFixture, member: &mut TestMember) -> (AuthenticatorApp, Vec<String>) {
    let page = member.browser.post("/account/two-factor/app", &[("password", PASSWORD)]).await;
    let app = AuthenticatorApp::from_page(&page);
    let wrong = member.browser.post("/account/two-factor/app/confirm", &[("code", "000000")]).await;
    assert!(wrong.text().contains("Incorrect code"), "{}", wrong.text());
    assert_eq!(AuthenticatorApp::from_page(&wrong).secret, app.secret, "a mistyped code can be typed again");
    let code = app.next_code(fixture, member.id).await;
    let codes = recovery_codes(&member.browser.post("/account/two-factor/app/confirm", &[("code", &code)]).await);
    assert_eq!(codes.len(), 10);
    (app, codes)
}

/// Enters the password. The next page asks for the second factor.
async fn enter_password(fixture: &PortalFixture, email: &str, password: &str) -> Browser {
    let mut browser = fixture.browser();
    let reply = browser.post("/signin", &[("email", email), ("password", password)]).await;
    assert_redirects_to(&reply, "/signin/verify");
    assert_redirects_to(&browser.get("/keys").await, "/signin");
    assert_eq!(browser.get("/signin/verify").await.status, 200);
    browser
}

async fn enter_code(browser: &mut Browser, code: &str) -> TestResponse {
    browser.post("/signin/verify", &[("code", code)]).await
}

fn assert_wrong_code(reply: &TestResponse) {
    assert!(reply.status == 200 && reply.text().contains("Incorrect code"), "{}: {}", reply.status, reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn totp_code_is_needed_after_the_password_and_works_once() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (app, _) = set_up_app(fixture, &mut member).await;
    let mut browser = enter_password(fixture, &member.email, PASSWORD).await;
    assert_wrong_code(&enter_code(&mut browser, "").await);
    let code = app.next_code(fixture, member.id).await;
    assert_redirects_to(&enter_code(&mut browser, &code).await, "/keys");
    assert_eq!(browser.get("/keys").await.status, 200);

    let mut replaying = enter_password(fixture, &member.email, PASSWORD).await;
    assert_wrong_code(&enter_code(&mut replaying, &code).await);
    // Without the password there is nothing to confirm.
    let code = app.next_code(fixture, member.id).await;
    assert_redirects_to(&enter_code(&mut fixture.browser(), &code).await, "/signin");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_code_of_many_concurrent_uses_succeeds() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, codes) = set_up_app(fixture, &mut member).await;
    let mut browsers = Vec::new();
    for _ in 0..5 {
        browsers.push(enter_password(fixture, &member.email, PASSWORD).await);
    }
    let uses = browsers.iter_mut().map(|browser| enter_code(browser, &codes[0]));
    let replies = futures_util::future::join_all(uses).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 303).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_code_works_once() {
    let fixture = shared_fixture().await;
    let (mut member, mut other) = (fixture.create_member().await, fixture.create_member().await);
    let (_, codes) = set_up_app(fixture, &mut member).await;
    let (_, codes_of_other) = set_up_app(fixture, &mut other).await;
    let mut browser = enter_password(fixture, &member.email, PASSWORD).await;
    assert_wrong_code(&enter_code(&mut browser, &codes_of_other[0]).await);
    let typed = codes[3].to_uppercase().replace('-', " ");
    assert_redirects_to(&enter_code(&mut browser, &typed).await, "/keys");
    let mut again = enter_password(fixture, &member.email, PASSWORD).await;
    assert_wrong_code(&enter_code(&mut again, &codes[3]).await);
    assert!(browser.get("/account/two-factor").await.text().contains("9 left"));
    fixture.smtp.wait_for_email(&member.email, "recovery code").await.expect("email arrives");
    let stored = fixture.psql("select encode(digest, 'hex') from recovery_codes").await;
    assert!(codes.iter().all(|code| !stored.contains(&code.replace('-', ""))), "codes are stored as digests");

    // New codes replace all old ones.
    let confirm = [("password", PASSWORD), ("code", codes[4].as_str()), ("next", "/account/two-factor")];
    assert_redirects_to(&browser.post("/account/confirm/password", &confirm).await, "/account/two-factor");
    let new_codes = recovery_codes(&browser.post("/account/two-factor/codes", &[]).await);
    assert_wrong_code(&enter_code(&mut again, &codes[5]).await);
    assert_redirects_to(&enter_code(&mut again, &new_codes[5]).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn passkey_is_a_second_factor_and_cannot_be_the_last_one_removed() {
    let fixture = shared_fixture().await;
    let (mut member, mut authenticator) = (fixture.create_member().await, Authenticator::new(fixture));
    let none = member.browser.post("/account/two-factor/passkeys", &[("password", PASSWORD)]).await;
    assert!(none.text().contains("Add a passkey"), "{}", none.text());
    authenticator.register_for(&mut member, PASSWORD).await;
    let codes = recovery_codes(&member.browser.post("/account/two-factor/passkeys", &[("password", PASSWORD)]).await);
    let mut browser = enter_password(fixture, &member.email, PASSWORD).await;
    assert!(browser.get("/signin/verify").await.text().contains("Use a passkey"));
    assert_redirects_to(&authenticator.sign_in(&mut browser).await, "/keys");

    let id = fixture.psql(&format!("select id from passkeys where account_id = {}", member.id)).await;
    let path = format!("/account/passkeys/{id}/delete");
    assert_eq!(member.browser.post(&path, &[]).await.status, 409, "it is the only second factor");
    let confirm = [("password", PASSWORD), ("code", codes[0].as_str())];
    assert_redirects_to(&member.browser.post("/account/confirm/password", &confirm).await, "/account");
    assert_redirects_to(&member.browser.post("/account/two-factor/off", &[]).await, "/account/two-factor");
    assert_redirects_to(&member.browser.post(&path, &[]).await, "/account");
    let mut simple = fixture.browser();
    let reply = simple.post("/signin", &[("email", &member.email), ("password", PASSWORD)]).await;
    assert_redirects_to(&reply, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn password_reset_needs_the_second_factor() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let early_link = fixture.create_reset_link(&member.email).await;
    let (_, codes) = set_up_app(fixture, &mut member).await;
    let mut thief = fixture.browser();
    let early = thief.post(&early_link, &[("password", NEW_PASSWORD)]).await;
    assert_eq!(early.status, 410, "links from before two-factor authentication end with it");

    let link = fixture.create_reset_link(&member.email).await;
    assert!(thief.get(&link).await.text().contains(r#"name="code""#));
    for code in ["", "000000"] {
        assert_wrong_code(&thief.post(&link, &[("password", NEW_PASSWORD), ("code", code)]).await);
    }
    let mut unchanged = enter_password(fixture, &member.email, PASSWORD).await;
    assert_redirects_to(&thief.post(&link, &[("password", NEW_PASSWORD), ("code", &codes[0])]).await, "/keys");
    let ended = enter_code(&mut unchanged, &codes[1]).await;
    assert_redirects_to(&ended, "/signin");
    enter_password(fixture, &member.email, NEW_PASSWORD).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn password_and_session_cannot_replace_the_second_factor() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, codes) = set_up_app(fixture, &mut member).await;
    let password = [("password", PASSWORD)];
    for path in ["/account/two-factor/app", "/account/two-factor/codes", "/account/two-factor/off"] {
        assert_redirects_to(&member.browser.post(path, &password).await, "/account/confirm");
    }
    let change = [("email", "other@example.com"), ("password", PASSWORD), ("current", PASSWORD)];
    for path in ["/account/email", "/account/delete", "/account/passkeys/begin"] {
        assert_redirects_to(&member.browser.post(path, &change).await, "/account/confirm");
    }
    let new_password = [("current", PASSWORD), ("password", NEW_PASSWORD)];
    assert_redirects_to(&member.browser.post("/account/password", &new_password).await, "/account/confirm");
    assert_wrong_code(&member.browser.post("/account/confirm/password", &password).await);
    let wrong = [("password", "not the password"), ("code", codes[0].as_str())];
    let reply = member.browser.post("/account/confirm/password", &wrong).await;
    assert!(reply.text().contains("Incorrect password"), "{}", reply.text());
    let right = [("password", PASSWORD), ("code", codes[0].as_str()), ("next", "https://evil.example/")];
    assert_redirects_to(&member.browser.post("/account/confirm/password", &right).await, "/account");
    assert_redirects_to(&member.browser.post("/account/password", &new_password).await, "/account");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_began_without_a_second_factor_ends_when_it_is_set_up() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let mut thief = fixture.browser();
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&thief.post("/signin", &form).await, "/keys");
    let setup = AuthenticatorApp::from_page(&thief.post("/account/two-factor/app", &[("password", PASSWORD)]).await);
    let new_email = fresh_email();
    let change = [("email", new_email.as_str()), ("password", PASSWORD)];
    assert_eq!(thief.post("/account/email", &change).await.status, 200);
    let link = fixture.emailed_link_path(&new_email, "Confirm").await;
    set_up_app(fixture, &mut member).await;

    let code = setup.next_code(fixture, member.id).await;
    assert_redirects_to(&thief.post("/account/two-factor/app/confirm", &[("code", &code)]).await, "/signin");
    assert_eq!(thief.post(&link, &[("password", PASSWORD)]).await.status, 410);
    assert_eq!(member.browser.get("/keys").await.status, 200, "the session that set it up continues");
}

#[tokio::test(flavor = "multi_thread")]
async fn restored_address_ends_the_second_factor_of_an_attacker() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let owners_email = member.email.clone();
    let (attackers_email, mut owner) = (fresh_email(), fixture.browser());
    // An attacker with the password sets up an app, and then changes the address.
    let (_, codes) = set_up_app(fixture, &mut member).await;
    let confirm = [("password", PASSWORD), ("code", codes[0].as_str())];
    assert_redirects_to(&member.browser.post("/account/confirm/password", &confirm).await, "/account");
    assert_eq!(member.browser.post("/account/email", &[("email", &attackers_email)]).await.status, 200);
    let link = fixture.emailed_link_path(&attackers_email, "Confirm").await;
    assert_redirects_to(&member.browser.post(&link, &[]).await, "/account");

    let restore = fixture.emailed_link_path(&owners_email, "The email of").await;
    assert!(!owner.get(&restore).await.text().contains(r#"name="code""#));
    assert_redirects_to(&owner.post(&restore, &[("password", NEW_PASSWORD)]).await, "/keys");
    assert!(owner.get("/account/two-factor").await.text().contains("Off."));
    let form = [("email", owners_email.as_str()), ("password", NEW_PASSWORD)];
    assert_redirects_to(&fixture.browser().post("/signin", &form).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_of_a_code_are_limited() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let (_, codes) = set_up_app(fixture, &mut member).await;
    let mut guesser = enter_password(fixture, &member.email, PASSWORD).await;
    for number in 0..5 {
        assert_wrong_code(&enter_code(&mut guesser, &format!("00000{number}")).await);
    }
    for code in ["000006", codes[0].as_str()] {
        assert_eq!(enter_code(&mut guesser, code).await.status, 429);
    }
    let mut elsewhere = enter_password(fixture, &member.email, PASSWORD).await;
    assert_eq!(enter_code(&mut elsewhere, &codes[0]).await.status, 429, "the limit is that of the account");
    let metrics = fixture.node().metrics().await.expect("read the metrics");
    let outcome = |name: &str| {
        let line = format!("ipseity_sign_ins_total{{outcome=\"{name}\"}} ");
        metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse::<u64>().ok()).expect("metric exists")
    };
    assert!(outcome("wrong_code") >= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn required_two_factor_locks_no_member_out() {
    let fixture = &PortalFixture::open(&[("IPSEITY__PORTAL__REQUIRE_TWO_FACTOR", "true")]).await;
    let mut member = fixture.sign_up().await;
    for path in ["/keys", "/keys/new", "/usage", "/events"] {
        assert_redirects_to(&member.browser.get(path).await, "/account/two-factor");
    }
    let create = member.browser.post("/keys", &[("name", "one"), ("scope", "ip")]).await;
    assert_redirects_to(&create, "/account/two-factor");
    assert!(member.browser.get("/account/two-factor").await.text().contains("This site requires it"));
    let (app, codes) = set_up_app(fixture, &mut member).await;
    member.create_key("one", Scope::Ip).await;

    let confirm = [("password", PASSWORD), ("code", codes[0].as_str()), ("next", "/account/two-factor")];
    assert_redirects_to(&member.browser.post("/account/confirm/password", &confirm).await, "/account/two-factor");
    let refused = member.browser.post("/account/two-factor/off", &[]).await;
    assert!(refused.text().contains("requires two-factor"), "{}", refused.text());
    let mut browser = enter_password(fixture, &member.email, PASSWORD).await;
    let code = app.next_code(fixture, member.id).await;
    assert_redirects_to(&enter_code(&mut browser, &code).await, "/keys");
    assert_eq!(browser.get("/keys").await.status, 200);

    // Who loses everything asks the operator, and sets it up again.
    let arguments = ["account", "disable-two-factor", "--email", &member.email];
    fixture.deployment.cli(&arguments).await.expect("run command").ensure_success().expect("command succeeds");
    fixture.smtp.wait_for_email(&member.email, "Two-factor authentication is off").await.expect("email arrives");
    let mut locked_out = fixture.browser();
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&locked_out.post("/signin", &form).await, "/keys");
    assert_redirects_to(&locked_out.get("/keys").await, "/account/two-factor");
    assert_eq!(fixture.account_id(&fresh_email()).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_changes_need_a_recent_sign_in() {
    let fixture = shared_fixture().await;
    let (mut member, mut authenticator) = (fixture.create_member().await, Authenticator::new(fixture));
    let key = member.create_key("one", Scope::Ip).await;
    authenticator.register_for(&mut member, PASSWORD).await;
    let passkey = fixture.psql(&format!("select id from passkeys where account_id = {}", member.id)).await;
    let age = format!(
        "update sessions set created_at = now() - interval '16 minutes', confirmed_at = null where account_id = {}",
        member.id
    );
    fixture.psql(&age).await;
    let page = format!("/keys/{}", key.id);
    for path in ["/keys/new".to_owned(), format!("{page}/delete")] {
        assert_redirects_to(&member.browser.get(&path).await, "/account/confirm");
    }
    let rotate = format!("{page}/rotate");
    for (path, fields) in [
        ("/keys".to_owned(), &[("name", "two"), ("scope", "ip")][..]),
        (rotate.clone(), &[("overlap_s", "0")]),
        (format!("{page}/delete"), &[]),
        (format!("/account/passkeys/{passkey}/delete"), &[]),
    ] {
        assert_redirects_to(&member.browser.post(&path, fields).await, "/account/confirm");
    }
    assert_eq!(fixture.psql(&format!("select count(*) from keys where account_id = {}", member.id)).await, "1");
    // What makes a key safer needs no confirmation.
    assert_redirects_to(&member.browser.post(&format!("{page}/deactivate"), &[]).await, &page);

    let confirm = [("password", PASSWORD), ("next", page.as_str())];
    assert_redirects_to(&member.browser.post("/account/confirm/password", &confirm).await, &page);
    assert_eq!(member.browser.post(&rotate, &[("overlap_s", "0")]).await.status, 200);
    fixture.psql(&age).await;
    assert_redirects_to(&authenticator.confirm(&mut member.browser).await, "/account");
    assert_redirects_to(&member.browser.post(&format!("{page}/delete"), &[("typed", &key.id)]).await, "/keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_after_its_maximum_lifetime() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let age = |days: u32| {
        format!("update sessions set created_at = now() - interval '{days} days' where account_id = {}", member.id)
    };
    let [within, beyond] = [age(89), age(90)];
    fixture.psql(&within).await;
    assert_eq!(member.browser.get("/keys").await.status, 200);
    fixture.psql(&beyond).await;
    assert_redirects_to(&member.browser.get("/keys").await, "/signin");
}

#[tokio::test(flavor = "multi_thread")]
async fn known_device_can_be_removed() {
    let fixture = shared_fixture().await;
    let (member, mut other) = (fixture.create_member().await, fixture.create_member().await);
    let mut browser = fixture.browser();
    let form = [("email", member.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&browser.post("/signin", &form).await, "/keys");
    let devices = format!("select id from devices where account_id = {}", member.id);
    let path = format!("/account/devices/{}/forget", fixture.psql(&devices).await);
    assert!(browser.get("/account").await.text().contains(&path));
    assert_eq!(other.browser.post(&path, &[]).await.status, 404, "the device of another account");
    assert_redirects_to(&browser.post(&path, &[]).await, "/account");
    assert_eq!(fixture.psql(&devices).await, "");
    assert_redirects_to(&browser.post("/signin", &form).await, "/keys");
    for _ in 0..2 {
        // A forgotten browser is new again.
        fixture.smtp.wait_for_email(&member.email, "New sign-in").await.expect("email arrives");
    }
}
