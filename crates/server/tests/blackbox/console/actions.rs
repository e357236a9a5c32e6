//! Each action of an operator has its effect on the API, and an event in the audit log.

use ipseity_domain::Scope;
use ipseity_store::OperatorRole;
use ipseity_testkit::{IssuedKey, TestResponse};
use serde_json::Value;

use super::fixture::{ConsoleFixture, TestOperator, shared_fixture};
use crate::fixture::{fresh_key, lookup_status};
use crate::limits::rate_limit_headers;
use crate::portal::fixture::{PASSWORD, TestMember, assert_redirects_to, fresh_email};
use crate::restrictions::lookup_from;

/// A member with a key, and an admin.
struct Case {
    fixture: &'static ConsoleFixture,
    member: TestMember,
    key: IssuedKey,
    admin: TestOperator,
}

impl Case {
    async fn create() -> Self {
        let fixture = shared_fixture().await;
        let (member, admin) = tokio::join!(fixture.portal.create_member(), fixture.sign_in(OperatorRole::Admin));
        let key = fixture.portal.deployment.issue_key(&member.email, Scope::Full).await.expect("key is issued");
        Self { fixture, member, key, admin }
    }

    /// Submits a form of the key and asserts that it redirects to its page.
    async fn change_key(&mut self, form: &str, fields: &[(&str, &str)]) {
        let page = format!("/keys/{}", self.key.id);
        assert_redirects_to(&self.admin.browser.post(&format!("{page}/{form}"), fields).await, &page);
    }

    /// The same for its account.
    async fn change_account(&mut self, form: &str, fields: &[(&str, &str)]) {
        let page = format!("/accounts/{}", self.member.id);
        assert_redirects_to(&self.admin.browser.post(&format!("{page}/{form}"), fields).await, &page);
    }

