//! A caller that means well, while others do not: it asks at a steady pace, by turns over a connection that it keeps
//! and over a new one.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::quic::QuicOptions;
use testkit::{Caller, House, Issued, Node, QuicCaller, Reply};
use tokio::time::{MissedTickBehavior, interval};

/// Its own address: it shares no neighbourhood with the attackers.
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const PACE: Duration = Duration::from_millis(50);
const LOOKUP: &str = "/api/v1/ip";

/// What it met.
pub(crate) struct Seen {
    pub(crate) answered: usize,
    pub(crate) failures: Vec<String>,
    pub(crate) p99_ms: f64,
}

/// Asks for so long over HTTP/1.1 in clear, and beside it over HTTP/3.
pub(crate) async fn ask(house: &House, node: &Node, keys: &[Issued], lasting: Duration) -> [Seen; 2] {
    let options = QuicOptions { source: Some(HONEST), ..QuicOptions::to(node.https(), &house.certificate.authority) };
    let mut kept = Caller::from_address(node.http(), HONEST);
    let mut kept_quic = QuicCaller::open(options.clone()).await.expect("a connection");
    let clear = measure(keys, lasting, async |is_new, headers| {
        if is_new {
            Caller::from_address(node.http(), HONEST).get(LOOKUP, headers).await
        } else {
            kept.get(LOOKUP, headers).await
        }
    });
    let quic = measure(keys, lasting, async |is_new, headers| {
        if is_new {
            let mut caller = QuicCaller::open(options.clone()).await?;
            let reply = caller.get(LOOKUP, headers).await;
            caller.hang_up();
            reply
        } else {
            kept_quic.get(LOOKUP, headers).await
        }
    });
    let (clear, quic) = tokio::join!(clear, quic);
    [clear, quic]
}

async fn measure(
    keys: &[Issued],
    lasting: Duration,
    mut ask: impl AsyncFnMut(bool, &[(&str, &str)]) -> Result<Reply>,
) -> Seen {
    let (mut times_ms, mut failures) = (Vec::new(), Vec::new());
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    for (turn, key) in keys.iter().cycle().enumerate() {
        pace.tick().await;
        if start.elapsed() >= lasting {
            break;
        }
        let asked = Instant::now();
        match ask(turn % 2 == 1, &[("authorization", &key.bearer())]).await {
            Ok(reply) if reply.status == 200 => times_ms.push(asked.elapsed().as_secs_f64() * 1000.0),
            Ok(reply) => failures.push(format!("status {}", reply.status)),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    times_ms.sort_by(f64::total_cmp);
    let rank = (times_ms.len() * 99).div_ceil(100).saturating_sub(1);
    let p99_ms = times_ms.get(rank).copied().unwrap_or(f64::INFINITY);
    Seen { answered: times_ms.len(), failures, p99_ms }
}
