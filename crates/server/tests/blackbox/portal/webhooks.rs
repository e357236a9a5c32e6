//! Webhooks and Slack: every alert arrives at least once, in the order of its key, and nothing reaches private networks.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{ReceivedWebhook, ReceiverReply, TestResponse, WebhookReceiver, eventually};
use serde_json::Value;

use super::alert_emails::send_lookups;
use super::fixture::{PortalFixture, TestMember, assert_redirects_to};
use crate::fixture::{env_number, lookup_status};

const OUTCOME_TIMEOUT: Duration = Duration::from_secs(20);
const ALLOW_LOOPBACK: (&str, &str) = ("IPSEITY__ALERTS__ALLOWED_NETWORKS", "127.0.0.0/8");

fn receiver(reply: ReceiverReply) -> WebhookReceiver {
    WebhookReceiver::start(move |_| reply.clone()).expect("receiver starts")
}

/// Adds a channel through the form. Returns its ID and the page of a webhook, or the redirect of a Slack channel.
async fn add_channel(
    fixture: &PortalFixture,
    member: &mut TestMember,
    kind: &str,
    url: &str,
    alerts: &[&str],
) -> (String, TestResponse) {
    let mut fields = vec![("kind", kind), ("url", url)];
    fields.extend(alerts.iter().map(|name| (*name, "on")));
    let reply = member.browser.post("/account/alerts/channels", &fields).await;
    let id = fixture.psql(&format!("select max(id) from alert_channels where account_id = {}", member.id)).await;
    (id, reply)
}

