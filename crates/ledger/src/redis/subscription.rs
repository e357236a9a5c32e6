//! A connection that receives what the scripts of one server publish.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ipseity_domain::KeyId;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};

use crate::redis::node::RedisNode;
use crate::scripts::{CHANGES_CHANNEL, random_nonce};

/// What the feed tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotNotice {
    /// The slots of this key were closed.
    Closed(KeyId),
    /// Keys may have been closed unnoticed.
    Missed,
    /// All keys that were closed before this instant have been reported.
    CompleteUntil(Instant),
}

/// A connection that receives what one server publishes.
pub(crate) struct Subscription {
    node: Arc<RedisNode>,
    conn: MultiplexedConnection,
}

impl Subscription {
    /// Subscribes, and checks that what is published arrives. `None` if it does not. `on_notice` is called for each key that
    /// is published, and when the connection is lost.
    pub(crate) async fn open(
        node: &Arc<RedisNode>,
        on_notice: impl Fn(SlotNotice) + Send + Sync + 'static,
    ) -> Option<Self> {
        let (test, has_received_test) = (random_nonce(), Arc::new(AtomicBool::new(false)));
        let (expected, received) = (test.clone(), Arc::clone(&has_received_test));
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_push_sender(move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                on_notice(SlotNotice::Missed);
            } else if push.kind == PushKind::Message
                && let Some(text) = published_text(&push.data)
            {
                if text == expected {
                    received.store(true, Ordering::Release);
                } else if let Some(key) = KeyId::parse(&text) {
                    // The tests of other nodes are no keys.
                    on_notice(SlotNotice::Closed(key));
                }
            }
            Ok::<_, redis::aio::SendError>(())
        });
        let mut conn = node.client().get_multiplexed_async_connection_with_config(&config).await.ok()?;
        conn.subscribe(CHANGES_CHANNEL).await.ok()?;
        // The user may lack the right to publish, which a script does not report.
        redis::cmd("PUBLISH").arg(CHANGES_CHANNEL).arg(test).exec_async(&mut conn).await.ok()?;
        let subscription = Self { node: Arc::clone(node), conn };
        let is_usable = subscription.ping().await && has_received_test.load(Ordering::Acquire);
        is_usable.then_some(subscription)
    }

    pub(crate) fn is_of(&self, node: &Arc<RedisNode>) -> bool {
        Arc::ptr_eq(&self.node, node)
    }

    /// Whether the server answers. What it published before has been received then.
    pub(crate) async fn ping(&self) -> bool {
        redis::cmd("PING").exec_async(&mut self.conn.clone()).await.is_ok()
    }
}

/// The payload of a message, which follows the channel.
fn published_text(data: &[Value]) -> Option<String> {
    let Value::BulkString(bytes) = data.get(1)? else { return None };
    String::from_utf8(bytes.clone()).ok()
}
