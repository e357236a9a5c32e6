//! Open pages hear at once that something on them has changed, and end with their session and their node.

use std::time::{Duration, Instant};

use domain::Scope;
use testkit::{CliOutput, Issued, Node, Stream, eventually};

use super::browser::Browser;
use super::stage::{PASSWORD, Stage, arrives, stage};
use crate::lookup::ask;

const TOLD_MAX: Duration = Duration::from_secs(2);
const GONE_MAX: Duration = Duration::from_secs(20);
const NODE_END_MAX: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(30);

/// The events of an open page.
struct Events {
    stream: Stream,
    text: String,
}

impl Events {
    async fn open(browser: &Browser, node: &Node) -> Self {
        let stream = browser.listen(node, "/events").await;
        assert_eq!(stream.status, 200);
        Self { stream, text: String::new() }
    }

    /// The next event's name; `None` when the stream has ended.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let name = event.lines().find_map(|line| line.strip_prefix("event: ")).map(str::to_owned);
                self.text = rest.to_owned();
                if name.is_some() {
                    return name;
                }
                continue;
            }
            let piece = self.stream.next().await.ok()??;
            self.text.push_str(std::str::from_utf8(&piece).expect("text"));
        }
    }

    /// Reads on until the member's list of keys shows something, looking only when it is told to; says how long it took since then.
    async fn until_shown(&mut self, browser: &mut Browser, what: &str, since: Instant) -> Duration {
        let shown = async {
            loop {
                assert_eq!(self.next().await.as_deref(), Some("changed"));
                if browser.get("/keys").await.text().contains(what) {
                    return since.elapsed();
                }
            }
        };
        tokio::time::timeout(PATIENCE, shown).await.unwrap_or_else(|_| panic!("no event led to a page with {what:?}"))
    }

    /// Reads on to the end, and says whether the page was told that its session is gone.
    async fn until_gone(mut self) -> bool {
        let mut last = None;
        while let Some(event) = self.next().await {
            last = Some(event);
        }
        last.as_deref() == Some("gone")
    }
}

/// Makes one request too many; gives the moment of the refusal.
async fn overrun(node: &Node, key: &Issued) -> Instant {
    let mut caller = node.caller();
    for _ in 0..300 {
        assert_eq!(ask(&mut caller, key).await.status, 200);
    }
    assert_eq!(ask(&mut caller, key).await.status, 429);
    Instant::now()
}

fn paused(key: &Issued) -> String {
    format!("id=\"resume-{}\"", key.id)
}

#[expect(clippy::print_stderr, reason = "the figure is worth knowing, met or not")]
fn report(what: &str, took: Duration) {
    eprintln!("{what} was shown after {took:.0?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_shows_a_pause_and_every_change_within_two_seconds() {
    let stage = stage().await;
    let mut member = stage.plant_member().await;
    let key = member.make_key("busy", Scope::Ip).await;
    let mut open = Events::open(&member.browser, stage.node()).await;
    let refused = overrun(stage.node(), &key).await;
    let took = open.until_shown(&mut member.browser, &paused(&key), refused).await;
    report("a pause", took);
    assert!(took <= TOLD_MAX, "a pause was shown after {took:?}");

    let mut another = stage.browser();
    arrives(&another.post("/signin", &[("email", &member.email), ("password", PASSWORD)]).await, "/keys");
    arrives(
        &another.post(&format!("/keys/{}/rename", key.id), &[("name", "calmer")]).await,
        &format!("/keys/{}", key.id),
    );
    let took = open.until_shown(&mut member.browser, "calmer", Instant::now()).await;
    report("another session's change", took);
    assert!(took <= TOLD_MAX, "another session's change was shown after {took:?}");

    stage.house.cli(&["key", "deactivate", &key.id]).await.and_then(CliOutput::success).expect("deactivated");
    let took = open.until_shown(&mut member.browser, "key inactive", Instant::now()).await;
    report("the operator's change", took);
    assert!(took <= TOLD_MAX, "the operator's change was shown after {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_told_that_its_session_is_gone() {
    let stage = stage().await;
    let (mut leaver, mut deleter) = (stage.plant_member().await, stage.plant_member().await);
    let streams =
        [Events::open(&leaver.browser, stage.node()).await, Events::open(&deleter.browser, stage.node()).await];
    let [left, deleted] = streams.map(|events| tokio::time::timeout(GONE_MAX, events.until_gone()));
    arrives(&leaver.browser.post("/signout", &[]).await, "/signin");
    arrives(&deleter.browser.post("/account/delete", &[("password", PASSWORD)]).await, "/signin");
    let ended = Instant::now();
    let (left, deleted) = tokio::join!(left, deleted);
    report("the end of a session", ended.elapsed());
    assert!(left.expect("an end in time") && deleted.expect("an end in time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_cross_nodes_and_hold_up_no_end() {
    let mut stage = Stage::with_nodes(2, &[("IPSEITY__PORTAL__STREAMS_MAX", "2")]).await;
    let mut member = stage.plant_member().await;
    let key = member.make_key("busy", Scope::Ip).await;

    let [one, two] = [&stage.house.nodes[0], &stage.house.nodes[1]];
    let mut open = Events::open(&member.browser, two).await;
    let refused = overrun(one, &key).await;
    let took = open.until_shown(&mut member.browser.on(two), &paused(&key), refused).await;
    report("a pause through another node", took);
    assert!(took <= TOLD_MAX, "a pause through another node was shown after {took:?}");

    let second = Events::open(&member.browser, two).await;
    let third = member.browser.on(two).get("/events").await;
    assert_eq!((third.status, third.header("retry-after").is_some()), (503, true));
    drop(second);
    eventually("a place is free again", PATIENCE, async || member.browser.listen(two, "/events").await.status == 200)
        .await
        .expect("a place");

    let asked = Instant::now();
    let ended = stage.house.nodes[1].terminate().await.expect("an end");
    assert!(ended.success() && asked.elapsed() < NODE_END_MAX, "{ended} after {:?}", asked.elapsed());
    let last = tokio::time::timeout(PATIENCE, open.until_gone()).await.expect("the stream ends with its node");
    assert!(!last, "the session goes on, on another node");
}