/// The state and the outcome of the newest delivery, once it has an outcome.
async fn newest_outcome(fixture: &PortalFixture, channel: &str) -> String {
    let sql = format!("select outcome from notices where channel_id = {channel} order by id desc limit 1");
    let mut outcome = String::new();
    eventually("an outcome", OUTCOME_TIMEOUT, async || {
        outcome = fixture.psql(&sql).await;
        !outcome.is_empty()
    })
    .await
    .expect("an attempt is made in time");
    outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_is_signed_and_can_be_delivered_again() {
    let fixture = PortalFixture::open(&[ALLOW_LOOPBACK]).await;
    let mut member = fixture.create_member().await;
    let hook = receiver(ReceiverReply::Status(204));
    let (id, page) = add_channel(&fixture, &mut member, "webhook", &hook.url(), &["paused", "created"]).await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("whsec_"), "the secret is shown once");
    let path = format!("/account/alerts/{id}");
    assert!(!member.browser.get(&path).await.text().contains("whsec_"), "the secret is not shown again");

    assert_redirects_to(&member.browser.post(&format!("{path}/test"), &[]).await, &path);
    let test = hook.wait_for(1).await.expect("test arrives").remove(0);
    assert_eq!(test.json()["type"], "test");
    assert!(test.id.starts_with("msg_") && test.signature.starts_with("v1,") && !test.timestamp.is_empty());
    let key = member.create_key("shop", Scope::Ip).await;
    assert_eq!(send_lookups(&fixture, &key, 301).await, 429);
    let received = hook.wait_for(3).await.expect("alerts arrive");
    let types: Vec<_> = received.iter().map(|alert| alert.json()["type"].to_string()).collect();
    assert_eq!(types[1..], ["\"key.created\"", "\"key.paused\""]);
    let data = &received[2].json()["data"];
    assert_eq!((data["key_id"].as_str(), &data["burst_limit"]), (Some(&*format!("ips_{}", key.id)), &300.into()));
    assert!(data["requests"].as_u64() > Some(300), "{data}");

    let page = member.browser.get(&path).await.text();
    assert!(page.contains("Delivered") && page.contains(&received[2].id) && page.contains("HTTP 204"), "{page}");
    let delivery = format!("select min(id) from notices where channel_id = {id} and kind = 'alert_paused'");
    let delivery = fixture.psql(&delivery).await;
    assert_redirects_to(&member.browser.post(&format!("{path}/deliveries/{delivery}"), &[]).await, &path);
    let again = hook.wait_for(4).await.expect("redelivery arrives").remove(3);
    assert_eq!((&again.id, &again.body), (&received[2].id, &received[2].body));

    let rotated = member.browser.post(&format!("{path}/rotate"), &[]).await;
    assert!(rotated.text().contains("whsec_"), "{}", rotated.text());
    member.browser.post(&format!("{path}/test"), &[]).await;
    let signed_twice = hook.wait_for(5).await.expect("test arrives").remove(4);
    assert_eq!(signed_twice.signature.split(' ').count(), 2, "{}", signed_twice.signature);
    assert_redirects_to(&member.browser.post(&format!("{path}/delete"), &[]).await, "/account/alerts");
    assert_eq!(member.browser.get(&path).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_gets_a_text() {
    let fixture = PortalFixture::open(&[ALLOW_LOOPBACK]).await;
    let mut member = fixture.create_member().await;
    let hook = receiver(ReceiverReply::Status(200));
    let (id, reply) = add_channel(&fixture, &mut member, "slack", &hook.url(), &["created"]).await;
    assert_redirects_to(&reply, &format!("/account/alerts/{id}"));
    let key = member.create_key("<!channel>", Scope::Ip).await;
    let message = hook.wait_for(1).await.expect("message arrives").remove(0);
    let text = message.json()["text"].as_str().expect("text").to_owned();
    assert!(text.contains("&lt;!channel&gt;: Created") && text.contains(&key.id), "{text}");
    assert!(message.signature.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_to_private_networks() {
    let fixture = PortalFixture::open(&[]).await;
    let mut member = fixture.create_member().await;
    let hook = receiver(ReceiverReply::Status(200));
    for url in [
        hook.url(),
        format!("https://127.0.0.1:{}/", hook.port()),
        "https://[::1]/".to_owned(),
        "https://0x7f000001/".to_owned(),
        "https://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "https://user:password@example.com/".to_owned(),
    ] {
        let (_, page) = add_channel(&fixture, &mut member, "webhook", &url, &["created"]).await;
        assert!(page.status == 200 && page.text().contains("error-message"), "{url}: {}", page.text());
    }
    assert_eq!(fixture.psql("select count(*) from alert_channels").await, "0");
    // The addresses of a name are known only when a request is sent.
    let name = format!("https://localhost:{}/", hook.port());
    let (id, page) = add_channel(&fixture, &mut member, "webhook", &name, &["created"]).await;
    assert!(page.text().contains("whsec_"), "{}", page.text());
    member.browser.post(&format!("/account/alerts/{id}/test"), &[]).await;
    assert_eq!(newest_outcome(&fixture, &id).await, "the address is not public");
    // A row that an older setting allowed.
    fixture
        .psql(&format!(
            "update alert_channels set url = '{}'; update notices set outcome = null, try_at = now();
             update alert_lanes set try_at = now()",
            hook.url()
        ))
        .await;
    assert_eq!(newest_outcome(&fixture, &id).await, "the URL is not allowed");
    assert!(hook.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed_and_failures_are_named() {
    let fixture = PortalFixture::open(&[ALLOW_LOOPBACK, ("IPSEITY__ALERTS__TIMEOUT_MS", "500")]).await;
    let mut member = fixture.create_member().await;
    let target = receiver(ReceiverReply::Status(200));
    let unused = ipseity_testkit::ReservedPort::reserve_free().expect("free port");
    for (reply, expected) in [
        (ReceiverReply::Redirect(target.url()), "HTTP 302"),
        (ReceiverReply::Status(410), "HTTP 410"),
        (ReceiverReply::Hang, "no response within 0.5 s"),
        (ReceiverReply::Close, "connection closed without a response"),
        (ReceiverReply::Trickle, "no response within 0.5 s"),
        (ReceiverReply::EndlessBody, "HTTP 200"),
        (ReceiverReply::Raw("HTTP/1.0 200 OK\r\n\r\n"), "HTTP 200"),
        (ReceiverReply::Raw("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"), "HTTP 204"),
        (
            ReceiverReply::Raw("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
            "HTTP 101",
        ),
        (ReceiverReply::Raw("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\ncut"), "HTTP 200"),
        (ReceiverReply::Raw("SSH-2.0-OpenSSH_9.2\r\n"), "connection closed without a response"),
    ] {
        let hook = receiver(reply);
        let (id, _) = add_channel(&fixture, &mut member, "webhook", &hook.url(), &["created"]).await;
        member.browser.post(&format!("/account/alerts/{id}/test"), &[]).await;
        assert_eq!(newest_outcome(&fixture, &id).await, expected);
        member.browser.post(&format!("/account/alerts/{id}/delete"), &[]).await;
    }
    let url = format!("http://{}/", unused.address());
    let (id, _) = add_channel(&fixture, &mut member, "webhook", &url, &["created"]).await;
    member.browser.post(&format!("/account/alerts/{id}/test"), &[]).await;
    assert_eq!(newest_outcome(&fixture, &id).await, "cannot connect");
    let page = member.browser.get("/account/alerts").await.text();
    assert!(page.contains("Failing"), "{page}");
    assert!(target.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn receiver_that_is_gone_gets_nothing_until_its_channel_is_turned_on() {
    let fixture = PortalFixture::open(&[ALLOW_LOOPBACK]).await;
    let mut member = fixture.create_member().await;
    let hook = WebhookReceiver::start(|requests| ReceiverReply::Status(if requests == 0 { 410 } else { 200 }));
    let hook = hook.expect("receiver starts");
    let (id, _) = add_channel(&fixture, &mut member, "webhook", &hook.url(), &["created"]).await;
    let path = format!("/account/alerts/{id}");
    member.browser.post(&format!("{path}/test"), &[]).await;
    assert_eq!(newest_outcome(&fixture, &id).await, "HTTP 410");
    let events = "select count(*) from security_events where kind = 'alert_channel_off'";
    assert_eq!(fixture.psql(events).await, "1", "an event, whose email may be sent already");
    let page = member.browser.get(&path).await.text();
    assert!(page.contains("Off since") && !page.contains("Send again") && !page.contains("Send test"), "{page}");
    assert!(member.browser.get("/account/alerts").await.text().contains("Off</span>"));
    assert!(member.browser.get("/account").await.text().contains("Alert channel turned off"));
    member.create_key("unseen", Scope::Ip).await;

    assert_redirects_to(&member.browser.post(&format!("{path}/on"), &[]).await, &path);
    assert!(!member.browser.get(&path).await.text().contains("Off since"));
    member.create_key("seen", Scope::Ip).await;
    let accepted = hook.wait_for(1).await.expect("alert arrives").remove(0);
    assert_eq!(accepted.json()["data"]["key_name"], "seen");
    assert_eq!(hook.received().len(), 2);
}

/// An unreliable receiver: of twenty requests one hangs, one is redirected, two fail, and four are slow.
fn unreliable_reply(_: usize) -> ReceiverReply {
    match fastrand::u32(..20) {
        0 => ReceiverReply::Hang,
        1 => ReceiverReply::Redirect("http://127.0.0.1:1/".to_owned()),
        2 => ReceiverReply::Status(500),
        3 => ReceiverReply::Close,
        4..8 => ReceiverReply::Slow(Duration::from_millis(100)),
        _ => ReceiverReply::Status(200),
    }
}

/// The 99th percentile of lookups for a while, one every 10 ms.
async fn lookup_p99(fixture: &PortalFixture, keys: &[String], seconds: u64) -> Duration {
    let (started, mut times) = (Instant::now(), Vec::new());
    for key in keys.iter().cycle() {
        let start = Instant::now();
        assert_eq!(lookup_status(fixture.node(), key).await, 200);
        times.push(start.elapsed());
        if started.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_alert_arrives_in_order_although_receiver_and_nodes_fail() {
    let (events, keys) = (env_number("IPSEITY_WEBHOOK_EVENTS", 300), env_number("IPSEITY_WEBHOOK_KEYS", 30));
    let settings = [
        ALLOW_LOOPBACK,
        ("IPSEITY__ALERTS__TIMEOUT_MS", "1000"),
        ("IPSEITY__ALERTS__REQUESTS_PER_CHANNEL_MAX", "64"),
        ("IPSEITY__ALERTS__REQUESTS_PER_ACCOUNT_MAX", "64"),
    ];
    let mut fixture = PortalFixture::with_nodes(3, &settings).await;
    let mut member = fixture.create_member().await;
    let hook = WebhookReceiver::start(unreliable_reply).expect("receiver starts");
    let (channel, _) = add_channel(&fixture, &mut member, "webhook", &hook.url(), &["resumed"]).await;
    let mut lookup_keys = Vec::new();
    for _ in 0..10 {
        lookup_keys.push(member.create_key("lookups", Scope::Full).await.bearer().replace("Bearer ", ""));
    }
    let is_full_size = events >= 10_000;
    let before = lookup_p99(&fixture, &lookup_keys, if is_full_size { 10 } else { 1 }).await;

    let account = member.id;
    fixture
        .psql(&format!(
            "insert into keys (id, account_id, seat, name, scope, digest)
             select 'w' || lpad(n::text, 9, '0'), {account}, 100 + n, 'webhooks', 'ip', sha256(n::text::bytea)
             from generate_series(1, {keys}) n;
             insert into history (key_id, at, act, actor)
             select 'w' || lpad(n::text, 9, '0'), now(), 'resumed', 'owner'
             from generate_series(1, {events} / {keys}) event, generate_series(1, {keys}) n"
        ))
        .await;
    let started = Instant::now();
    let during = lookup_p99(&fixture, &lookup_keys, if is_full_size { 10 } else { 1 }).await;
    let pending = format!("select count(*) from notices where channel_id = {channel} and mailed_at is null");
    let heads = format!(
        "select tries, outcome, count(*), round(extract(epoch from min(try_at) - now())), round(extract(epoch from max(try_at) - now()))
         from (select distinct on (key_id) * from notices where channel_id = {channel} and mailed_at is null
               order by key_id, id) head group by 1, 2 order by 1"
    );
    // The first node stays, the others are killed in turns.
    let mut killed = 0;
    loop {
        let left = fixture.psql(&pending).await;
        if left == "0" {
            break;
        }
        if started.elapsed() > Duration::from_secs(120 + u64::from(events) / 5) {
            panic!("{left} alerts are left; the first of each key: {}", fixture.psql(&heads).await);
        }
        let index = 1 + killed % 2;
        fixture.deployment.nodes[index].kill9();
        tokio::time::sleep(Duration::from_millis(500)).await;
        fixture.deployment.nodes[index] = fixture.deployment.start_node(&Env::new()).await.expect("node starts");
        killed += 1;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        if is_full_size && killed % 20 == 0 {
            print(&format!("{left} of {events} alerts are left after {:?}, {killed} nodes killed", started.elapsed()));
        }
    }
    let received = hook.received();
    print(&format!(
        "{events} alerts of {keys} keys arrived in {:?} and {} requests, {killed} nodes killed; p99 of lookups {before:?} before and {during:?} \
         during deliveries",
        started.elapsed(),
        received.len()
    ));
    let queued = format!(
        "select key_id || ' ' || replace(message_id::text, '-', '') from notices where channel_id = {channel} order by id"
    );
    assert_in_order(&fixture.psql(&queued).await, &received);
}

#[expect(clippy::print_stderr, reason = "the measured times are useful even if the test passes")]
fn print(text: &str) {
    eprintln!("{text}");
}

/// Asserts that every alert was accepted, and arrived only after those of its key before it were accepted.
fn assert_in_order(queued: &str, received: &[ReceivedWebhook]) {
    let mut by_key: HashMap<&str, Vec<String>> = HashMap::new();
    for (key, id) in queued.lines().filter_map(|line| line.split_once(' ')) {
        by_key.entry(key).or_default().push(format!("msg_{id}"));
    }
    let mut previous: HashMap<&str, &str> = HashMap::new();
    for ids in by_key.values() {
        for pair in ids.windows(2) {
            previous.insert(&pair[1], &pair[0]);
        }
    }
    let mut accepted = HashSet::new();
    let mut contents: HashMap<&str, Value> = HashMap::new();
    for webhook in received {
        let id = webhook.id.as_str();
        assert!(previous.get(id).is_none_or(|before| accepted.contains(*before)), "{id} arrived too early");
        let mut content = webhook.json();
        // Here, each node has a separate base URL.
        content["data"]["url"].take();
        assert_eq!(*contents.entry(id).or_insert_with(|| content.clone()), content, "{id} has two contents");
        if webhook.reply.is_success() {
            accepted.insert(id.to_owned());
        }
    }
    let missing: Vec<_> = by_key.values().flatten().filter(|id| !accepted.contains(*id)).collect();
    assert!(missing.is_empty(), "not delivered: {missing:?}");
}
