//! The accounts of other providers with which a member signs in.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use ipseity_store::LinkedIdentity;

use crate::account::WRONG_PASSWORD;
use crate::auth::csrf_form::CsrfForm;
use crate::auth::providers::LINKED_ACCOUNTS;
use crate::error::PortalError;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::frame::Tab;
use crate::view::linked_accounts::{LinkedAccountItem, LinkedAccountsPage};

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    linked_accounts_page(&portal, &member, None).await
}

async fn linked_accounts_page(
    portal: &Portal,
    member: &CurrentMember,
    form_error: Option<&str>,
) -> Result<Response, PortalError> {
    let identities = portal.store.identities().list(member.account.id).await?;
    let item = |identity: LinkedIdentity| LinkedAccountItem {
        id: identity.id,
        provider: portal.providers.name_of(&identity.issuer),
        label: identity.label,
        linked: time::format_date(identity.created_s),
        last_used: identity.used_s.map(time::format_minute),
    };
    Ok(render_page(&LinkedAccountsPage {
        frame: member.frame(portal, "Linked accounts", Tab::Account),
        email: member.account.email.clone(),
        identities: identities.into_iter().map(item).collect(),
        providers: portal.providers.names(),
        needs_password: member.needs_password(),
        has_two_factor: member.has_two_factor,
        form_error: form_error.map(str::to_owned),
    }))
}

/// Adding a way to sign in needs the same confirmation as adding a passkey.
pub(crate) async fn link(
    State(portal): State<Arc<Portal>>,
    Path(index): Path<String>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.confirm_member(&member, form.field("password"), LINKED_ACCOUNTS).await? {
        return linked_accounts_page(&portal, &member, Some(WRONG_PASSWORD)).await;
    }
    portal.record_account_change(&member)?;
    portal.begin_link(&index, &member).await
}

pub(crate) async fn unlink(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    let id = id.parse().map_err(|_| PortalError::NotFound)?;
    member.require_recent(LINKED_ACCOUNTS)?;
    match portal.store.identities().unlink(member.account.id, member.session_id, id).await? {
        true => Ok(redirect_with_notice(LINKED_ACCOUNTS, "unlinked")),
        false => Err(PortalError::NotFound),
    }
}
