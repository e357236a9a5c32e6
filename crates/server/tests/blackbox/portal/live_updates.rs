//! Event streams: they report changes immediately, and end with their session and their node.

use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::{CommandOutput, IssuedKey, Node, StreamingResponse, eventually};

use super::browser::Browser;
use super::fixture::{PASSWORD, PortalFixture, assert_redirects_to, shared_fixture};
use crate::lookup::lookup_with_key;

const EVENT_DELAY_MAX: Duration = Duration::from_secs(2);
const BURST_WINDOW: Duration = Duration::from_secs(60);
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(20);
const NODE_STOP_TIMEOUT: Duration = Duration::from_secs(3);
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// The event stream of an open page.
struct PageEvents {
    stream: StreamingResponse,
    text: String,
}

impl PageEvents {
    async fn open(browser: &Browser, node: &Node) -> Self {
        let stream = browser.open_stream(node, "/events").await;
        assert_eq!(stream.status, 200);
        Self { stream, text: String::new() }
    }

    /// The next event's name; `None` when the stream has ended.
    async fn next_event(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let name = event.lines().find_map(|line| line.strip_prefix("event: ")).map(str::to_owned);
                self.text = rest.to_owned();
                if name.is_some() {
                    return name;
                }
                continue;
            }
            let chunk = self.stream.next_chunk().await.ok()??;
            self.text.push_str(std::str::from_utf8(&chunk).expect("event is UTF-8"));
        }
    }

    /// Reloads the list of keys after each event until it shows a text. Returns the time since `since`.
    async fn wait_until_shown(&mut self, browser: &mut Browser, what: &str, since: Instant) -> Duration {
        let shown = async {
            loop {
                assert_eq!(self.next_event().await.as_deref(), Some("changed"));
                if browser.get("/keys").await.text().contains(what) {
                    return since.elapsed();
                }
            }
        };
        tokio::time::timeout(STREAM_TIMEOUT, shown)
            .await
            .unwrap_or_else(|_| panic!("no event was followed by a page with {what:?}"))
    }

    /// Reads to the end. Returns whether the last event was `signed-out`.
    async fn ends_with_signed_out(mut self) -> bool {
        let mut last = None;
        while let Some(event) = self.next_event().await {
            last = Some(event);
        }
        last.as_deref() == Some("signed-out")
    }
}

/// Exceeds the burst limit. Returns the time of the rejection.
async fn exceed_burst_limit(node: &Node, key: &IssuedKey) -> Instant {
    let mut caller = node.client();
    for _ in 0..300 {
        assert_eq!(lookup_with_key(&mut caller, key).await.status, 200);
    }
    assert_eq!(lookup_with_key(&mut caller, key).await.status, 429);
    Instant::now()
}

fn resume_button_id(key: &IssuedKey) -> String {
    format!("id=\"resume-{}\"", key.id)
}

