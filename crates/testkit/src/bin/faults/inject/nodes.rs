//! Faults of nodes.

use anyhow::Result;
use tokio::time::sleep;

use crate::fault_kind::FaultKind;
use crate::fixture::NODES;
use crate::history::FaultEffect;
use crate::inject::{ActiveFault, BOTH_UNREACHABLE, Injection};

/// The node that is killed, stopped or frozen.
const FAULTY_NODE: usize = 1;

impl Injection<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn begin_nodes(&mut self, active: &mut ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::NodeKilled => self.kill_node(active),
            FaultKind::NodeReplaced => {
                self.open_for_node(active, FaultEffect::NodeDown, FAULTY_NODE);
                self.fixture.deployment.nodes[FAULTY_NODE].terminate().await?;
            }
            FaultKind::NodeFrozen => {
                self.open_for_node(active, FaultEffect::NodeDown, FAULTY_NODE);
                for effect in BOTH_UNREACHABLE {
                    self.open_for_node(active, effect, FAULTY_NODE);
                }
                self.fixture.deployment.nodes[FAULTY_NODE].freeze();
            }
            _ => {}
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds do nothing in between")]
    pub(super) async fn tick_nodes(&mut self, active: &ActiveFault) {
        let stalled = match active.kind {
            FaultKind::NodeStalled => FAULTY_NODE..FAULTY_NODE + 1,
            FaultKind::NodesStalled => 0..NODES,
            _ => return,
        };
        // Longer than the timeout of a charge, shorter than anything that a peer would notice.
        let stall = self.random_ms(50..90);
        self.fixture.deployment.nodes[stalled.clone()].iter_mut().for_each(ipseity_testkit::Node::freeze);
        sleep(stall).await;
        self.fixture.deployment.nodes[stalled].iter_mut().for_each(ipseity_testkit::Node::thaw);
        sleep(self.random_ms(5..40)).await;
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn end_nodes(&mut self, active: &mut ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::NodeKilled | FaultKind::NodeReplaced => self.fixture.replace_node(FAULTY_NODE).await?,
            FaultKind::NodeFrozen => self.fixture.deployment.nodes[FAULTY_NODE].thaw(),
            FaultKind::NodeKilledWhileRedisIsDown => {
                self.kill_node(active);
                self.fixture.deployment.redis.restart().await?;
                self.fixture.replace_node(FAULTY_NODE).await?;
            }
            _ => {}
        }
        Ok(())
    }

    fn kill_node(&mut self, active: &mut ActiveFault) {
        self.open_for_node(active, FaultEffect::NodeDown, FAULTY_NODE);
        self.open_for_node(active, FaultEffect::NodeKilled, FAULTY_NODE);
        self.fixture.deployment.nodes[FAULTY_NODE].kill9();
    }
}
