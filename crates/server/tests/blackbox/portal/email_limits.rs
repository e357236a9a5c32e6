//! Limits on the emails that visitors can request: per address, per network and per node.

use ipseity_testkit::TestResponse;

use super::browser::Browser;
use super::fixture::{PASSWORD, PortalFixture, fresh_email};

const EMAILS_PER_ADDRESS: usize = 2;
const EMAILS_PER_NETWORK: usize = 4;
const EMAILS_PER_NODE: usize = 3;
const NETWORK_PERIOD_S: u64 = 600;
const NODE_PERIOD_S: u64 = 3600;

async fn request_signup(browser: &mut Browser, email: &str) -> TestResponse {
    browser.post("/signup", &[("email", email), ("password", PASSWORD)]).await
}

async fn request_reset(browser: &mut Browser, email: &str) -> TestResponse {
    browser.post("/forgot", &[("email", email)]).await
}

async fn queued_count(fixture: &PortalFixture, email: &str) -> String {
    fixture.psql(&format!("select count(*) from tickets where email = '{email}'")).await
}

async fn rejected_count(fixture: &PortalFixture, limit: &str) -> u64 {
    let metrics = fixture.node().metrics().await.expect("metrics are readable");
    let name = format!("ipseity_email_requests_rejected_total{{limit=\"{limit}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(name.as_str())).expect("metric exists");
    value.parse().expect("value is a number")
}

#[track_caller]
fn assert_rejected(reply: &TestResponse, status: u16, heading: &str, period_s: u64) {
    assert_eq!(reply.status, status, "{}", reply.text());
    assert!(reply.text().contains(heading), "{}", reply.text());
    let seconds: u64 =
        reply.header("retry-after").and_then(|value| value.parse().ok()).expect("response has Retry-After");
    assert!((1..=period_s).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn emails_are_limited_per_address_and_per_network() {
    let (address, network) = (EMAILS_PER_ADDRESS.to_string(), EMAILS_PER_NETWORK.to_string());
    let fixture = PortalFixture::open(&[
        ("IPSEITY__MAIL__EMAILS_PER_ADDRESS_PER_HOUR_MAX", &address),
        ("IPSEITY__MAIL__EMAILS_PER_SUBNET_PER_10_MIN_MAX", &network),
    ])
    .await;
    let member = fixture.create_member().await;
    let flooded = fresh_email();
    let mut stranger = fixture.browser().with_network("198.51.100.7");
    for number in 0..EMAILS_PER_NETWORK {
        let typed = if number % 2 == 0 { flooded.clone() } else { flooded.to_uppercase() };
        assert_eq!(request_signup(&mut stranger, &typed).await.status, 200);
    }
    assert_eq!(queued_count(&fixture, &flooded).await, address, "all spellings count");

    let other = fresh_email();
    let mut inside = member.browser.on_node(fixture.node()).with_network("198.51.100.7");
    for reply in [
        request_signup(&mut stranger, &other).await,
        request_reset(&mut stranger, &other).await,
        inside.post("/account/email", &[("email", &other), ("password", PASSWORD)]).await,
    ] {
        assert_rejected(&reply, 429, "Too many emails", NETWORK_PERIOD_S);
    }
    assert_eq!(queued_count(&fixture, &other).await, "0");
    assert_eq!((rejected_count(&fixture, "subnet").await, rejected_count(&fixture, "node").await), (3, 0));
    let signed_in = stranger.post("/signin", &[("email", &member.email), ("password", PASSWORD)]).await;
    assert_eq!(signed_in.status, 303, "the limit does not affect sign-ins");
    assert_eq!(request_reset(&mut fixture.browser().with_network("198.51.100.8"), &other).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_up_and_reset_emails_are_limited_per_node() {
    let limit = EMAILS_PER_NODE.to_string();
    let fixture = PortalFixture::open(&[("IPSEITY__MAIL__EMAILS_PER_NODE_PER_HOUR_MAX", &limit)]).await;
    let network_browser = |number: usize| fixture.browser().with_network(&format!("203.0.113.{number}"));
    for number in 1..EMAILS_PER_NODE {
        assert_eq!(request_signup(&mut network_browser(number), &fresh_email()).await.status, 200);
    }
    assert_eq!(request_reset(&mut network_browser(EMAILS_PER_NODE), &fresh_email()).await.status, 200);
    assert_eq!(rejected_count(&fixture, "node").await, 0);

    let email = fresh_email();
    for reply in [
        request_signup(&mut network_browser(100), &email).await,
        request_reset(&mut network_browser(101), &email).await,
    ] {
        assert_rejected(&reply, 503, "We can’t send emails right now", NODE_PERIOD_S);
    }
    assert_eq!(queued_count(&fixture, &email).await, "0");
    assert_eq!(rejected_count(&fixture, "node").await, 2);
}
