//! The deployment that the portal tests share, and its members.

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node, SmtpSink, TestResponse};
use tokio::sync::OnceCell;

use super::browser::{Browser, SESSION_COOKIE};
use crate::fixture::relaxed_timeouts;

pub(crate) const PASSWORD: &str = "correct horse battery";
/// Another valid password.
pub(crate) const NEW_PASSWORD: &str = "staple of the batteries";
const KEY_LENGTH: usize = 52;

/// A deployment with an SMTP server.
pub(crate) struct PortalFixture {
    pub(crate) deployment: Deployment,
    pub(crate) smtp: SmtpSink,
    /// The hash of `PASSWORD`, which all members share.
    password_hash: OnceCell<String>,
}

static FIXTURE: OnceCell<PortalFixture> = OnceCell::const_new();

/// The shared fixture; it ends with the process.
pub(crate) async fn shared_fixture() -> &'static PortalFixture {
    FIXTURE.get_or_init(async || PortalFixture::open(&[]).await).await
}

/// A signed-in member.
pub(crate) struct TestMember {
    pub(crate) browser: Browser,
    pub(crate) email: String,
    /// The account ID.
    pub(crate) id: i64,
}

impl PortalFixture {
    /// A separate fixture with additional settings.
    pub(crate) async fn open(settings: &[(&str, &str)]) -> Self {
        Self::with_nodes(1, settings).await
    }

    pub(crate) async fn with_nodes(nodes: usize, settings: &[(&str, &str)]) -> Self {
        Self::with_options(DeploymentOptions { nodes, ..DeploymentOptions::default() }, settings).await
    }

    pub(crate) async fn with_options(options: DeploymentOptions, settings: &[(&str, &str)]) -> Self {
        let smtp = SmtpSink::start().expect("SMTP server starts");
        let url = smtp.url();
        // All tests share one client address.
        let defaults = [
            ("IPSEITY__PORTAL__SIGNUP", "open"),
            ("IPSEITY__PORTAL__LOGIN_ATTEMPTS_PER_SUBNET_MAX", "1000000"),
            ("IPSEITY__PORTAL__UNKNOWN_LOOKUPS_PER_SUBNET_MAX", "1000000"),
            ("IPSEITY__PORTAL__SELF_LOOKUPS_PER_SUBNET_PER_MIN_MAX", "1000000"),
            ("IPSEITY__MAIL__EMAILS_PER_SUBNET_PER_10_MIN_MAX", "1000000"),
            ("IPSEITY__MAIL__EMAILS_PER_NODE_PER_HOUR_MAX", "1000000"),
            ("IPSEITY__MAIL__SMTP_URL", &url),
        ];
        let mut env: Env = relaxed_timeouts();
        env.extend(defaults.iter().chain(settings).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let deployment = Deployment::start(DeploymentOptions { env, ..options }).await.expect("deployment starts");
        Self { deployment, smtp, password_hash: OnceCell::new() }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.deployment.nodes[0]
    }

    /// A browser without cookies.
    pub(crate) fn browser(&self) -> Browser {
        Browser::open(self.node())
    }

    pub(crate) async fn psql(&self, sql: &str) -> String {
        self.deployment.postgres.psql("ipseity", sql).await.expect("query succeeds")
    }

    /// Signs up a member through the confirmation email.
    pub(crate) async fn sign_up(&self) -> TestMember {
        let email = fresh_email();
        let mut browser = self.browser();
        let response = browser.post("/signup", &[("email", &email), ("password", PASSWORD)]).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let link = self.emailed_link_path(&email, "Confirm").await;
        assert_redirects_to(&browser.post(&link, &[]).await, "/keys");
        let id = self.account_id(&email).await.expect("account exists");
        TestMember { browser, email, id }
    }

    /// The hash of `PASSWORD`, from the first member who signs up.
    pub(crate) async fn password_hash(&self) -> &str {
        let sign_up = async || {
            let founder = self.sign_up().await;
            self.psql(&format!("select password_hash from accounts where id = {}", founder.id)).await
        };
        self.password_hash.get_or_init(sign_up).await
    }

    /// Creates a member with an account and a session directly in PostgreSQL.
    pub(crate) async fn create_member(&self) -> TestMember {
        self.create_member_with_email(fresh_email()).await
    }

    pub(crate) async fn create_member_with_email(&self, email: String) -> TestMember {
        let cookie = fresh_secret();
        let (hash, digest) = (self.password_hash().await, digest_sql(&cookie));
        let sql = format!(
            "with account as (insert into accounts (email, password_hash) values ('{email}', '{hash}') returning id)
             insert into sessions (digest, account_id, label) select {digest}, id, 'planted' from account returning account_id"
        );
        let id = self.psql(&sql).await.parse().expect("account ID is a number");
        let mut browser = self.browser();
        browser.set_cookie(SESSION_COOKIE, &cookie);
        TestMember { browser, email, id }
    }

    /// Creates a password reset link, as if it had been emailed. Returns its path.
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

    /// The path of the link in the next email to this address whose subject contains `subject_part`.
    pub(crate) async fn emailed_link_path(&self, email: &str, subject_part: &str) -> String {
        let message = self.smtp.wait_for_email(email, subject_part).await.expect("email arrives");
        assert!(message.subject.contains("Ipseity"), "{}", message.subject);
        let links = message.links();
        let found = links.iter().find_map(|link| link.split_once("/link/"));
        let (_, token) = found.expect("email contains a link with a token");
        format!("/link/{token}")
    }

    pub(crate) async fn account_id(&self, email: &str) -> Option<i64> {
        self.psql(&format!("select id from accounts where email = '{email}'")).await.parse().ok()
    }

    /// All rows of an account and of this browser's session, as text. Equal snapshots mean that nothing changed.
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
            format!("select 'identity', t::text from identities t where account_id = {id}"),
            format!("select 'ceremony', t::text from ceremonies t where digest = {visit_digest}"),
            format!("select 'code', t::text from recovery_codes t where account_id = {id}"),
            format!(
                "select 'sign-in', t::text from pending_sign_ins t where account_id = {id} or digest = {visit_digest}"
            ),
            format!("select 'event', t::text from security_events t where account_id = {id}"),
            format!("select 'channel', t::text from alert_channels t where account_id = {id}"),
            format!(
                "select 'personal-token', concat(id, name, scopes, expires_at) from personal_tokens where account_id = {id}"
            ),
            format!("select 'delivery', t::text from notices t where account_id = {id} and channel_id > 0"),
            format!("select 'ticket', t::text from tickets t where account_id = {id} or lower(email) = '{email}'"),
        ];
        self.psql(&format!("{} order by 1, 2", parts.join(" union all "))).await
    }
}

