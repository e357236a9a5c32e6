//! The house that the portal's tests share, and the people in it.

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, SmtpSink, TestResponse};
use tokio::sync::OnceCell;

use super::browser::{Browser, SESSION_COOKIE};
use crate::fixture::relaxed_timeouts;

pub(crate) const PASSWORD: &str = "correct horse battery";
/// Another good password.
pub(crate) const NEW_PASSWORD: &str = "staple of the batteries";
const KEY_LENGTH: usize = 52;

/// A house with a mailbox.
pub(crate) struct PortalFixture {
    pub(crate) deployment: Deployment,
    pub(crate) smtp: SmtpSink,
    /// The hash of everybody's password.
    password_hash: OnceCell<String>,
}

static FIXTURE: OnceCell<PortalFixture> = OnceCell::const_new();

/// The shared stage; ends with the process.
pub(crate) async fn shared_fixture() -> &'static PortalFixture {
    FIXTURE.get_or_init(async || PortalFixture::open(&[]).await).await
}

/// Someone who is signed in.
pub(crate) struct TestMember {
    pub(crate) browser: Browser,
    pub(crate) email: String,
    /// The account's number.
    pub(crate) id: i64,
}

impl PortalFixture {
    /// A stage of its own, with these settings over those of all.
    pub(crate) async fn open(settings: &[(&str, &str)]) -> Self {
        Self::with_nodes(1, settings).await
    }

    pub(crate) async fn with_nodes(nodes: usize, settings: &[(&str, &str)]) -> Self {
        Self::with_options(DeploymentOptions { nodes, ..DeploymentOptions::default() }, settings).await
    }

