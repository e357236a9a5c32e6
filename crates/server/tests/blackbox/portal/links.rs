//! Links from mails and invitations: each works once, for a while, and does nothing by being opened.

use http::Method;
use testkit::CliOutput;

use super::browser::Browser;
use super::stage::{NEW_PASSWORD, PASSWORD, Stage, arrives, fresh_email, stage};

const NO_LINK: [&str; 3] =
    ["/link/x", "/link/0000000000000000000000000000000000000000000000000000000000000000", "/link/%00"];

/// A link of one kind, to whom it was sent, the browser that asked for it, and what its form sends.
struct Sent {
    kind: &'static str,
    path: String,
    /// The address that the account has once it was followed.
    email: String,
    /// The address that the account has before, or will have.
    account: String,
    asker: Browser,
    fields: Vec<(&'static str, &'static str)>,
    /// Where it leads.
    to: &'static str,
}

async fn confirm(stage: &Stage) -> Sent {
    let email = fresh_email();
    let mut asker = stage.browser();
    let asked = asker.post("/signup", &[("email", &email), ("password", PASSWORD)]).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    let path = stage.mailed_link(&email, "Confirm").await;
    Sent { kind: "signup", path, account: email.clone(), email, asker, fields: vec![], to: "/keys" }
}

async fn reset(stage: &Stage) -> Sent {
    let email = stage.plant_member().await.email;
    let mut asker = stage.browser();
    assert_eq!(asker.post("/forgot", &[("email", &email)]).await.status, 200);
    let path = stage.mailed_link(&email, "password").await;
    Sent {
        kind: "reset",
        path,
        account: email.clone(),
        email,
        asker,
        fields: vec![("password", NEW_PASSWORD)],
        to: "/keys",
    }
}

async fn invite(stage: &Stage) -> Sent {
    let email = fresh_email();
    let invited = stage.house.cli(&["account", "invite", "--email", &email]).await.and_then(CliOutput::success);
    let link = invited.expect("an invitation").text();
    let (_, token) = link.trim().split_once("/link/").expect("a link");
    let (path, fields) = (format!("/link/{token}"), vec![("password", PASSWORD)]);
    Sent { kind: "invite", path, account: email.clone(), email, asker: stage.browser(), fields, to: "/keys" }
}

async fn new_address(stage: &Stage) -> Sent {
    let (email, mut member) = (fresh_email(), stage.plant_member().await);
    let wish = [("email", email.as_str()), ("password", PASSWORD)];
    assert_eq!(member.browser.post("/account/email", &wish).await.status, 200);
    let path = stage.mailed_link(&email, "Confirm").await;
    Sent { kind: "email", path, account: member.email, email, asker: member.browser, fields: vec![], to: "/account" }
}

