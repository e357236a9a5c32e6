//! A legitimate client that sends requests at a steady rate during attacks, alternately over a kept and a new
//! connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Result;
use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::{Deployment, Http3TestClient, IssuedKey, Node, TestClient, TestResponse};
use tokio::time::{MissedTickBehavior, interval};

/// An address outside the attackers' subnets.
const CLIENT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);
const LOOKUP_PATH: &str = "/api/v1/ip";

/// Result of a measurement.
pub(crate) struct BaselineStats {
    pub(crate) succeeded: usize,
    pub(crate) failures: Vec<String>,
    pub(crate) p99_ms: f64,
}

/// Measures for this long over plain HTTP/1.1 at this address, and over HTTP/3 in parallel.
pub(crate) async fn measure_baseline(
    deployment: &Deployment,
    node: &Node,
    http: SocketAddr,
    keys: &[IssuedKey],
    duration: Duration,
) -> [BaselineStats; 2] {
    let options = Http3TestOptions {
        source_ip: Some(CLIENT_ADDRESS),
        ..Http3TestOptions::localhost(node.https(), &deployment.certificate.ca_file)
    };
    let mut reused = TestClient::from_source(http, CLIENT_ADDRESS);
    let mut reused_quic = Http3TestClient::connect(options.clone()).await.expect("connection opens");
    let clear = measure_protocol(keys, duration, async |is_new, headers| {
        if is_new {
            TestClient::from_source(http, CLIENT_ADDRESS).get(LOOKUP_PATH, headers).await
        } else {
            reused.get(LOOKUP_PATH, headers).await
        }
    });
    let quic = measure_protocol(keys, duration, async |is_new, headers| {
        if is_new {
            let mut caller = Http3TestClient::connect(options.clone()).await?;
            let reply = caller.get(LOOKUP_PATH, headers).await;
            caller.close_now();
            reply
        } else {
            reused_quic.get(LOOKUP_PATH, headers).await
        }
    });
    let (clear, quic) = tokio::join!(clear, quic);
    [clear, quic]
}

async fn measure_protocol(
    keys: &[IssuedKey],
    duration: Duration,
    mut send: impl AsyncFnMut(bool, &[(&str, &str)]) -> Result<TestResponse>,
) -> BaselineStats {
    let (mut times_ms, mut failures) = (Vec::new(), Vec::new());
    let mut ticker = interval(REQUEST_INTERVAL);
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    for (index, key) in keys.iter().cycle().enumerate() {
        ticker.tick().await;
        if start.elapsed() >= duration {
            break;
        }
        let sent_at = Instant::now();
        match send(index % 2 == 1, &[("authorization", &key.bearer())]).await {
            Ok(reply) if reply.status == 200 => times_ms.push(sent_at.elapsed().as_secs_f64() * 1000.0),
            Ok(reply) => failures.push(format!("status {}", reply.status)),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    times_ms.sort_by(f64::total_cmp);
    let rank = (times_ms.len() * 99).div_ceil(100).saturating_sub(1);
    let p99_ms = times_ms.get(rank).copied().unwrap_or(f64::INFINITY);
    BaselineStats { succeeded: times_ms.len(), failures, p99_ms }
}