    pub(crate) async fn with_options(options: DeploymentOptions, settings: &[(&str, &str)]) -> Self {
        let smtp = SmtpSink::start().expect("a mailbox");
        let url = smtp.url();
        // All tests come from one network.
        let defaults = [
            ("IPSEITY__PORTAL__SIGNUP", "open"),
            ("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_SUBNET_MAX", "1000000"),
            ("IPSEITY__MAIL__SMTP_URL", &url),
        ];
        let mut env: Env = relaxed_timeouts();
        env.extend(defaults.iter().chain(settings).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let deployment = Deployment::start(DeploymentOptions { env, ..options }).await.expect("a house");
        Self { deployment, smtp, password_hash: OnceCell::new() }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.deployment.nodes[0]
    }

    /// A browser that never was here.
    pub(crate) fn browser(&self) -> Browser {
        Browser::open(self.node())
    }

    pub(crate) async fn psql(&self, sql: &str) -> String {
        self.deployment.postgres.psql("ipseity", sql).await.expect("rows")
    }

    /// Signs somebody up, by way of the mailbox.
    pub(crate) async fn sign_up(&self) -> TestMember {
        let email = fresh_email();
        let mut browser = self.browser();
        let response = browser.post("/signup", &[("email", &email), ("password", PASSWORD)]).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let link = self.emailed_link_path(&email, "Confirm").await;
        assert_redirects_to(&browser.post(&link, &[]).await, "/keys");
        let id = self.account_id(&email).await.expect("an account");
        TestMember { browser, email, id }
    }

    /// The hash of everybody's password: the first member's, who signed up for it.
    pub(crate) async fn password_hash(&self) -> &str {
        let sign_up = async || {
            let founder = self.sign_up().await;
            self.psql(&format!("select password_hash from accounts where id = {}", founder.id)).await
        };
        self.password_hash.get_or_init(sign_up).await
    }

    /// Makes somebody with an account and a session, without their pages: where a sign-up is not what is tried.
    pub(crate) async fn create_member(&self) -> TestMember {
        let (email, cookie) = (fresh_email(), fresh_secret());
        let (hash, digest) = (self.password_hash().await, digest_sql(&cookie));
        let sql = format!(
            "with made as (insert into accounts (email, password_hash) values ('{email}', '{hash}') returning id)
             insert into sessions (digest, account_id, label) select {digest}, id, 'planted' from made returning account_id"
        );
        let id = self.psql(&sql).await.parse().expect("a number");
        let mut browser = self.browser();
        browser.set_cookie(SESSION_COOKIE, &cookie);
        TestMember { browser, email, id }
    }

    /// Makes a link to a new password, as if it had been mailed; gives its path.
    pub(crate) async fn create_reset_link(&self, email: &str) -> String {
        let token = fresh_secret();
        let sql = format!(
            "insert into tickets (kind, email, digest, expires_at, mailed_at)
             values ('reset', '{email}', {}, now() + interval '1 hour', now())",
            digest_sql(&token)
        );
        self.psql(&sql).await;
        format!("/link/{token}")
    }

    /// The path of the link in the next mail to this address with this in its subject.
    pub(crate) async fn emailed_link_path(&self, email: &str, subject_part: &str) -> String {
        let message = self.smtp.wait_for_email(email, subject_part).await.expect("a mail");
        let links = message.links();
        let found = links.iter().find_map(|link| link.split_once("/link/"));
        let (_, token) = found.expect("a link with a token");
        format!("/link/{token}")
    }

    pub(crate) async fn account_id(&self, email: &str) -> Option<i64> {
        self.psql(&format!("select id from accounts where email = '{email}'")).await.parse().ok()
    }

    /// Everything that an account holds, and whatever waits for its owner or for this browser, as text: equal before and after means that nothing
    /// changed.
    pub(crate) async fn snapshot(&self, email: &str, browser: &Browser) -> String {
        let visit_digest = browser.cookie(SESSION_COOKIE).map_or_else(|| "''".to_owned(), digest_sql);
        let id = format!("(select id from accounts where lower(email) = '{email}')");
        let keys = format!("(select id from keys where account_id = {id})");
        let parts = [
            format!("select 'account', t::text from accounts t where id = {id}"),
            format!("select 'key', t::text from keys t where account_id = {id}"),
            format!("select 'history', t::text from history t where key_id in {keys}"),
            format!("select 'pause', t::text from pauses t where key_id in {keys}"),
            format!("select 'session', t::text from sessions t where account_id = {id} or digest = {visit_digest}"),
            format!("select 'device', t::text from devices t where account_id = {id}"),
            format!("select 'passkey', t::text from passkeys t where account_id = {id}"),
            format!("select 'ceremony', t::text from ceremonies t where digest = {visit_digest}"),
            format!("select 'ticket', t::text from tickets t where account_id = {id} or lower(email) = '{email}'"),
        ];
        self.psql(&format!("{} order by 1, 2", parts.join(" union all "))).await
    }
}

impl TestMember {
    /// Makes a key on its page.
    pub(crate) async fn create_key(&mut self, name: &str, scope: Scope) -> IssuedKey {
        let page = self.browser.post("/keys", &[("name", name), ("scope", scope.name())]).await;
        key_shown_on(&page).unwrap_or_else(|| panic!("a page with a key, not {}: {}", page.status, page.text()))
    }
}

/// The key that a page shows, this once.
pub(crate) fn key_shown_on(page: &TestResponse) -> Option<IssuedKey> {
    let text = page.text();
    let shown = text.match_indices("ips_").map(|(at, _)| text[at..].chars().take(KEY_LENGTH).collect::<String>());
    let is_key = |text: &String| text.len() == KEY_LENGTH && text[4..].chars().all(|c| c.is_ascii_alphanumeric());
    let key = shown.into_iter().find(is_key)?;
    Some(IssuedKey { id: key[4..14].to_owned(), key })
}

/// Holds an answer to leading to a page, whatever it tells there.
#[track_caller]
pub(crate) fn assert_redirects_to(reply: &TestResponse, path: &str) {
    let location = reply.header("location").map(|location| location.split('?').next().unwrap_or_default());
    assert_eq!((reply.status, location), (303, Some(path)), "{}", reply.text());
}

/// An address that no other test uses.
pub(crate) fn fresh_email() -> String {
    format!("{:016x}@example.com", fastrand::u64(..))
}

/// A value such as cookies and links carry.
pub(crate) fn fresh_secret() -> String {
    format!("{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..))
}

/// What PostgreSQL may know of a secret, as SQL.
pub(crate) fn digest_sql(secret: &str) -> String {
    format!("sha256('{secret}')")
}
