//! The second step of a sign-in: a code of an authenticator app, a recovery code or a passkey.

use std::sync::Arc;
use std::time::SystemTime;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, Uri};
use ipseity_domain::Client;
use ipseity_store::SessionStart;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::next_path::NextPath;
use crate::auth::sign_in_counts::SignInOutcome;
use crate::auth::{recovery_codes, totp};
use crate::error::PortalError;
use crate::page::Visitor;
use crate::state::Portal;
use crate::view::auth::SecondFactorPage;
use crate::view::frame::Tab;

pub(crate) const WRONG_CODE: &str =
    "Incorrect code. Codes work once. Check the time of your device, or use another code.";

pub(crate) async fn show(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    uri: Uri,
    visitor: Visitor,
) -> Result<Response, PortalError> {
    let account_id = portal.pending_account(&visitor, &client).await?;
    portal.second_factor_page(&visitor, account_id, NextPath::from_query(&uri), None).await
}

pub(crate) async fn verify(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let next = NextPath::parse(form.field("next"));
    let account_id = portal.pending_account(&visitor, &client).await?;
    if !portal.verify_second_factor(account_id, form.field("code")).await? {
        return portal.second_factor_page(&visitor, account_id, next, Some(WRONG_CODE)).await;
    }
    if !portal.store.two_factor().take_pending(&visitor.session_cookie.digest()).await? {
        return Err(PortalError::NotSignedIn);
    }
    portal.open_session(account_id, &headers, SessionStart::SignIn, &next).await
}

impl Portal {
    /// Continues after a correct password or a linked identity: with the second step if the account has one.
    pub(crate) async fn finish_first_factor(
        &self,
        account_id: i64,
        start: SessionStart,
        headers: &HeaderMap,
        visitor: &Visitor,
        next: &NextPath,
    ) -> Result<Response, PortalError> {
        if !self.store.two_factor().factors(account_id).await?.is_enabled {
            return self.open_session(account_id, headers, start, next).await;
        }
        self.store.two_factor().save_pending(&visitor.session_cookie.digest(), account_id).await?;
        Ok(Redirect::to(&next.append_to("/signin/verify")).into_response())
    }

    /// The account whose first factor this browser has shown.
    async fn pending_account(&self, visitor: &Visitor, client: &Client) -> Result<i64, PortalError> {
        if visitor.session_cookie.is_new() {
            return Err(PortalError::NotSignedIn);
        }
        let digest = visitor.session_cookie.digest();
        let lookup = self.store.two_factor().find_pending(&digest);
        let pending = self.secret_lookups.find_limited(digest, client.address.subnet(), lookup).await?;
        pending.ok_or(PortalError::NotSignedIn)
    }

    async fn second_factor_page(
        &self,
        visitor: &Visitor,
        account_id: i64,
        next: NextPath,
        form_error: Option<&str>,
    ) -> Result<Response, PortalError> {
        let factors = self.store.two_factor().factors(account_id).await?;
        Ok(visitor.render(
            self,
            &SecondFactorPage {
                frame: visitor.frame(&self.public_pages, "Confirm it’s you", Tab::None),
                next,
                has_totp: factors.has_totp,
                has_passkeys: factors.passkeys > 0 && self.webauthn.is_some(),
                form_error: form_error.map(str::to_owned),
            },
        ))
    }

    /// Verifies a code of the authenticator app or a recovery code, and uses it up. Attempts count by account.
    pub(crate) async fn verify_second_factor(&self, account_id: i64, code: &str) -> Result<bool, PortalError> {
        self.second_factor_throttle.record_attempt(account_id).map_err(PortalError::CodesThrottled)?;
        let is_correct = self
            .use_code(account_id, code)
            .await
            .inspect_err(|_| self.second_factor_throttle.give_back(&account_id))?;
        if is_correct {
            self.second_factor_throttle.reset(&account_id);
        } else {
            self.sign_in_counts.inc(SignInOutcome::WrongCode);
        }
        Ok(is_correct)
    }

    async fn use_code(&self, account_id: i64, code: &str) -> Result<bool, PortalError> {
        let digits: String = code.chars().filter(|c| !c.is_whitespace()).collect();
        if let Some(totp_state) = self.store.two_factor().totp(account_id).await?
            && let Some(step) = totp::find_step(&totp_state.secret, &digits, now_s())
        {
            return Ok(self.store.two_factor().accept_totp_step(account_id, step).await?);
        }
        Ok(self.store.two_factor().use_recovery_code(account_id, &recovery_codes::digest(code)).await?)
    }
}

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