impl TestMember {
    /// Creates a key through the form.
    pub(crate) async fn create_key(&mut self, name: &str, scope: Scope) -> IssuedKey {
        let page = self.browser.post("/keys", &[("name", name), ("scope", scope.name())]).await;
        key_shown_on(&page)
            .unwrap_or_else(|| panic!("expected a page with a key, got {}: {}", page.status, page.text()))
    }
}

/// The key that a page shows once.
pub(crate) fn key_shown_on(page: &TestResponse) -> Option<IssuedKey> {
    let text = page.text();
    let shown = text.match_indices("ips_").map(|(at, _)| text[at..].chars().take(KEY_LENGTH).collect::<String>());
    let is_key = |text: &String| text.len() == KEY_LENGTH && text[4..].chars().all(|c| c.is_ascii_alphanumeric());
    let key = shown.into_iter().find(is_key)?;
    Some(IssuedKey { id: key[4..14].to_owned(), key })
}

/// Asserts that a response redirects to a page, with any notice.
#[track_caller]
pub(crate) fn assert_redirects_to(reply: &TestResponse, path: &str) {
    let location = reply.header("location").map(|location| location.split('?').next().unwrap_or_default());
    assert_eq!((reply.status, location), (303, Some(path)), "{}", reply.text());
}

/// An email that no other test uses.
pub(crate) fn fresh_email() -> String {
    format!("{:016x}@example.com", fastrand::u64(..))
}

/// An email that no other test uses, and other spellings of it. PostgreSQL's `lower()` maps their letters to `i` and `k`
/// with a UTF-8 locale.
pub(crate) fn fresh_email_with_look_alikes() -> (String, [String; 2]) {
    let email = format!("{:016x}@divine-kiosk.example", fastrand::u64(..));
    let look_alikes = [email.replacen('i', "\u{130}", 1), email.replace('k', "\u{212a}")];
    (email, look_alikes)
}

/// A random secret in the format of cookies and links.
pub(crate) fn fresh_secret() -> String {
    format!("{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..))
}

/// The digest of a secret, as SQL.
pub(crate) fn digest_sql(secret: &str) -> String {
    format!("sha256('{secret}')")
}
