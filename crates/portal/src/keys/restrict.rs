//! The restrictions of a key: its owner changes them on the page of the key.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use ipseity_store::{StoreError, StoreRefusal};

use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::keys::detail::{load_key_page, parse_key_id, redirect_after};
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::restrictions::{RestrictionFields, RestrictionsError, RestrictionsPanel};

pub(crate) async fn restrict(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let mut fields = RestrictionFields::entered(&form);
    let saved = portal.find_own_key(&member, &id).await?.restrictions;
    let Some(restrictions) = fields.parse(time::now_s(), saved.expires_at_s) else {
        return rejected_page(&portal, &member, &id, fields, RestrictionsError::Invalid).await;
    };
    // Not a redirect, which would lose what the member entered.
    if !member.is_recent {
        return rejected_page(&portal, &member, &id, fields, RestrictionsError::ConfirmationNeeded).await;
    }
    portal.record_key_action(&member)?;
    let version = form.field("version").parse().ok();
    match portal.key_service.restrict(member.actor(), parse_key_id(&id)?, &restrictions, version).await {
        Ok(committed) => Ok(redirect_after(&id, &committed, "restricted")),
        Err(StoreError::Refused(StoreRefusal::RestrictionsChanged)) => {
            rejected_page(&portal, &member, &id, fields, RestrictionsError::Changed).await
        }
        Err(StoreError::Refused(StoreRefusal::RestrictionsNotEnabled)) => {
            rejected_page(&portal, &member, &id, fields, RestrictionsError::NotEnabled).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Not throttled, like every revocation.
pub(crate) async fn invalidate_tickets(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    match portal.key_service.invalidate_tickets(member.actor(), parse_key_id(&id)?).await {
        Ok(committed) => Ok(redirect_after(&id, &committed, "tickets-invalidated")),
        Err(StoreError::Refused(StoreRefusal::RestrictionsNotEnabled)) => {
            let mut page = load_key_page(&portal, &member, &id).await?;
            page.restrictions.error = Some(RestrictionsError::NotEnabled);
            Ok(render_page(&page))
        }
        Err(error) => Err(error.into()),
    }
}

/// The page of the key with what the member entered, and why it is not saved.
async fn rejected_page(
    portal: &Portal,
    member: &CurrentMember,
    id: &str,
    fields: RestrictionFields,
    error: RestrictionsError,
) -> Result<Response, PortalError> {
    let mut page = load_key_page(portal, member, id).await?;
    page.restrictions = RestrictionsPanel { fields, error: Some(error), ..page.restrictions };
    Ok(render_page(&page))
}
