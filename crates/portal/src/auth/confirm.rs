//! Confirms that the owner makes a change, and not only someone with the session.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::Uri;

use crate::account::WRONG_PASSWORD;
use crate::auth::csrf_form::CsrfForm;
use crate::auth::next_path::NextPath;
use crate::auth::password::Password;
use crate::auth::second_factor::WRONG_CODE;
use crate::error::PortalError;
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::view::auth::ConfirmPage;
use crate::view::frame::Tab;

pub(crate) async fn show(
    State(portal): State<Arc<Portal>>,
    uri: Uri,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    confirm_page(&portal, &member, &NextPath::from_query(&uri), None).await
}

async fn confirm_page(
    portal: &Portal,
    member: &CurrentMember,
    next: &NextPath,
    form_error: Option<&str>,
) -> Result<Response, PortalError> {
    let factors = portal.store.two_factor().factors(member.account.id).await?;
    Ok(render_page(&ConfirmPage {
        frame: member.frame(portal, "Confirm it’s you", Tab::Account),
        email: member.account.email.clone(),
        next: next.clone(),
        needs_code: factors.is_enabled,
        has_passkeys: factors.passkeys > 0 && portal.webauthn.is_some(),
        form_error: form_error.map(str::to_owned),
    }))
}

pub(crate) async fn confirm_password(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let next = &NextPath::parse(form.field("next"));
    if !portal.verify_own_password(&member, form.field("password")).await? {
        return confirm_page(&portal, &member, next, Some(WRONG_PASSWORD)).await;
    }
    if member.has_two_factor && !portal.verify_second_factor(member.account.id, form.field("code")).await? {
        return confirm_page(&portal, &member, next, Some(WRONG_CODE)).await;
    }
    portal.finish_confirmation(&member, next).await
}

impl Portal {
    /// Confirms a change: by a confirmation of this session in the last five minutes, or by the password. With two-factor
    /// authentication the password is not enough. The page that confirms the session then leads to `next`.
    ///
    /// # Errors
    /// If the session must be confirmed first.
    pub(crate) async fn confirm_member(
        self: &Arc<Self>,
        member: &CurrentMember,
        password_input: &str,
        next: &str,
    ) -> Result<bool, PortalError> {
        member.require_second_factor(next)?;
        if member.is_confirmed {
            return Ok(true);
        }
        self.verify_own_password(member, password_input).await
    }

    /// Verifies the password of a member. Attempts count by account, so that a stolen session cannot guess the password from many
    /// networks.
    async fn verify_own_password(
        self: &Arc<Self>,
        member: &CurrentMember,
        password_input: &str,
    ) -> Result<bool, PortalError> {
        let account_id = member.account.id;
        self.confirmation_throttle.record_attempt(account_id)?;
        let Some(password) = Password::parse(password_input) else { return Ok(false) };
        let verified = async {
            let hash = self.store.accounts().password_hash(account_id).await?;
            let verification = self.password_pool.verify(member.password_requester(), password, hash).await?;
            Ok::<_, PortalError>(self.accept_verified(account_id, verification))
        };
        let is_correct = verified.await.inspect_err(|_| self.confirmation_throttle.give_back(&account_id))?;
        if is_correct {
            self.confirmation_throttle.reset(&account_id);
        }
        Ok(is_correct)
    }

    /// Records the confirmation of a session, and returns to the page that needs it.
    pub(crate) async fn finish_confirmation(
        &self,
        member: &CurrentMember,
        next: &NextPath,
    ) -> Result<Response, PortalError> {
        self.store.sessions().confirm(member.session_id).await?;
        Ok(Redirect::to(next.as_deref().unwrap_or("/account")).into_response())
    }
}
