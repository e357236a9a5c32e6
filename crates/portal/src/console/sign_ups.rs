//! Sign-ups per day, the newest accounts, and invitations.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use ipseity_domain::account::EmailAddress;
use serde::Deserialize;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::link::generate_invitation;
use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::search::account_item;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::{DayCount, InvitationPage, SignUpsPage};
use crate::page::render_page;

const DAYS: u16 = 30;
const ACCOUNTS_PER_PAGE: i64 = 50;

#[derive(Deserialize)]
pub(super) struct PageQuery {
    #[serde(default)]
    before: String,
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    Query(PageQuery { before }): Query<PageQuery>,
) -> Result<Response, ConsoleError> {
    let store = console.store.console();
    let (days, newest, open_invitations) = tokio::try_join!(
        store.sign_ups(DAYS),
        store.newest_accounts(before.parse().ok(), ACCOUNTS_PER_PAGE),
        store.open_invitations()
    )?;
    let is_full = newest.len() == usize::try_from(ACCOUNTS_PER_PAGE).unwrap_or(usize::MAX);
    Ok(render_page(&SignUpsPage {
        frame: operator.frame("Sign-ups", ConsoleTab::SignUps),
        total: days.iter().map(|day| day.count).sum(),
        days: days.into_iter().map(|day| DayCount { day: day.day, count: day.count }).collect(),
        next_before: newest.last().filter(|_| is_full).map(|account| account.id),
        accounts: newest.into_iter().map(account_item).collect(),
        open_invitations,
    }))
}

/// Invites a person. Not the owner of an account: the link would let the operator in.
pub(super) async fn invite(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let email = EmailAddress::parse(form.field("email"))
        .ok_or_else(|| ConsoleError::Rejected("Enter a valid email address.".to_owned()))?;
    let (token, digest) = generate_invitation();
    if !console.stores_of(&operator.operator)?.store.email_tokens().create_first_invite(&email, &digest).await? {
        return Err(ConsoleError::Rejected(
            "This person has an account. Send a password reset email from the page of the account.".to_owned(),
        ));
    }
    Ok(render_page(&InvitationPage {
        frame: operator.frame("Invitation", ConsoleTab::SignUps),
        email: email.as_str().to_owned(),
        url: format!("{}/link/{token}", console.settings.base_url),
    }))
}