async fn one_of_each(stage: &Stage) -> [Sent; 4] {
    [confirm(stage).await, reset(stage).await, invite(stage).await, new_address(stage).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn opening_a_link_changes_nothing_and_its_button_works_once() {
    let stage = stage().await;
    for Sent { kind, path, account, email, mut asker, fields, to } in one_of_each(stage).await {
        let before = stage.snapshot(&account, &asker).await;
        for method in [Method::GET, Method::HEAD, Method::GET] {
            assert_eq!(asker.send(method, &path).await.status, 200, "{kind}");
        }
        assert_eq!(stage.snapshot(&account, &asker).await, before, "{kind}: opening it changed something");

        arrives(&asker.post(&path, &fields).await, to);
        assert!(stage.account_id(&email).await.is_some(), "{kind}");
        let after = stage.snapshot(&email, &asker).await;
        for mut browser in [asker.on(stage.node()), stage.browser()] {
            assert_eq!(browser.get(&path).await.status, 410, "{kind}: opened a second time");
            assert_eq!(browser.post(&path, &fields).await.status, 410, "{kind}: used a second time");
        }
        assert_eq!(stage.snapshot(&email, &asker).await, after, "{kind}: a second use changed something");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_link_is_gone() {
    let stage = stage().await;
    for mut sent in one_of_each(stage).await {
        let expire =
            format!("update tickets set expires_at = now() - interval '1 second' where email = '{}'", sent.email);
        stage.psql(&expire).await;
        let before = stage.snapshot(&sent.account, &sent.asker).await;
        assert_eq!(sent.asker.get(&sent.path).await.status, 410, "{}", sent.kind);
        assert_eq!(sent.asker.post(&sent.path, &sent.fields).await.status, 410, "{}", sent.kind);
        assert_eq!(stage.snapshot(&sent.account, &sent.asker).await, before, "{}", sent.kind);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_nobody_sent_is_gone_too() {
    let stage = stage().await;
    let mut browser = stage.browser();
    for path in NO_LINK {
        assert_eq!(browser.get(path).await.status, 410, "{path}");
        assert_eq!(browser.post(path, &[("password", PASSWORD)]).await.status, 410, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_another_browser_a_sign_up_is_confirmed_with_its_password_alone() {
    let stage = stage().await;
    let Sent { path, email, mut asker, .. } = confirm(stage).await;
    let asks = |page: &str| page.contains("name=\"password\"");
    assert!(!asks(&asker.get(&path).await.text()), "the browser that signed up is known");
    let mut another = stage.browser();
    assert!(asks(&another.get(&path).await.text()));
    let before = stage.snapshot(&email, &another).await;
    for wrong in ["", "not the password", "correct horse batterx"] {
        let reply = another.post(&path, &[("password", wrong)]).await;
        assert!(reply.status == 200 && asks(&reply.text()), "{wrong:?}");
        assert_eq!(another.post(&path, &[]).await.status, 200);
        assert_eq!(stage.snapshot(&email, &another).await, before, "{wrong:?}");
    }
    assert_eq!(stage.account_id(&email).await, None);
    arrives(&another.post(&path, &[("password", PASSWORD)]).await, "/keys");
    assert!(stage.account_id(&email).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_password_leaves_the_link_as_it_was() {
    let stage = stage().await;
    for mut sent in [reset(stage).await, invite(stage).await] {
        let before = stage.snapshot(&sent.account, &sent.asker).await;
        assert_eq!(sent.asker.post(&sent.path, &[("password", "too short")]).await.status, 200, "{}", sent.kind);
        assert_eq!(stage.snapshot(&sent.account, &sent.asker).await, before, "{}", sent.kind);
        arrives(&sent.asker.post(&sent.path, &sent.fields).await, "/keys");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_sign_ups_with_one_address_the_first_confirmed_wins() {
    let stage = stage().await;
    let email = fresh_email();
    let (mut owner, mut stranger) = (stage.browser(), stage.browser());
    let mut paths = Vec::new();
    for (browser, password) in [(&mut stranger, NEW_PASSWORD), (&mut owner, PASSWORD)] {
        browser.post("/signup", &[("email", &email), ("password", password)]).await;
        paths.push(stage.mailed_link(&email, "Confirm").await);
    }
    arrives(&owner.post(&paths[1], &[]).await, "/keys");
    let before = stage.snapshot(&email, &owner).await;
    assert_eq!(stranger.post(&paths[0], &[]).await.status, 410);
    assert_eq!(stage.snapshot(&email, &owner).await.lines().filter(|line| line.starts_with("account")).count(), 1);
    let sessions = |text: &str| text.lines().filter(|line| line.starts_with("session")).count();
    assert_eq!(sessions(&stage.snapshot(&email, &owner).await), sessions(&before));
    let mut door = stage.browser();
    assert_eq!(door.post("/signin", &[("email", &email), ("password", NEW_PASSWORD)]).await.status, 200);
    arrives(&door.post("/signin", &[("email", &email), ("password", PASSWORD)]).await, "/keys");
}
