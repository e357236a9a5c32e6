//! Links in emails and invitations: each works once, for a limited time. Opening one changes nothing.

use http::Method;
use ipseity_testkit::CommandOutput;
use tokio::task::JoinSet;

use super::browser::Browser;
use super::fixture::{NEW_PASSWORD, PASSWORD, PortalFixture, assert_redirects_to, fresh_email, shared_fixture};

const UNKNOWN_LINKS: [&str; 3] =
    ["/link/x", "/link/0000000000000000000000000000000000000000000000000000000000000000", "/link/%00"];

/// A link, its recipient, the browser that requested it, and the fields of its form.
struct SentLink {
    kind: &'static str,
    path: String,
    /// The email of the account after the link is used.
    email: String,
    /// The email of the account before, or of the new account.
    account: String,
    browser: Browser,
    fields: Vec<(&'static str, &'static str)>,
    /// Where the form redirects to.
    redirects_to: &'static str,
}

async fn signup_link(fixture: &PortalFixture) -> SentLink {
    let email = fresh_email();
    let mut browser = fixture.browser();
    let response = browser.post("/signup", &[("email", &email), ("password", PASSWORD)]).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let path = fixture.emailed_link_path(&email, "Confirm").await;
    SentLink { kind: "signup", path, account: email.clone(), email, browser, fields: vec![], redirects_to: "/keys" }
}

async fn reset_link(fixture: &PortalFixture) -> SentLink {
    let email = fixture.create_member().await.email;
    let mut browser = fixture.browser();
    assert_eq!(browser.post("/forgot", &[("email", &email)]).await.status, 200);
    let path = fixture.emailed_link_path(&email, "password").await;
    SentLink {
        kind: "reset",
        path,
        account: email.clone(),
        email,
        browser,
        fields: vec![("password", NEW_PASSWORD)],
        redirects_to: "/keys",
    }
}

async fn invite_link(fixture: &PortalFixture) -> SentLink {
    let email = fresh_email();
    let invited =
        fixture.deployment.cli(&["account", "invite", "--email", &email]).await.and_then(CommandOutput::ensure_success);
    let link = invited.expect("CLI creates an invitation").text();
    let (_, token) = link.trim().split_once("/link/").expect("CLI prints a link");
    let (path, fields) = (format!("/link/{token}"), vec![("password", PASSWORD)]);
    SentLink {
        kind: "invite",
        path,
        account: email.clone(),
        email,
        browser: fixture.browser(),
        fields,
        redirects_to: "/keys",
    }
}

async fn email_change_link(fixture: &PortalFixture) -> SentLink {
    let (email, mut member) = (fresh_email(), fixture.create_member().await);
    let form = [("email", email.as_str()), ("password", PASSWORD)];
    assert_eq!(member.browser.post("/account/email", &form).await.status, 200);
    let path = fixture.emailed_link_path(&email, "Confirm").await;
    SentLink {
        kind: "email",
        path,
        account: member.email,
        email,
        browser: member.browser,
        fields: vec![],
        redirects_to: "/account",
    }
}

async fn restore_link(fixture: &PortalFixture) -> SentLink {
    let (changed_to, mut member) = (fresh_email(), fixture.create_member().await);
    let form = [("email", changed_to.as_str()), ("password", PASSWORD)];
    assert_eq!(member.browser.post("/account/email", &form).await.status, 200);
    let confirmation = fixture.emailed_link_path(&changed_to, "Confirm").await;
    assert_redirects_to(&member.browser.post(&confirmation, &[]).await, "/account");
    let path = fixture.emailed_link_path(&member.email, "The email of").await;
    SentLink {
        kind: "restore",
        path,
        account: changed_to,
        email: member.email,
        browser: fixture.browser(),
        fields: vec![("password", NEW_PASSWORD)],
        redirects_to: "/keys",
    }
}

