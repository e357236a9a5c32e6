//! Every operation with every kind of credential: a token does only what its scopes permit, and only for its account.

use http::Method;
use ipseity_domain::TokenScope;
use ipseity_portal::{MANAGE_ROUTES, ManageRoute};
use serde_json::{Value, json};

use super::fixture::{Program, insert_token};
use crate::portal::fixture::{PortalFixture, shared_fixture};
use crate::portal::routes::AccountFixture;

const NEVER: &str = "null";

/// The path of an operation below `/api/v1/manage`, on resources of this account.
fn path_of(route: &ManageRoute, owner: &AccountFixture) -> String {
    let path = route.path.trim_start_matches("/api/v1/manage");
    path.replace("{id}", if path.starts_with("/keys") { &owner.key } else { &owner.channel })
}

fn body_of(route: &ManageRoute) -> Value {
    match route.id {
        "createKey" => json!({ "name": "one more", "scope": "ip" }),
        "updateKey" => json!({ "name": "another name" }),
        "rotateKey" => json!({ "overlap_s": 0 }),
        "createChannel" => json!({ "kind": "slack", "url": "https://hooks.invalid/", "alerts": ["paused"] }),
        "updateChannel" => json!({ "alerts": ["resumed"] }),
        _ => Value::Null,
    }
}

fn method_of(route: &ManageRoute) -> Method {
    route.method.to_uppercase().parse().expect("valid method")
}

async fn account_id(fixture: &PortalFixture, owner: &AccountFixture) -> i64 {
    fixture.account_id(&owner.email).await.expect("account exists")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_valid_token_with_the_scope_and_of_the_account_is_accepted() {
    let fixture = shared_fixture().await;
    let (owner, browser) = AccountFixture::create(fixture).await;
    let (intruder, _) = AccountFixture::create(fixture).await;
    let (owner_id, intruder_id) = (account_id(fixture, &owner).await, account_id(fixture, &intruder).await);
    let expired = insert_token(fixture, owner_id, &TokenScope::ALL, "now()").await;
    let revoked = insert_token(fixture, owner_id, &TokenScope::ALL, NEVER).await;
    fixture.psql(&format!("delete from personal_tokens where id = '{}'", &revoked[4..14])).await;
    let foreign = insert_token(fixture, intruder_id, &TokenScope::ALL, NEVER).await;
    let mut other_secret = insert_token(fixture, owner_id, &TokenScope::ALL, NEVER).await;
    other_secret.replace_range(20..21, if &other_secret[20..21] == "x" { "y" } else { "x" });
    let key = crate::fixture::fresh_key(&fixture.deployment, ipseity_domain::Scope::Full).await;
    let before = fixture.snapshot(&owner.email, &browser).await;
    for route in MANAGE_ROUTES {
        let (path, body) = (path_of(route, &owner), body_of(route));
        let others: Vec<_> = TokenScope::ALL.into_iter().filter(|scope| *scope != route.scope).collect();
        let without_scope = insert_token(fixture, intruder_id, &others, NEVER).await;
        for (token, status, code) in [
            ("", 401, "missing_token"),
            ("ipm_x", 401, "invalid_token"),
            (&other_secret, 401, "invalid_token"),
            (&expired, 401, "invalid_token"),
            (&revoked, 401, "invalid_token"),
            (&key.key, 401, "invalid_token"),
            (&without_scope, 403, "insufficient_scope"),
        ] {
            let reply = Program::new(fixture, token).send(method_of(route), &path, &body).await;
            assert_eq!(reply.status, status, "{} with {code}: {}", route.id, reply.text());
            assert_eq!(reply.json().expect("valid JSON")["error"], code, "{}", route.id);
            assert_eq!(reply.header("www-authenticate").is_some(), status == 401, "{}", route.id);
            owner.assert_not_disclosed(&reply, route.id);
        }
        let foreign = Program::new(fixture, &foreign);
        if path.contains(&owner.key) || path.contains(&format!("/{}", owner.channel)) {
            let reply = foreign.send(method_of(route), &path, &body).await;
            assert_eq!(reply.status, 404, "{}: {}", route.id, reply.text());
            owner.assert_not_disclosed(&reply, route.id);
        } else {
            let reply = foreign.send(method_of(route), &path, &body).await;
            owner.assert_not_disclosed(&reply, route.id);
        }
        // Neither in the URL nor from a page.
        let with_query = format!("{path}?key={0}&token={0}", foreign.token);
        let reply = foreign.send_with(method_of(route), &with_query, &[], &body).await;
        assert_eq!(reply.status, 401, "{}: {}", route.id, reply.text());
        let bearer = format!("Bearer {}", foreign.token);
        for header in ["origin", "sec-fetch-site"] {
            let headers = [("authorization", bearer.as_str()), (header, "cross-site")];
            let reply = foreign.send_with(method_of(route), &path, &headers, &body).await;
            assert_eq!(reply.status, 403, "{}: {}", route.id, reply.text());
        }
        assert_eq!(fixture.snapshot(&owner.email, &browser).await, before, "{}", route.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scope_of_an_operation_is_enough_for_it() {
    let fixture = shared_fixture().await;
    for route in MANAGE_ROUTES {
        let (owner, _) = AccountFixture::create(fixture).await;
        let id = account_id(fixture, &owner).await;
        fixture.psql(&format!("update accounts set tokens_may_resume = true where id = {id}")).await;
        let token = insert_token(fixture, id, &[route.scope], "now() + interval '1 day'").await;
        let program = Program::new(fixture, &token);
        let reply = program.send(method_of(route), &path_of(route, &owner), &body_of(route)).await;
        let expected = if route.id.starts_with("create") { 201 } else { 200 };
        assert_eq!(reply.status, expected, "{}: {}", route.id, reply.text());
        assert_eq!(reply.json().expect("valid JSON")["status"], "success", "{}", route.id);
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{}", route.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_deleted_account_is_gone() {
    let fixture = shared_fixture().await;
    let (owner, _) = AccountFixture::create(fixture).await;
    let id = account_id(fixture, &owner).await;
    let program = Program::new(fixture, &insert_token(fixture, id, &TokenScope::ALL, NEVER).await);
    program.get("/keys").await;
    fixture.psql(&format!("delete from accounts where id = {id}")).await;
    program.expect(401, Method::GET, "/keys", &Value::Null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_works_only_with_two_factor_authentication_if_it_is_required() {
    let fixture = PortalFixture::open(&[("IPSEITY__PORTAL__REQUIRE_TWO_FACTOR", "true")]).await;
    let mut member = fixture.create_member().await;
    for (path, field) in [("/account/tokens", "keys:read"), ("/account/tokens/resume", "may_resume")] {
        let reply = member.browser.post(path, &[("name", "robot"), (field, "on")]).await;
        assert_eq!(reply.header("location"), Some("/account/two-factor"), "{path}");
    }
    let program = Program::new(&fixture, &insert_token(&fixture, member.id, &TokenScope::ALL, NEVER).await);
    let refused = program.expect(403, Method::GET, "/keys", &Value::Null).await;
    assert_eq!(refused["error"], "two_factor_required");
    fixture.psql(&format!("update accounts set two_factor_since = now() where id = {}", member.id)).await;
    program.get("/keys").await;
}