#[expect(clippy::print_stderr, reason = "the measured time is useful even if the test passes")]
fn print_delay(what: &str, took: Duration) {
    eprintln!("{what} was shown after {took:.0?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_shows_changes_within_two_seconds() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("busy", Scope::Ip).await;
    let mut open = PageEvents::open(&member.browser, fixture.node()).await;
    let rejected_at = exceed_burst_limit(fixture.node(), &key).await;
    let took = open.wait_until_shown(&mut member.browser, &resume_button_id(&key), rejected_at).await;
    print_delay("a pause", took);
    assert!(took <= EVENT_DELAY_MAX, "a pause was shown after {took:?}");

    let mut another = fixture.browser();
    assert_redirects_to(&another.post("/signin", &[("email", &member.email), ("password", PASSWORD)]).await, "/keys");
    assert_redirects_to(
        &another.post(&format!("/keys/{}/rename", key.id), &[("name", "calmer")]).await,
        &format!("/keys/{}", key.id),
    );
    let took = open.wait_until_shown(&mut member.browser, "calmer", Instant::now()).await;
    print_delay("another session's change", took);
    assert!(took <= EVENT_DELAY_MAX, "another session's change was shown after {took:?}");

    fixture
        .deployment
        .cli(&["key", "deactivate", &key.id])
        .await
        .and_then(CommandOutput::ensure_success)
        .expect("CLI deactivates the key");
    let took = open.wait_until_shown(&mut member.browser, "key inactive", Instant::now()).await;
    print_delay("a CLI change", took);
    assert!(took <= EVENT_DELAY_MAX, "a CLI change was shown after {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_shows_when_a_key_is_near_its_burst_limit_and_when_it_is_not_any_more() {
    let fixture = shared_fixture().await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("busy", Scope::Ip).await;
    let mut open = PageEvents::open(&member.browser, fixture.node()).await;
    let mut caller = fixture.node().client();
    let first_sent_at = Instant::now();
    for _ in 0..240 {
        assert_eq!(lookup_with_key(&mut caller, &key).await.status, 200);
    }
    let took = open.wait_until_shown(&mut member.browser, ">Near burst limit<", Instant::now()).await;
    print_delay("the burst limit that is near", took);
    assert!(took <= EVENT_DELAY_MAX, "shown after {took:?}");
    // No request, no change in PostgreSQL: only the window moves on.
    tokio::time::timeout(STREAM_TIMEOUT * 3, async {
        while member.browser.get("/keys").await.text().contains(">Near burst limit<") {
            assert_eq!(open.next_event().await.as_deref(), Some("changed"));
        }
    })
    .await
    .expect("the key is active again");
    let took = first_sent_at.elapsed().saturating_sub(BURST_WINDOW);
    print_delay("the end of the window", took);
    assert!(took <= EVENT_DELAY_MAX * 2, "shown after {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_is_notified_when_its_session_ends() {
    let fixture = shared_fixture().await;
    let (mut leaver, mut deleter) = (fixture.create_member().await, fixture.create_member().await);
    let streams = [
        PageEvents::open(&leaver.browser, fixture.node()).await,
        PageEvents::open(&deleter.browser, fixture.node()).await,
    ];
    let [left, deleted] =
        streams.map(|events| tokio::time::timeout(SESSION_END_TIMEOUT, events.ends_with_signed_out()));
    assert_redirects_to(&leaver.browser.post("/signout", &[]).await, "/signin");
    let form = [("email", deleter.email.as_str()), ("password", PASSWORD)];
    assert_redirects_to(&deleter.browser.post("/account/delete", &form).await, "/signin");
    let ended = Instant::now();
    let (left, deleted) = tokio::join!(left, deleted);
    print_delay("the end of a session", ended.elapsed());
    assert!(left.expect("stream ends in time") && deleted.expect("stream ends in time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn account_cannot_take_the_event_streams_of_others() {
    let fixture = PortalFixture::open(&[("IPSEITY__PORTAL__EVENT_STREAMS_MAX", "12")]).await;
    let (member, other) = (fixture.create_member().await, fixture.create_member().await);
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(PageEvents::open(&member.browser, fixture.node()).await);
    }
    let refused = member.browser.on_node(fixture.node()).get("/events").await;
    assert_eq!(refused.status, 429);
    assert!(refused.text().contains("Too many open pages"), "{}", refused.text());
    PageEvents::open(&other.browser, fixture.node()).await;
    streams.pop();
    eventually("a stream of the account is free", STREAM_TIMEOUT, async || {
        member.browser.open_stream(fixture.node(), "/events").await.status == 200
    })
    .await
    .expect("stream opens");
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_are_limited_and_do_not_block_shutdown() {
    let mut fixture = PortalFixture::with_nodes(2, &[("IPSEITY__PORTAL__EVENT_STREAMS_MAX", "2")]).await;
    let mut member = fixture.create_member().await;
    let key = member.create_key("busy", Scope::Ip).await;

    let [one, two] = [&fixture.deployment.nodes[0], &fixture.deployment.nodes[1]];
    let mut open = PageEvents::open(&member.browser, two).await;
    let rejected_at = exceed_burst_limit(one, &key).await;
    let took = open.wait_until_shown(&mut member.browser.on_node(two), &resume_button_id(&key), rejected_at).await;
    print_delay("a pause through another node", took);
    assert!(took <= EVENT_DELAY_MAX, "a pause through another node was shown after {took:?}");

    let second = PageEvents::open(&member.browser, two).await;
    let third = member.browser.on_node(two).get("/events").await;
    assert_eq!((third.status, third.header("retry-after").is_some()), (503, true));
    drop(second);
    eventually("a stream permit is free", STREAM_TIMEOUT, async || {
        member.browser.open_stream(two, "/events").await.status == 200
    })
    .await
    .expect("stream opens");

    let terminated_at = Instant::now();
    let ended = fixture.deployment.nodes[1].terminate().await.expect("node stops");
    assert!(
        ended.success() && terminated_at.elapsed() < NODE_STOP_TIMEOUT,
        "{ended} after {:?}",
        terminated_at.elapsed()
    );
    let last =
        tokio::time::timeout(STREAM_TIMEOUT, open.ends_with_signed_out()).await.expect("stream ends with its node");
    assert!(!last, "the session continues on another node");
}
