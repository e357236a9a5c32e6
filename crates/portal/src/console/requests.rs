//! Requests of owners for higher limits.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use ipseity_store::{LIMIT_REQUEST_CHARS_MAX, LimitDecision, LimitRequest, LimitRequestState};
use serde::Deserialize;

use crate::auth::csrf_form::CsrfForm;
use crate::console::accounts::publish_all;
use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::{LimitRequestItem, RequestsPage};
use crate::page::{redirect_with_notice, render_page};
use crate::time;

const REQUESTS_MAX: i64 = 50;

#[derive(Deserialize)]
pub(super) struct RequestsQuery {
    #[serde(default)]
    state: String,
}

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    Query(RequestsQuery { state }): Query<RequestsQuery>,
) -> Result<Response, ConsoleError> {
    let state = LimitRequestState::find(&state).unwrap_or(LimitRequestState::Open);
    let requests = console.store.limit_requests().list(state, REQUESTS_MAX).await?;
    let item = |request: LimitRequest| LimitRequestItem {
        id: request.id,
        account_id: request.account_id,
        email: request.email,
        daily_limit: request.daily_limit,
        message: request.message,
        answer: request.answer,
        created: time::format_minute(request.created_s),
        decided: request.decided_s.map(time::format_minute),
    };
    Ok(render_page(&RequestsPage {
        frame: operator.frame("Requests for higher limits", ConsoleTab::Requests),
        state: state.name(),
        is_cut: requests.len() == usize::try_from(REQUESTS_MAX).unwrap_or(usize::MAX),
        requests: requests.into_iter().map(item).collect(),
    }))
}

/// Records the answer, and raises the limit if it is granted.
pub(super) async fn decide(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let (decision, notice) = match form.field("decision") {
        "granted" => (LimitDecision::Grant, "granted"),
        "declined" => (LimitDecision::Decline, "declined"),
        _ => return Err(ConsoleError::Rejected("Grant or decline the request.".to_owned())),
    };
    let answer = form.field("answer").trim();
    if answer.chars().count() > LIMIT_REQUEST_CHARS_MAX {
        let reason = format!("Enter an answer of at most {LIMIT_REQUEST_CHARS_MAX} characters.");
        return Err(ConsoleError::Rejected(reason));
    }
    let stores = console.stores_of(&operator.operator)?;
    let requests = stores.store.limit_requests();
    let Some(keys) = requests.decide(id, decision, answer).await? else {
        requests.find(id).await?.ok_or(ConsoleError::NotFound)?;
        return Err(ConsoleError::Rejected("Another operator has answered this request.".to_owned()));
    };
    Ok(redirect_with_notice("/requests", publish_all(&stores, keys, notice).await?))
}
