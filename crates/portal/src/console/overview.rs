//! The first page: what needs attention, and how much there is.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_store::ApproximateCount;

use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::OverviewPage;
use crate::page::render_page;
use crate::view::filters::with_commas;

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let (overview, nodes) = tokio::try_join!(console.store.console().overview(), console.store.nodes().list())?;
    let health = console.host.health();
    Ok(render_page(&OverviewPage {
        frame: operator.frame("Overview", ConsoleTab::Overview),
        accounts: count_text(overview.accounts),
        keys: count_text(overview.keys),
        paused_keys: count_text(overview.paused_keys),
        deactivated_keys: count_text(overview.deactivated_keys),
        failed_stores: health.iter().filter(|check| check.error.is_some()).map(|check| check.name).collect(),
        missing_nodes: nodes.iter().filter(|node| super::nodes::is_missing(node)).count(),
        overview,
    }))
}

/// Such as `1,234`, or `about 1,000,000`.
fn count_text(count: ApproximateCount) -> String {
    let digits = with_commas(&count.count.to_string());
    if count.is_exact { digits } else { format!("about {digits}") }
}
