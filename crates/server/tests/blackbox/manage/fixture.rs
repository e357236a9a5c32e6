//! Programs with a personal token.

use http::Method;
use ipseity_domain::{PlaintextToken, TokenScope};
use ipseity_testkit::{Node, TestResponse};
use serde_json::Value;

use crate::portal::fixture::{PortalFixture, TestMember};

/// The length of a token.
const TOKEN_CHARS: usize = 52;

/// A program with a token.
pub(crate) struct Program<'a> {
    node: &'a Node,
    pub(crate) token: String,
}

impl<'a> Program<'a> {
    pub(crate) fn new(fixture: &'a PortalFixture, token: &str) -> Self {
        Self { node: fixture.node(), token: token.to_owned() }
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> TestResponse {
        let bearer = format!("Bearer {}", self.token);
        self.send_with(method, path, &[("authorization", &bearer)], body).await
    }

    /// Sends exactly these headers.
    pub(crate) async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> TestResponse {
        let path = format!("/api/v1/manage{path}");
        let mut client = self.node.client();
        let reply = if body.is_null() {
            client.send(method, &path, headers).await
        } else {
            client.send_json(method, &path, headers, body).await
        };
        reply.expect("response arrives")
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.expect(200, Method::GET, path, &Value::Null).await
    }

    /// Sends a request that must have this status.
    pub(crate) async fn expect(&self, status: u16, method: Method, path: &str, body: &Value) -> Value {
        let reply = self.send(method.clone(), path, body).await;
        assert_eq!(reply.status, status, "{method} {path}: {}", reply.text());
        reply.json().expect("valid JSON")
    }
}

/// Creates a token through the form.
pub(crate) async fn create_token(member: &mut TestMember, name: &str, scopes: &[TokenScope]) -> String {
    let mut fields = vec![("name", name), ("lifetime_days", "30")];
    fields.extend(scopes.iter().map(|scope| (scope.name(), "on")));
    let page = member.browser.post("/account/tokens", &fields).await;
    token_shown_on(&page).unwrap_or_else(|| panic!("expected a token, got {}: {}", page.status, page.text()))
}

/// The token that a page shows once.
pub(crate) fn token_shown_on(page: &TestResponse) -> Option<String> {
    let text = page.text();
    let shown = text.match_indices("ipm_").map(|(at, _)| text[at..].chars().take(TOKEN_CHARS).collect::<String>());
    let is_token =
        |text: &String| text.len() == TOKEN_CHARS && text[4..].chars().all(|char| char.is_ascii_alphanumeric());
    shown.into_iter().find(is_token)
}

/// Adds a token in PostgreSQL. `expires_at` is SQL.
pub(crate) async fn insert_token(
    fixture: &PortalFixture,
    account_id: i64,
    scopes: &[TokenScope],
    expires_at: &str,
) -> String {
    let plaintext = PlaintextToken::generate(|| fastrand::u8(..));
    let names: Vec<_> = scopes.iter().map(|scope| scope.name()).collect();
    let sql = format!(
        "insert into personal_tokens (id, account_id, name, digest, scopes, expires_at)
         values ('{}', {account_id}, 'inserted', sha256('{}'), '{{{}}}', {expires_at})",
        plaintext.to_personal_token().id,
        plaintext.expose(),
        names.join(",")
    );
    fixture.psql(&sql).await;
    plaintext.expose().to_owned()
}
