//! Rejected requests of all keys, by day and reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_store::RefusalReason;

use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::{RejectionDay, RejectionsPage};
use crate::page::render_page;

const DAYS: u16 = 30;
/// In the order of the columns.
const REASONS: [RefusalReason; 6] = [
    RefusalReason::Burst,
    RefusalReason::Paused,
    RefusalReason::Inactive,
    RefusalReason::QuotaExhausted,
    RefusalReason::WrongSecret,
    RefusalReason::Restricted,
];

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let rows = console.store.console().refusals(DAYS).await?;
    let mut days: BTreeMap<String, [u64; 6]> = BTreeMap::new();
    for row in rows {
        let Some(index) = REASONS.iter().position(|reason| reason.name() == row.reason) else { continue };
        days.entry(row.day).or_default()[index] += row.count.unsigned_abs();
    }
    let days = days.into_iter().rev();
    Ok(render_page(&RejectionsPage {
        frame: operator.frame("Rejections", ConsoleTab::Rejections),
        days: days.map(|(day, by_reason)| RejectionDay { day, total: by_reason.iter().sum(), by_reason }).collect(),
    }))
}
