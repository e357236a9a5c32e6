//! What a site can do with its certificate, and without one.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipseity_domain::{ApiKey, KeyDigest, KeyPause, Scope};
use ipseity_home::message::{ChargeRequest, ReconcileRequest, Reply, Request, VerdictMessage};
use ipseity_home::{ClientIdentity, DELIVERY_TIMEOUT, HomeClient, HomeClientOptions};
use ipseity_ledger::{ChargeId, LedgerTime, PendingCharge, ReconcileBatch};
use ipseity_testkit::{CommandOutput, FaultConfig, IssuedKey, eventually};

use super::fixture::Sites;
use crate::fixture::{fresh_key, lookup_status};

const WITHIN: Duration = Duration::from_secs(30);

/// A client with the certificate in a directory, as a thief would use it. It is connected and knows home's clock.
async fn open_client(sites: &Sites, dir: &Path) -> Arc<HomeClient> {
    let url = format!("https://{}", sites.home_ports[0].address());
    let client = HomeClient::new(HomeClientOptions {
        urls: vec![url.parse().expect("valid URL")],
        identity: ClientIdentity { certificate_file: dir.join("site.pem"), private_key_file: dir.join("site.key") },
        ca_file: sites.deployment.certificate.ca_file.clone(),
        timeout: Duration::from_secs(30),
        ping_interval: Duration::from_millis(100),
        is_optimistic: false,
        silence_timeout: Duration::from_secs(10),
    });
    let client = Arc::new(client.expect("certificate is valid"));
    let running = Arc::clone(&client);
    tokio::spawn(async move { running.run(|_| {}).await });
    let is_usable = async || client.is_connected() && client.owner().is_clock_synced();
    eventually("the client connects", WITHIN, is_usable).await.expect("client connects");
    client
}

fn api_key(key: &IssuedKey) -> ApiKey {
    ApiKey::parse(&key.key).expect("valid key")
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_site_is_disconnected_within_a_second() {
    let sites = Sites::start(1).await;
    let remote = sites.start_remote_node("syd", FaultConfig::none()).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    assert_eq!(lookup_status(&remote.node, &key.key).await, 200);
    let dir = sites.add_site("ams").await;
    let client = open_client(&sites, &dir).await;
    sites.remove_site("ams").await;
    let removed = Instant::now();
    eventually("the client is disconnected", WITHIN, async || !client.is_connected()).await.expect("disconnects");
    let elapsed = removed.elapsed();
    // A busy machine needs as much longer as for a command that reads the list.
    let start = Instant::now();
    let listed = sites.deployment.cli(&["site", "list"]).await;
    listed.and_then(CommandOutput::ensure_success).expect("sites are listed");
    let allowed = Duration::from_secs(1) + start.elapsed();
    assert!(elapsed < allowed, "{elapsed:?}, at most {allowed:?} expected");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!client.is_connected(), "a removed certificate is refused");
    assert!(remote.is_connected().await, "other sites are not affected");

    sites.remove_site("syd").await;
    eventually("the node is disconnected", WITHIN, async || !remote.is_connected().await).await.expect("disconnects");
    assert_eq!(lookup_status(&remote.node, &key.key).await, 200, "it still has the key in memory");
}

#[tokio::test(flavor = "multi_thread")]
async fn site_cannot_use_a_key_whose_secret_it_has_not_seen() {
    let sites = Sites::start(1).await;
    let dir = sites.add_site("syd").await;
    let client = open_client(&sites, &dir).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    assert_eq!(lookup_status(&sites.deployment.nodes[0], &key.key).await, 200);
    let guessed = ApiKey { digest: KeyDigest::new([7; 32]), ..api_key(&key) };

    let now = || client.owner().now();
    for _ in 0..310 {
        let sent = client.sent_charge(now());
        let (key, id, arrival) = ((&guessed).into(), ChargeId::next().number(), sent.arrival.0);
        let charge = Request::Charge(ChargeRequest { key, id, arrival, slot: None, restrictions: None });
        let reply = client.call(charge, sent.at).await.expect("home answers");
        assert!(matches!(reply, Reply::Verdict(VerdictMessage::WrongSecret(_))), "{reply:?}");
    }
    let record = client.call(Request::FindRecord((&guessed).into()), now()).await.expect("home answers");
    assert!(matches!(record, Reply::WrongSecret), "{record:?}");
    let pause = KeyPause { key: guessed.id, burst_epoch: 1, at_ms: now().0, counts: [5; 60] };
    let batch = ReconcileBatch {
        key: guessed.id,
        number: 1,
        burst_epoch: 1,
        days: vec![(now().day(), 500)],
        recent: vec![PendingCharge { at: now(), id: ChargeId::next() }],
        unconfirmed: Vec::new(),
        pause: Some(pause),
        first_attempt: None,
    };
    let request = Request::Reconcile(ReconcileRequest::new(&guessed, client.node_id(), &batch));
    let reconciled = client.call(request, now()).await.expect("home answers");
    assert!(matches!(reconciled, Reply::WrongSecret), "{reconciled:?}");
    assert_eq!(sites.charged(&key.id).await, 1);
    assert_eq!(lookup_status(&sites.deployment.nodes[0], &key.key).await, 200, "the key is not paused");

    let record = client.call(Request::FindRecord((&api_key(&key)).into()), now()).await.expect("home answers");
    assert!(matches!(record, Reply::Record(_)), "{record:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_an_implausible_time_is_not_processed() {
    let sites = Sites::start(1).await;
    let dir = sites.add_site("syd").await;
    let client = open_client(&sites, &dir).await;
    let key = fresh_key(&sites.deployment, Scope::Ip).await;
    assert_eq!(lookup_status(&sites.deployment.nodes[0], &key.key).await, 200, "Redis has the record of the key now");
    let mut charged = 1;
    // Relative to now, in milliseconds.
    for (arrival, sent_at, is_processed) in [
        (0, 0, true),
        (-50_000, 0, true),
        (-900, -900, false),
        (-3_000, -3_000, false),
        (60_000, 60_000, false),
        (500, 0, false),
        (i64::MIN / 2, i64::MIN / 2, false),
        (i64::MAX / 2, i64::MAX / 2, false),
    ] {
        let reply = loop {
            let (start, now) = (Instant::now(), client.owner().now().0);
            let [arrival, sent_at] = [arrival, sent_at].map(|offset| now.saturating_add_signed(offset));
            let charge = ChargeRequest {
                key: (&api_key(&key)).into(),
                id: ChargeId::next().number(),
                arrival,
                slot: None,
                restrictions: None,
            };
            let reply = client.call(Request::Charge(charge), LedgerTime(sent_at)).await.expect("home answers");
            charged += u64::from(matches!(reply, Reply::Verdict(_)));
            // On a busy machine a charge can really be late.
            if start.elapsed() < DELIVERY_TIMEOUT / 2 {
                break reply;
            }
        };
        assert_eq!(matches!(reply, Reply::Verdict(_)), is_processed, "{arrival} {sent_at}: {reply:?}");
    }
    assert_eq!(sites.charged(&key.id).await, charged);
    assert_eq!(lookup_status(&sites.deployment.nodes[0], &key.key).await, 200, "other charges are not affected");
}
