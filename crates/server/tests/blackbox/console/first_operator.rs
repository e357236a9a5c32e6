//! The link in the log of a node makes exactly one first operator.

use std::time::Duration;

use ipseity_store::OperatorRole;
use ipseity_testkit::deployment::node::{CONSOLE_ENTRY, Env};
use ipseity_testkit::{Node, TestResponse, eventually};

use super::fixture::ConsoleFixture;
use crate::portal::authenticator::Authenticator;
use crate::portal::browser::Browser;
use crate::portal::fixture::assert_redirects_to;

/// The paths of the links in the log of a node.
fn links_in_log(node: &Node) -> Vec<String> {
    let (log, start) = (node.log().expect("log is readable"), format!("{}/join/", node.console_url()));
    let links = log.match_indices(&start).map(|(at, _)| &log[at + start.len()..]);
    links
        .map(|rest| format!("/join/{}", rest.chars().take_while(char::is_ascii_hexdigit).collect::<String>()))
        .collect()
}

async fn start_node(fixture: &ConsoleFixture) -> Node {
    let settings: Env = [(CONSOLE_ENTRY.to_owned(), String::new())].into();
    fixture.portal.deployment.start_node(&settings).await.expect("node starts")
}

/// A visitor of a link who is about to create a passkey.
struct Visitor {
    browser: Browser,
    finish: String,
    credential: String,
}

impl Visitor {
    async fn begin(node: &Node, link: &str, name: &str) -> Self {
        let (mut browser, mut authenticator) =
            (Browser::open_console(node), Authenticator::for_origin(&node.console_url()));
        let begin = format!("{link}/passkey");
        let begun = browser.post(&begin, &[("name", name)]).await;
        assert_eq!(begun.status, 200, "{}", begun.text());
        let credential = authenticator.create(&begun.json().expect("response is JSON")["publicKey"]).to_string();
        Self { browser, finish: format!("{begin}/finish"), credential }
    }

    async fn finish(&mut self) -> TestResponse {
        self.browser.post(&self.finish, &[("credential", &self.credential)]).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn link_in_the_log_makes_one_operator() {
    let fixture = ConsoleFixture::open(&[]).await;
    let (node, second) = (fixture.node(), start_node(&fixture).await);
    for node in [node, &second] {
        let is_logged = async || !links_in_log(node).is_empty();
        eventually("the link is in the log", Duration::from_secs(10), is_logged).await.expect("link is logged");
    }
    let ([link], [link_of_second]) = (&links_in_log(node)[..], &links_in_log(&second)[..]) else {
        panic!("one link per node: {}", node.log().expect("log is readable"));
    };
    let page = fixture.browser().get(link).await;
    assert!(page.status == 200 && page.text().contains("You become its admin."), "{}", page.text());
    assert_eq!(fixture.browser().get(&format!("/join/{}", "0".repeat(64))).await.status, 410);
    assert_redirects_to(&fixture.browser().get("/").await, "/signin");
    for name in ["", "a b", "<b>", "ä", &"x".repeat(65)] {
        let reply = fixture.browser().post(&format!("{link}/passkey"), &[("name", name)]).await;
        assert_eq!(reply.status, 422, "{name}: {}", reply.text());
    }

    // Two visitors of the same link, and one of the other, finish at the same time.
    let visitors = [(node, link, "ada"), (node, link, "bob"), (&second, link_of_second, "eve")];
    let [mut ada, mut bob, mut eve] = visitors.map(|(node, link, name)| Box::pin(Visitor::begin(node, link, name)));
    let (mut ada, mut bob, mut eve) = tokio::join!(&mut ada, &mut bob, &mut eve);
    let replies = tokio::join!(ada.finish(), bob.finish(), eve.finish());
    let outcomes = [(&replies.0, "ada", ada), (&replies.1, "bob", bob), (&replies.2, "eve", eve)];
    let mut winner = None;
    for (reply, name, visitor) in outcomes {
        match reply.status {
            303 => assert!(winner.replace((name, visitor)).is_none(), "two operators"),
            status => assert_eq!(status, 410, "{name}: {}", reply.text()),
        }
    }
    let (name, mut visitor) = winner.expect("one of them is the operator");
    assert_eq!(fixture.psql("select name || ' ' || role from operators").await, format!("{name} admin"));
    assert_eq!(visitor.browser.get("/operators").await.status, 200);
    let reuse = visitor.finish().await;
    assert_eq!(reuse.status, 410);
    for (node, link) in [(node, link), (&second, link_of_second)] {
        let mut browser = Browser::open_console(node);
        let page = browser.get(link).await;
        assert!(page.status == 410 && page.text().contains("expired or was already used"), "{}", page.text());
        assert_eq!(browser.post(&format!("{link}/passkey"), &[("name", "mallory")]).await.status, 410);
    }
    let events = fixture.audit_events(&[]).await;
    let actions: Vec<_> = events.iter().map(|event| event["action"].as_str().expect("text")).collect();
    assert_eq!(actions, ["operator_signed_in", "operator_passkey_added", "operator_added_as_admin"]);
    assert!(events.iter().all(|event| event["operator"] == name && event["subject"] == name), "{events:?}");

    let restarted = start_node(&fixture).await;
    assert!(links_in_log(&restarted).is_empty(), "there is an operator");
    assert_eq!(fixture.psql("select count(*) from operator_links where operator_id is not null").await, "0");
    // The only admin can neither go nor become less.
    let id = fixture.psql("select id from operators").await;
    for (form, fields) in [("role", &[("role", "support")][..]), ("remove", &[])] {
        let reply = visitor.browser.post(&format!("/operators/{id}/{form}"), fields).await;
        assert!(reply.status == 422 && reply.text().contains("This is the only admin"), "{form}: {}", reply.text());
    }
    assert_eq!(fixture.psql("select name || ' ' || role from operators").await, format!("{name} admin"));

    // Two admins who take each other's role at the same time.
    let mut other = fixture.sign_in(OperatorRole::Admin).await;
    let [of_other, own] = [&other.id, &id].map(|id| format!("/operators/{id}/role"));
    let fields = [("role", "viewer")];
    let replies = tokio::join!(visitor.browser.post(&of_other, &fields), other.browser.post(&own, &fields));
    let mut statuses = [replies.0.status, replies.1.status];
    statuses.sort_unstable();
    assert!(statuses == [303, 403] || statuses == [303, 422], "{statuses:?}");
    assert_eq!(fixture.psql("select count(*) from operators where role = 'admin'").await, "1");
}