async fn one_link_of_each_kind(fixture: &PortalFixture) -> [SentLink; 5] {
    [
        signup_link(fixture).await,
        reset_link(fixture).await,
        invite_link(fixture).await,
        email_change_link(fixture).await,
        restore_link(fixture).await,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_a_link_changes_nothing_and_it_works_once() {
    let fixture = shared_fixture().await;
    for SentLink { kind, path, account, email, mut browser, fields, redirects_to } in
        one_link_of_each_kind(fixture).await
    {
        let before = fixture.snapshot(&account, &browser).await;
        for method in [Method::GET, Method::HEAD, Method::GET] {
            assert_eq!(browser.send(method, &path).await.status, 200, "{kind}");
        }
        assert_eq!(fixture.snapshot(&account, &browser).await, before, "{kind}: opening it changed something");

        assert_redirects_to(&browser.post(&path, &fields).await, redirects_to);
        assert!(fixture.account_id(&email).await.is_some(), "{kind}");
        let after = fixture.snapshot(&email, &browser).await;
        for mut browser in [browser.on_node(fixture.node()), fixture.browser()] {
            assert_eq!(browser.get(&path).await.status, 410, "{kind}: opened a second time");
            assert_eq!(browser.post(&path, &fields).await.status, 410, "{kind}: used a second time");
        }
        assert_eq!(fixture.snapshot(&email, &browser).await, after, "{kind}: a second use changed something");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_uses_of_a_link_succeed_once() {
    let fixture = shared_fixture().await;
    let SentLink { path, fields, .. } = reset_link(fixture).await;
    let mut uses = JoinSet::new();
    for _ in 0..8 {
        let (mut browser, path, fields) = (fixture.browser(), path.clone(), fields.clone());
        uses.spawn(async move { browser.post(&path, &fields).await.status });
    }
    let mut statuses = uses.join_all().await;
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 410, 410, 410, 410, 410, 410, 410]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_link_returns_410() {
    let fixture = shared_fixture().await;
    for mut sent in one_link_of_each_kind(fixture).await {
        for table in ["tickets", "notices"] {
            let expire =
                format!("update {table} set expires_at = now() - interval '1 second' where email = '{}'", sent.email);
            fixture.psql(&expire).await;
        }
        let before = fixture.snapshot(&sent.account, &sent.browser).await;
        assert_eq!(sent.browser.get(&sent.path).await.status, 410, "{}", sent.kind);
        assert_eq!(sent.browser.post(&sent.path, &sent.fields).await.status, 410, "{}", sent.kind);
        assert_eq!(fixture.snapshot(&sent.account, &sent.browser).await, before, "{}", sent.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_link_returns_410() {
    let fixture = shared_fixture().await;
    let mut browser = fixture.browser();
    for path in UNKNOWN_LINKS {
        assert_eq!(browser.get(path).await.status, 410, "{path}");
        assert_eq!(browser.post(path, &[("password", PASSWORD)]).await.status, 410, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_up_confirmed_in_another_browser_needs_the_password() {
    let fixture = shared_fixture().await;
    let SentLink { path, email, mut browser, .. } = signup_link(fixture).await;
    let asks_for_password = |page: &str| page.contains("name=\"password\"");
    assert!(!asks_for_password(&browser.get(&path).await.text()), "the browser that signed up needs no password");
    let mut another = fixture.browser();
    assert!(asks_for_password(&another.get(&path).await.text()));
    let before = fixture.snapshot(&email, &another).await;
    for wrong in ["", "not the password", "correct horse batterx"] {
        let reply = another.post(&path, &[("password", wrong)]).await;
        assert!(reply.status == 200 && asks_for_password(&reply.text()), "{wrong:?}");
        assert_eq!(another.post(&path, &[]).await.status, 200);
        assert_eq!(fixture.snapshot(&email, &another).await, before, "{wrong:?}");
    }
    assert_eq!(fixture.account_id(&email).await, None);
    assert_redirects_to(&another.post(&path, &[("password", PASSWORD)]).await, "/keys");
    assert!(fixture.account_id(&email).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn short_password_does_not_use_up_the_link() {
    let fixture = shared_fixture().await;
    for mut sent in [reset_link(fixture).await, invite_link(fixture).await] {
        let before = fixture.snapshot(&sent.account, &sent.browser).await;
        assert_eq!(sent.browser.post(&sent.path, &[("password", "too short")]).await.status, 200, "{}", sent.kind);
        assert_eq!(fixture.snapshot(&sent.account, &sent.browser).await, before, "{}", sent.kind);
        assert_redirects_to(&sent.browser.post(&sent.path, &sent.fields).await, "/keys");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_confirmed_sign_up_of_an_address_wins() {
    let fixture = shared_fixture().await;
    let email = fresh_email();
    let (mut owner, mut stranger) = (fixture.browser(), fixture.browser());
    let mut paths = Vec::new();
    for (browser, password) in [(&mut stranger, NEW_PASSWORD), (&mut owner, PASSWORD)] {
        browser.post("/signup", &[("email", &email), ("password", password)]).await;
        paths.push(fixture.emailed_link_path(&email, "Confirm").await);
    }
    assert_redirects_to(&owner.post(&paths[1], &[]).await, "/keys");
    let before = fixture.snapshot(&email, &owner).await;
    assert_eq!(stranger.post(&paths[0], &[]).await.status, 410);
    assert_eq!(fixture.snapshot(&email, &owner).await.lines().filter(|line| line.starts_with("account")).count(), 1);
    let sessions = |text: &str| text.lines().filter(|line| line.starts_with("session")).count();
    assert_eq!(sessions(&fixture.snapshot(&email, &owner).await), sessions(&before));
    let mut third_browser = fixture.browser();
    assert_eq!(third_browser.post("/signin", &[("email", &email), ("password", NEW_PASSWORD)]).await.status, 200);
    assert_redirects_to(&third_browser.post("/signin", &[("email", &email), ("password", PASSWORD)]).await, "/keys");
}
