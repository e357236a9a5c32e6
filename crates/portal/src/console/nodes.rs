//! The nodes of the deployment, by their heartbeats.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_store::NodeSummary;

use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::{NodeItem, NodesPage};
use crate::page::render_page;
use crate::time;

/// Several heartbeats of a node are missing after this time.
const MISSING_AFTER_S: i64 = 90;

pub(super) fn is_missing(node: &NodeSummary) -> bool {
    node.seen_ago_s > MISSING_AFTER_S
}

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let (nodes, sites) = tokio::try_join!(console.store.nodes().list(), console.store.sites().list())?;
    let item = |node: NodeSummary| NodeItem {
        is_missing: is_missing(&node),
        role: node.role.name(),
        name: node.name,
        site: node.site,
        version: node.version,
        schema_version: node.schema_version,
        started: node.started_s.map(time::format_minute),
        seen_ago_s: node.seen_ago_s,
        is_draining: node.is_draining,
        is_degraded: node.is_degraded,
    };
    Ok(render_page(&NodesPage {
        frame: operator.frame("Nodes", ConsoleTab::Nodes),
        nodes: nodes.into_iter().map(item).collect(),
        sites: sites.into_iter().map(|site| site.name).collect(),
    }))
}
