//! Emails that are not sent yet.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_store::{UnsentEmail, UnsentQueue};

use crate::auth::csrf_form::CsrfForm;
use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::{EmailsPage, UnsentEmailItem};
use crate::page::{redirect_with_notice, render_page};
use crate::time;

const EMAILS_MAX: i64 = 100;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
) -> Result<Response, ConsoleError> {
    let emails = console.store.console().unsent_emails(EMAILS_MAX).await?;
    let item = |email: UnsentEmail| UnsentEmailItem {
        queue: email.queue.name(),
        id: email.id,
        kind: email.kind,
        email: email.email,
        created: time::format_minute(email.created_s),
        attempts: email.attempts,
        next_attempt: email.next_attempt_s.map(time::format_minute),
        state: email.state.name(),
    };
    Ok(render_page(&EmailsPage {
        frame: operator.frame("Emails", ConsoleTab::Emails),
        emails: emails.into_iter().map(item).collect(),
    }))
}

pub(super) async fn retry(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.require_email()?;
    let queue = UnsentQueue::find(form.field("queue")).ok_or(ConsoleError::NotFound)?;
    let stores = console.stores_of(&operator.operator)?;
    if !stores.store.console().retry_email(queue, form.field("id")).await? {
        return Err(ConsoleError::Rejected("The email was sent meanwhile, or its link has expired.".to_owned()));
    }
    Ok(redirect_with_notice("/emails", "queued"))
}