    async fn lookup(&self) -> TestResponse {
        let headers = [("authorization", self.key.bearer())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.fixture.node().client().get("/api/v1/ip", &headers).await.expect("response arrives")
    }

    async fn lookup_status(&self) -> u16 {
        lookup_status(self.fixture.node(), &self.key.key).await
    }

    /// The daily limit of the next response.
    async fn daily_limit(&self) -> u64 {
        let reply = self.lookup().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        rate_limit_headers(&reply).limit
    }

    /// The actions of the admin, oldest first. Each is about the account, unless the account is gone.
    async fn actions(&self) -> Vec<String> {
        let id = self.member.id.to_string();
        let events = self.fixture.audit_events(&["--account", &id, "--limit", "1000"]).await;
        let own = events.iter().rev().filter(|event| event["operator"] == self.admin.name.as_str());
        own.map(|event| event["action"].as_str().expect("text").to_owned()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_deactivated_reactivated_and_resumed() {
    let mut case = Case::create().await;
    assert_eq!(case.lookup_status().await, 200);
    case.change_key("deactivate", &[]).await;
    assert_eq!(case.lookup_status().await, 403);
    let page = case.admin.browser.get(&format!("/keys/{}?done=deactivated", case.key.id)).await.text();
    assert!(page.contains("Key deactivated.") && page.contains("/reactivate\""), "{page}");
    case.change_key("reactivate", &[]).await;
    assert_eq!(case.lookup_status().await, 200);

    case.change_key("limits", &[("burst_limit", "3")]).await;
    let statuses = [case.lookup_status().await, case.lookup_status().await, case.lookup_status().await];
    assert_eq!(statuses.last(), Some(&403), "the key is paused: {statuses:?}");
    let page = case.admin.browser.get(&format!("/keys/{}", case.key.id)).await.text();
    assert!(page.contains("Paused on") && page.contains("limit 3"), "{page}");
    case.change_key("resume", &[]).await;
    assert_eq!(case.lookup_status().await, 200, "the next request");
    let expected = ["deactivated", "reactivated", "limits_changed", "resumed"];
    assert_eq!(case.actions().await, expected);
    let page = case.admin.browser.get(&format!("/keys/{}", case.key.id)).await.text();
    assert!(page.contains("Resumed"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_and_limits_apply_from_the_next_request() {
    let mut case = Case::create().await;
    assert_eq!(case.daily_limit().await, 10_000);
    let plan = format!("plan-{}", case.member.id);
    let sql = format!("insert into plans (name, daily_limit) values ('{plan}', 123)");
    case.fixture.psql(&sql).await;
    case.change_account("plan", &[("plan", &plan)]).await;
    assert_eq!(case.daily_limit().await, 123);
    case.change_account("limits", &[("daily_limit", "456"), ("burst_limit", "78"), ("keys_max", "1")]).await;
    assert_eq!(case.daily_limit().await, 456);
    let reply = case.lookup().await;
    let policy = reply.header("ratelimit-policy").expect("header");
    assert!(policy.contains("\"burst\";q=78"), "{policy}");
    case.change_key("limits", &[("daily_limit", "789")]).await;
    assert_eq!(case.daily_limit().await, 789);
    case.change_key("limits", &[("daily_limit", " ")]).await;
    case.change_account("limits", &[]).await;
    assert_eq!(case.daily_limit().await, 123);
    for invalid in ["0", "-1", "1.5", "100000000", "99999999999999999999", "many"] {
        for form in [format!("/keys/{}/limits", case.key.id), format!("/accounts/{}/limits", case.member.id)] {
            let reply = case.admin.browser.post(&form, &[("daily_limit", invalid)]).await;
            assert!(reply.status == 422 && reply.text().contains("Enter numbers from 1 to 99999999"), "{invalid}");
        }
    }
    let unknown = case.admin.browser.post(&format!("/accounts/{}/plan", case.member.id), &[("plan", "none")]).await;
    assert_eq!(unknown.status, 422, "{}", unknown.text());
    assert_eq!(case.daily_limit().await, 123);
    let expected = ["plan_changed", "limits_changed", "limits_changed", "limits_changed", "limits_changed"];
    assert_eq!(case.actions().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn restrictions_apply_from_the_next_request() {
    let mut case = Case::create().await;
    case.change_key("restrict", &[("origins", "https://shop.example"), ("version", "0")]).await;
    for (origin, status) in [("https://shop.example", 200), ("https://evil.example", 403)] {
        assert_eq!(lookup_from(case.fixture.node(), &case.key, origin).await.status, status, "{origin}");
    }
    let path = format!("/keys/{}/restrict", case.key.id);
    for (fields, message) in [
        ([("origins", "https://other.example"), ("version", "0")], "Somebody changed the restrictions meanwhile."),
        ([("origins", "no origin"), ("version", "1")], "Correct the marked fields."),
    ] {
        let page = case.admin.browser.post(&path, &fields).await;
        assert!(page.status == 200 && page.text().contains(message), "{}", page.text());
        assert!(page.text().contains(fields[0].1), "what was entered stays");
    }
    assert_eq!(lookup_from(case.fixture.node(), &case.key, "https://shop.example").await.status, 200);
    case.change_key("restrict", &[]).await;
    assert_eq!(case.lookup_status().await, 200);
    assert_eq!(case.actions().await, ["restricted", "restricted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_secret_is_revoked() {
    let mut case = Case::create().await;
    let output = case.fixture.cli(&["key", "rotate", &case.key.id, "--json"]).await.ensure_success();
    let rotated: Value = output.and_then(|output| output.json()).expect("key is rotated");
    assert_eq!(case.lookup_status().await, 200, "the old secret");
    case.change_key("revoke-previous", &[]).await;
    assert_eq!(case.lookup_status().await, 401);
    let new = rotated["key"].as_str().expect("text");
    assert_eq!(lookup_status(case.fixture.node(), new).await, 200);
    let page = case.admin.browser.get(&format!("/keys/{}", case.key.id)).await.text();
    assert!(!page.contains(&new[14..]) && !page.contains("/revoke-previous"), "{page}");
    assert_eq!(case.actions().await, ["previous_revoked"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_get_help_with_their_sign_in() {
    let mut case = Case::create().await;
    case.change_account("password-reset", &[]).await;
    let link = case.fixture.portal.emailed_link_path(&case.member.email, "Reset").await;
    let reset = case.fixture.portal.browser().post(&link, &[("password", PASSWORD)]).await;
    assert_redirects_to(&reset, "/keys");

    let codes = "insert into recovery_codes (account_id, digest) values";
    let id = case.member.id;
    case.fixture.psql(&format!("{codes} ({id}, sha256('a'))")).await;
    case.fixture.psql(&format!("update accounts set two_factor_since = now() where id = {id}")).await;
    assert!(case.admin.browser.get(&format!("/accounts/{id}")).await.text().contains("Two-factor authentication on"));
    case.change_account("two-factor-off", &[]).await;
    assert!(case.admin.browser.get(&format!("/accounts/{id}")).await.text().contains("Two-factor authentication off"));
    assert_eq!(case.fixture.psql(&format!("select count(*) from recovery_codes where account_id = {id}")).await, "0");
    case.fixture.portal.smtp.wait_for_email(&case.member.email, "wo-factor").await.expect("owner gets an email");
    assert_eq!(case.actions().await, ["password_reset_requested", "two_factor_disabled"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_invited_but_no_members() {
    let mut case = Case::create().await;
    let email = fresh_email();
    let page = case.admin.browser.post("/sign-ups/invite", &[("email", &email)]).await;
    assert_eq!(page.status, 200, "{}", page.text());
    let base_url = &case.fixture.node().env()["IPSEITY__PUBLIC__BASE_URL"];
    let text = page.text();
    let link = text.split_once(&format!("{base_url}/link/")).and_then(|(_, rest)| rest.get(..64));
    let link = format!("/link/{}", link.expect("page shows the link"));
    let joined = case.fixture.portal.browser().post(&link, &[("password", PASSWORD)]).await;
    assert_redirects_to(&joined, "/keys");
    assert!(case.fixture.portal.account_id(&email).await.is_some());
    let member = case.member.email.to_uppercase();
    for (email, message) in [
        (email.as_str(), "This person has an account."),
        (&member, "This person has an account."),
        ("x", "valid email"),
    ] {
        let reply = case.admin.browser.post("/sign-ups/invite", &[("email", email)]).await;
        assert!(reply.status == 422 && reply.text().contains(message), "{email}: {}", reply.text());
    }
    let events = case.fixture.audit_events(&["--limit", "1000"]).await;
    let own = events.iter().filter(|event| event["operator"] == case.admin.name.as_str());
    assert_eq!(own.filter(|event| event["action"] == "invited").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_request_raises_the_limit() {
    let mut case = Case::create().await;
    let fields = [("daily_limit", "20000"), ("message", "For <b>a shop</b>")];
    assert_redirects_to(&case.member.browser.post("/account/limits", &fields).await, "/account/limits");
    let open = format!("select id from limit_requests where account_id = {} and state = 'open'", case.member.id);
    let id = case.fixture.psql(&open).await;
    let page = case.admin.browser.get("/requests").await.text();
    assert!(page.contains(&format!("request-{id}")) && page.contains("For &#60;b&#62;a shop"), "{page}");
    let form = format!("/requests/{id}/decide");
    assert_eq!(case.admin.browser.post(&form, &[("decision", "maybe")]).await.status, 422);
    let answer = [("decision", "granted"), ("answer", "Have fun.")];
    assert_redirects_to(&case.admin.browser.post(&form, &answer).await, "/requests");
    assert_eq!(case.daily_limit().await, 20_000);
    assert!(case.member.browser.get("/account/limits").await.text().contains("Have fun."));
    let second = case.admin.browser.post(&form, &[("decision", "declined")]).await;
    assert!(second.status == 422 && second.text().contains("Another operator has answered"), "{}", second.text());

    // A request that is older than a higher limit does not lower it.
    let fields = [("daily_limit", "30000"), ("message", "More")];
    assert_redirects_to(&case.member.browser.post("/account/limits", &fields).await, "/account/limits");
    case.change_account("limits", &[("daily_limit", "500000"), ("burst_limit", "99")]).await;
    let id = case.fixture.psql(&open).await;
    let granted = case.admin.browser.post(&format!("/requests/{id}/decide"), &[("decision", "granted")]).await;
    assert_redirects_to(&granted, "/requests");
    assert_eq!(case.daily_limit().await, 500_000);

    let fields = [("daily_limit", "600000"), ("message", "Even more")];
    assert_redirects_to(&case.member.browser.post("/account/limits", &fields).await, "/account/limits");
    let id = case.fixture.psql(&open).await;
    let declined = case.admin.browser.post(&format!("/requests/{id}/decide"), &[("decision", "declined")]).await;
    assert_redirects_to(&declined, "/requests");
    assert_eq!(case.daily_limit().await, 500_000);
    let expected = [
        "limit_request_granted",
        "limits_changed",
        "limits_changed",
        "limit_request_granted",
        "limit_request_declined",
    ];
    assert_eq!(case.actions().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_email_is_sent_again() {
    let mut case = Case::create().await;
    let email = &case.member.email;
    let sql = format!(
        "insert into tickets (kind, email, expires_at, tries, try_at)
         values ('reset', '{email}', now() + interval '1 hour', 8, now() + interval '1 hour') returning id"
    );
    let id = case.fixture.psql(&sql).await;
    let page = case.admin.browser.get("/emails").await.text();
    assert!(page.contains(email.as_str()) && page.contains(">failed</span>"), "{page}");
    for (queue, id) in [("links", "999999999"), ("links", "x"), ("notices", "999999999")] {
        let reply = case.admin.browser.post("/emails/retry", &[("queue", queue), ("id", id)]).await;
        assert_eq!(reply.status, 422, "{queue} {id}: {}", reply.text());
    }
    assert_eq!(case.admin.browser.post("/emails/retry", &[("queue", "x"), ("id", &id)]).await.status, 404);
    let retry = [("queue", "links"), ("id", id.as_str())];
    assert_redirects_to(&case.admin.browser.post("/emails/retry", &retry).await, "/emails");
    case.fixture.portal.smtp.wait_for_email(email, "Reset").await.expect("email arrives");
    let second = case.admin.browser.post("/emails/retry", &retry).await;
    assert!(second.status == 422 && second.text().contains("was sent meanwhile"), "{}", second.text());
    assert_eq!(case.actions().await, ["email_retried"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_account_leaves_its_events() {
    let mut case = Case::create().await;
    case.change_key("deactivate", &[]).await;
    case.change_key("reactivate", &[]).await;
    let form = format!("/accounts/{}/delete", case.member.id);
    let page = case.admin.browser.get(&form).await.text();
    assert!(page.contains(&case.member.email) && page.contains("its 1 key "), "{page}");
    for wrong in ["", "other@example.com"] {
        let reply = case.admin.browser.post(&form, &[("email", wrong)]).await;
        assert!(reply.status == 422 && reply.text().contains("isn’t the email address"), "{}", reply.text());
    }
    assert_eq!(case.lookup_status().await, 200);
    let confirmation = case.member.email.to_uppercase();
    assert_redirects_to(&case.admin.browser.post(&form, &[("email", &confirmation)]).await, "/search");
    assert_eq!(case.lookup_status().await, 401);
    assert_redirects_to(&case.member.browser.get("/keys").await, "/signin");
    for page in [format!("/accounts/{}", case.member.id), format!("/keys/{}", case.key.id)] {
        assert_eq!(case.admin.browser.get(&page).await.status, 404);
    }
    let mut actions = case.actions().await;
    // The account and its keys are deleted at the same time.
    actions[2..].sort();
    assert_eq!(actions, ["deactivated", "reactivated", "account_deleted", "deleted"]);
    let page = case.admin.browser.get(&format!("/audit?account={}", case.member.id)).await.text();
    assert!(page.contains(&format!("account {}, deleted", case.member.id)) && page.contains(&case.admin.name));
    assert!(!page.contains(&case.member.email), "the address is gone with the account");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_without_admin_role_helps_owners() {
    let fixture = shared_fixture().await;
    let key = fresh_key(&fixture.portal.deployment, Scope::Ip).await;
    let mut support = fixture.sign_in(OperatorRole::Support).await;
    let page = format!("/keys/{}", key.id);
    assert_redirects_to(&support.browser.post(&format!("{page}/deactivate"), &[]).await, &page);
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 403);
    let text = support.browser.get(&page).await.text();
    assert!(text.contains("/reactivate\"") && !text.contains("/limits\""), "{text}");
    let events = fixture.audit_events(&["--key", &key.id]).await;
    assert_eq!((&events[0]["action"], &events[0]["operator"]), (&"deactivated".into(), &support.name.into()));
}
