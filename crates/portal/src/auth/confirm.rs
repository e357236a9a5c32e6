//! Confirms that the owner makes a change, and not only someone with the session.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::Uri;

use crate::account::WRONG_PASSWORD;
use crate::auth::csrf_form::CsrfForm;
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
    let next = uri.query().and_then(|query| query.strip_prefix("next=")).unwrap_or_default();
    confirm_page(&portal, &member, next, None).await
}

async fn confirm_page(
    portal: &Portal,
    member: &CurrentMember,
    next: &str,
    form_error: Option<&str>,
) -> Result<Response, PortalError> {
    let factors = portal.store.two_factor().factors(member.account.id).await?;
    Ok(render_page(&ConfirmPage {
        frame: member.frame(portal, "Confirm it’s you", Tab::Account),
        email: member.account.email.clone(),
        next: local_path(next).to_owned(),
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
    let next = form.field("next");
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
        next: &str,
    ) -> Result<Response, PortalError> {
        self.store.sessions().confirm(member.session_id).await?;
        Ok(Redirect::to(local_path(next)).into_response())
    }
}

/// The path if it is one of ours. Anything else could lead to another site.
fn local_path(next: &str) -> &str {
    let is_plain = next.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_'));
    let is_local = ["/keys", "/account"].iter().any(|start| next.starts_with(start));
    if is_plain && is_local { next } else { "/account" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_members_are_returned_to() {
        for path in ["/keys", "/keys/new", "/keys/0123456789/delete", "/account/two-factor"] {
            assert_eq!(local_path(path), path);
        }
        for other in
            ["", "//evil.example", "https://evil.example", "/keys?x", "/keys/..%2f", "/signout", "keys", "/keys\\x"]
        {
            assert_eq!(local_path(other), "/account", "{other}");
        }
    }
}
