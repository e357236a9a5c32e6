//! Faults of remote nodes and of the home node that they use.

use anyhow::Result;

use crate::fault_kind::FaultKind;
use crate::history::FaultEffect;
use crate::inject::{ActiveFault, BOTH_UNREACHABLE, Injection};

/// The first home node in the settings of remote nodes.
const HOME_NODE: usize = 0;

impl Injection<'_> {
    pub(super) fn begin_sites(&mut self, active: &mut ActiveFault) {
        let Some(node) = concerned_node(active) else { return };
        self.open_for_node(active, FaultEffect::NodeDown, node);
        if is_kill(active.kind) {
            self.open_for_node(active, FaultEffect::NodeKilled, node);
            self.fixture.deployment.nodes[node].kill9();
        } else {
            for effect in BOTH_UNREACHABLE {
                self.open_for_node(active, effect, node);
            }
            self.fixture.deployment.nodes[node].freeze();
        }
    }

    pub(super) async fn end_sites(&mut self, active: &ActiveFault) -> Result<()> {
        let Some(node) = concerned_node(active) else { return Ok(()) };
        if is_kill(active.kind) {
            self.fixture.replace_node(node).await?;
            // The slot of a killed process stays reserved for some seconds.
            self.fixture.is_ruined = true;
        } else {
            self.fixture.deployment.nodes[node].thaw();
        }
        Ok(())
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
const fn concerned_node(active: &ActiveFault) -> Option<usize> {
    match active.kind {
        FaultKind::HomeNodeKilled | FaultKind::HomeNodeFrozen => Some(HOME_NODE),
        FaultKind::RemoteNodeKilled | FaultKind::RemoteNodeFrozen => Some(active.remote),
        _ => None,
    }
}

const fn is_kill(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::HomeNodeKilled | FaultKind::RemoteNodeKilled)
}
