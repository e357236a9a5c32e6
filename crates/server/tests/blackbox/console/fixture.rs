//! The deployment that the tests of the console share, its operators, and what they work on.

use ipseity_store::OperatorRole;
use ipseity_testkit::deployment::node::CONSOLE_ENTRY;
use ipseity_testkit::{CommandOutput, Node};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::portal::browser::{Browser, CONSOLE_COOKIE};
use crate::portal::fixture::{PortalFixture, digest_sql, fresh_email, fresh_secret};

/// A deployment whose first node serves the console.
pub(crate) struct ConsoleFixture {
    pub(crate) portal: PortalFixture,
}

static FIXTURE: OnceCell<ConsoleFixture> = OnceCell::const_new();

/// The shared fixture; it ends with the process.
pub(crate) async fn shared_fixture() -> &'static ConsoleFixture {
    FIXTURE.get_or_init(async || ConsoleFixture::open(&[]).await).await
}

/// A signed-in operator.
pub(crate) struct TestOperator {
    pub(crate) browser: Browser,
    pub(crate) id: String,
    pub(crate) name: String,
    /// The number of a passkey that is not the only one.
    pub(crate) passkey: String,
}

/// One of each that an operator works on.
pub(crate) struct ConsoleTarget {
    pub(crate) account: String,
    pub(crate) email: String,
    pub(crate) key: String,
    /// An open request for a higher limit.
    pub(crate) request: String,
    /// An email that failed.
    pub(crate) failed_email: String,
    /// Another operator, with a link.
    pub(crate) operator: String,
    pub(crate) operator_name: String,
    pub(crate) link_token: String,
}

impl ConsoleFixture {
    /// A separate fixture with additional settings.
    pub(crate) async fn open(settings: &[(&str, &str)]) -> Self {
        // All tests share one node.
        let defaults = [
            (CONSOLE_ENTRY, ""),
            ("IPSEITY__ADMIN__SIGN_IN_ATTEMPTS_PER_10_MIN_MAX", "1000000"),
            ("IPSEITY__ADMIN__ACTIONS_PER_OPERATOR_PER_10_MIN_MAX", "1000000"),
        ];
        Self { portal: PortalFixture::open(&[&defaults, settings].concat()).await }
    }

    pub(crate) fn node(&self) -> &Node {
        self.portal.node()
    }

    /// A browser without cookies.
    pub(crate) fn browser(&self) -> Browser {
        Browser::open_console(self.node())
    }

    pub(crate) async fn psql(&self, sql: &str) -> String {
        self.portal.psql(sql).await
    }

    /// Creates an operator with a session directly in PostgreSQL.
    pub(crate) async fn sign_in(&self, role: OperatorRole) -> TestOperator {
        let (cookie, name) = (fresh_secret(), fresh_name(role.name()));
        let sql = format!(
            "with operator as (insert into operators (name, role) values ('{name}', '{role}') returning id),
             session as (
                 insert into operator_sessions (operator_id, digest, label) select id, {digest}, 'planted' from operator
             )
             insert into operator_passkeys (operator_id, credential_id, name, passkey)
             select id, uuid_send(gen_random_uuid()), 'planted', '{{}}' from operator, generate_series(1, 2)
             returning operator_id, id",
            role = role.name(),
            digest = digest_sql(&cookie)
        );
        let rows = self.psql(&sql).await;
        let (id, passkey) = rows.lines().next().and_then(|row| row.split_once('|')).expect("query returns two numbers");
        let (id, passkey) = (id.to_owned(), passkey.to_owned());
        let mut browser = self.browser();
        browser.set_cookie(CONSOLE_COOKIE, &cookie);
        TestOperator { browser, id, name, passkey }
    }

    /// Creates one of each that an operator works on, directly in PostgreSQL.
    pub(crate) async fn create_target(&self) -> ConsoleTarget {
        let (email, key, operator_name) = (fresh_email(), fresh_secret()[..10].to_owned(), fresh_name("target"));
        let link_token = fresh_secret();
        let digest = digest_sql(&link_token);
        let sql = format!(
            "with account as (insert into accounts (email) values ('{email}') returning id),
             key as (
                 insert into keys (id, account_id, seat, name, scope, digest)
                 select '{key}', id, 1, 'a key', 'full', {digest} from account
             ), request as (
                 insert into limit_requests (account_id, daily_limit, message) select id, 20000, 'A shop' from account
                 returning id
             ), failed as (
                 insert into tickets (kind, email, expires_at, tries)
                 values ('reset', '{email}', now() + interval '1 hour', 8) returning id
             ), operator as (
                 insert into operators (name, role) values ('{operator_name}', 'viewer') returning id
             ), link as (
                 insert into operator_links (digest, operator_id, expires_at)
                 select {digest}, id, now() + interval '1 hour' from operator
             )
             select account.id, request.id, failed.id, operator.id from account, request, failed, operator"
        );
        let row = self.psql(&sql).await;
        let numbers: Vec<_> = row.split('|').map(str::to_owned).collect();
        let [account, request, failed_email, operator] = numbers.try_into().expect("query returns four numbers");
        ConsoleTarget { account, email, key, request, failed_email, operator, operator_name, link_token }
    }

    /// All rows of a target and of operators with their events, as text. Equal snapshots mean that nothing changed.
    pub(crate) async fn snapshot(&self, target: &ConsoleTarget, operators: &[&TestOperator]) -> String {
        let ids = operators.iter().map(|operator| &operator.id).chain([&target.operator]).cloned();
        let ids = ids.collect::<Vec<_>>().join(", ");
        let names = operators.iter().map(|operator| &operator.name).chain([&target.operator_name]);
        let names = names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        let ConsoleTarget { account, email, key, .. } = target;
        let parts = [
            format!("select 'account', t::text from accounts t where id = {account}"),
            format!("select 'key', t::text from keys t where account_id = {account}"),
            format!("select 'request', t::text from limit_requests t where account_id = {account}"),
            format!("select 'email', t::text from tickets t where email = '{email}'"),
            format!("select 'operator', t::text from operators t where id in ({ids})"),
            format!("select 'passkey', t::text from operator_passkeys t where operator_id in ({ids})"),
            format!("select 'link', t::text from operator_links t where operator_id in ({ids})"),
            format!("select 'session', t::text from operator_sessions t where operator_id in ({ids})"),
            format!(
                "select 'event', t::text from audit_events t where account_id = {account} or key_id = '{key}'
                     or operator in ({names}) or subject in ({names})"
            ),
        ];
        self.psql(&format!("{} order by 1, 2", parts.join(" union all "))).await
    }

    /// Runs `ipseity` with the settings of the node, which determine the address of the console.
    pub(crate) async fn cli(&self, arguments: &[&str]) -> CommandOutput {
        let listen = self.node().console().to_string();
        let settings = [("IPSEITY__ADMIN__LISTEN", listen.as_str()), ("IPSEITY_OPERATOR", "root@shell")];
        self.portal.deployment.cli_with_env(&settings, arguments).await.expect("command runs")
    }

    /// The events of the audit log that the arguments select, newest first.
    pub(crate) async fn audit_events(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.cli(&[&["audit", "--json"], arguments].concat()).await.ensure_success();
        let text = output.expect("command succeeds").text();
        text.lines().map(|line| serde_json::from_str(line).expect("valid JSON")).collect()
    }
}

/// A name that no other operator has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    format!("{prefix}-{:016x}", fastrand::u64(..))
}
