//! The burst limit on one node, when Redis does not know of all requests.

use std::thread;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use ipseity_domain::BURST_LIMIT;
use tokio::time::sleep;

use crate::fixture::{ApiFixture, id_of};

/// As shipped.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

/// A container that used up its CPU quota is stopped like this. Redis is healthy all the time.
#[tokio::test]
async fn stalled_process_does_not_exceed_the_burst_limit() {
    let fixture = ApiFixture::with_options(|options| options.timeout = DEFAULT_TIMEOUT).await;
    let key = fixture.create_known_key().await;
    let requests = stream::iter(0..BURST_LIMIT + 120).map(|_| fixture.node.request(&key)).buffer_unordered(16);
    let stalls = async {
        loop {
            // Blocks the only thread of this runtime.
            thread::sleep(DEFAULT_TIMEOUT * 3 / 2);
            sleep(DEFAULT_TIMEOUT / 5).await;
        }
    };
    let statuses: Vec<u16> = tokio::select! {
        statuses = requests.collect() => statuses,
        () = stalls => unreachable!("stalls do not end"),
    };
    let admitted = 1 + statuses.iter().filter(|status| **status == 200).count();
    assert!(admitted <= BURST_LIMIT, "{admitted} admitted");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 403 | 429)), "{statuses:?}");
    fixture.node.recover().await;
    fixture.node.reconcile_all().await;
    let charged = fixture.charged(&key).await;
    let unverifiable = fixture.node.metric("unverifiable_charges_total");
    assert!(charged <= admitted as u64 && admitted as u64 <= charged + unverifiable, "{charged} of {admitted}");
}

#[tokio::test]
async fn node_remembers_its_requests_when_redis_loses_its_memory() {
    let fixture = ApiFixture::open().await;
    let key = fixture.create_known_key().await;
    for _ in 1..BURST_LIMIT {
        assert_eq!(fixture.node.request(&key).await, 200);
    }
    fixture.redis.flushall().await.expect("Redis answers");
    assert_eq!(fixture.node.request(&key).await, 429);
    assert_eq!(fixture.node.request_degraded(&key).await, 403, "Redis does not know of the pause");
    fixture.node.reconcile_all().await;
    let ledger_paused = fixture.ledger.is_paused(id_of(&key)).await.expect("Redis answers");
    assert!(ledger_paused, "the pause is reconciled");
    assert_eq!(fixture.charged(&key).await, BURST_LIMIT as u64, "refused requests are not charged");
}
