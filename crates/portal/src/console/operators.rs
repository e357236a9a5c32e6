//! The operators: an admin adds and removes them, and changes their roles.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_store::{OperatorRole, OperatorSummary};

use crate::auth::csrf_form::CsrfForm;
use crate::console::error::ConsoleError;
use crate::console::join::{generate_operator_link, parse_name};
use crate::console::operator::CurrentOperator;
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::pages::{OperatorItem, OperatorLinkPage, OperatorsPage};
use crate::page::{redirect_with_notice, render_page};
use crate::time;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let operators = console.store.operators().list().await?;
    let item = |summary: OperatorSummary| OperatorItem {
        id: summary.operator.id,
        name: summary.operator.name,
        role: summary.operator.role,
        is_self: summary.operator.id == operator.operator.id,
        added: time::format_date(summary.created_s),
        last_seen: summary.last_seen_s.map(time::format_minute),
        has_joined: summary.credentials > 0,
        has_link: summary.has_link,
    };
    Ok(render_page(&OperatorsPage {
        frame: operator.frame("Operators", ConsoleTab::Operators),
        operators: operators.into_iter().map(item).collect(),
    }))
}

pub(super) async fn invite(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let (name, role) = (parse_name(form.field("name"))?, parse_role(form.field("role"))?);
    let (url, digest) = generate_operator_link(&console.settings.url);
    console.stores_of(&operator.operator)?.store.operators().invite(&name, role, &digest).await?;
    Ok(link_page(&operator, name.as_str(), url))
}

pub(super) async fn renew_link(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let (url, digest) = generate_operator_link(&console.settings.url);
    let name = console.stores_of(&operator.operator)?.store.operators().renew_link(id, &digest).await?;
    Ok(link_page(&operator, &name, url))
}

fn link_page(operator: &CurrentOperator, name: &str, url: String) -> Response {
    let frame = operator.frame("Sign-in link", ConsoleTab::Operators);
    render_page(&OperatorLinkPage { frame, name: name.to_owned(), url })
}

pub(super) async fn set_role(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let role = parse_role(form.field("role"))?;
    console.stores_of(&operator.operator)?.store.operators().set_role(id, role).await?;
    Ok(redirect_with_notice("/operators", "role"))
}

pub(super) async fn remove(
    State(console): State<Arc<Console>>,
    PathPart(id): PathPart<i64>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.stores_of(&operator.operator)?.store.operators().remove(id).await?;
    Ok(redirect_with_notice("/operators", "removed"))
}

fn parse_role(text: &str) -> Result<OperatorRole, ConsoleError> {
    OperatorRole::parse(text).ok_or_else(|| ConsoleError::Rejected("Choose a role.".to_owned()))
}
