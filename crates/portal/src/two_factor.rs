//! Two-factor authentication of an account: setup, recovery codes, and turning it off.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_store::{StoreError, StoreRefusal, TotpState};
use serde::{Deserialize, Serialize};

use crate::account::WRONG_PASSWORD;
use crate::auth::csrf_form::CsrfForm;
use crate::auth::recovery_codes::RecoveryCodes;
use crate::auth::second_factor::{WRONG_CODE, now_s};
use crate::auth::totp;
use crate::error::PortalError;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::Portal;
use crate::view::frame::Tab;
use crate::view::two_factor::{RecoveryCodesPage, TotpSetupPage, TwoFactorPage};

const PAGE: &str = "/account/two-factor";

/// The secret of an authenticator app between the two requests of its setup.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TotpSetup {
    totp_secret: Vec<u8>,
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    two_factor_page(&portal, &member, None).await
}

async fn two_factor_page(
    portal: &Portal,
    member: &CurrentMember,
    form_error: Option<&str>,
) -> Result<Response, PortalError> {
    let factors = portal.store.two_factor().factors(member.account.id).await?;
    Ok(render_page(&TwoFactorPage {
        frame: member.frame(portal, "Two-factor authentication", Tab::Account),
        is_enabled: factors.is_enabled,
        is_required: portal.settings.requires_two_factor,
        has_totp: factors.has_totp,
        passkeys: factors.passkeys,
        recovery_codes: factors.recovery_codes,
        needs_password: member.needs_password(),
        form_error: form_error.map(str::to_owned),
    }))
}

/// Shows a new secret. Nothing changes until a code of it is entered.
pub(crate) async fn begin_totp(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.confirm_member(&member, form.field("password"), PAGE).await? {
        return two_factor_page(&portal, &member, Some(WRONG_PASSWORD)).await;
    }
    setup_page(&portal, &member, TotpSetup { totp_secret: totp::generate_secret() }, None).await
}

async fn setup_page(
    portal: &Portal,
    member: &CurrentMember,
    setup: TotpSetup,
    form_error: Option<&str>,
) -> Result<Response, PortalError> {
    let digest = member.session_cookie().digest();
    portal.store.webauthn_states().save(&digest, &serde_json::to_value(&setup)?).await?;
    let qr_code = totp::qr_svg(&totp::setup_uri(&setup.totp_secret, &member.account.email));
    Ok(render_page(&TotpSetupPage {
        frame: member.frame(portal, "Set up an authenticator app", Tab::Account),
        qr_code: qr_code.ok_or(PortalError::Unavailable)?,
        secret: totp::format_secret(&setup.totp_secret),
        form_error: form_error.map(str::to_owned),
    }))
}

/// Turns two-factor authentication on with the secret that was shown, if the code is correct.
pub(crate) async fn enable_totp(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    member.require_second_factor(PAGE)?;
    let state = portal.store.webauthn_states().take(&member.session_cookie().digest()).await?;
    let Some(setup) = state.and_then(|state| serde_json::from_value::<TotpSetup>(state).ok()) else {
        return two_factor_page(&portal, &member, Some("The setup took too long. Start again.")).await;
    };
    let code: String = form.field("code").chars().filter(|c| !c.is_whitespace()).collect();
    let Some(last_step) = totp::find_step(&setup.totp_secret, &code, now_s()) else {
        return setup_page(&portal, &member, setup, Some(WRONG_CODE)).await;
    };
    let totp = TotpState { secret: setup.totp_secret, last_step };
    enable(&portal, &member, Some(&totp)).await
}

/// Turns two-factor authentication on with the passkeys of the account.
pub(crate) async fn enable_passkeys(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.confirm_member(&member, form.field("password"), PAGE).await? {
        return two_factor_page(&portal, &member, Some(WRONG_PASSWORD)).await;
    }
    enable(&portal, &member, None).await
}

async fn enable(portal: &Portal, member: &CurrentMember, totp: Option<&TotpState>) -> Result<Response, PortalError> {
    portal.record_account_change(member)?;
    let RecoveryCodes { codes, digests } = RecoveryCodes::generate();
    match portal.store.two_factor().enable(member.account.id, member.session_id, totp, &digests).await {
        Ok(()) => Ok(codes_page(portal, member, codes)),
        Err(StoreError::Refused(StoreRefusal::LastSecondFactor)) => {
            two_factor_page(portal, member, Some("Add a passkey or an authenticator app first.")).await
        }
        Err(error) => Err(error.into()),
    }
}

fn codes_page(portal: &Portal, member: &CurrentMember, codes: Vec<String>) -> Response {
    let frame = member.frame(portal, "Recovery codes", Tab::Account);
    render_page(&RecoveryCodesPage { frame, codes: codes.join("\n") })
}

/// Replaces the recovery codes.
pub(crate) async fn replace_codes(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if !portal.confirm_member(&member, form.field("password"), PAGE).await? {
        return two_factor_page(&portal, &member, Some(WRONG_PASSWORD)).await;
    }
    portal.record_account_change(&member)?;
    if !portal.store.two_factor().factors(member.account.id).await?.is_enabled {
        return Err(PortalError::NotFound);
    }
    let RecoveryCodes { codes, digests } = RecoveryCodes::generate();
    portal.store.two_factor().replace_recovery_codes(member.account.id, member.session_id, &digests).await?;
    Ok(codes_page(&portal, &member, codes))
}

/// Turns two-factor authentication off.
pub(crate) async fn disable(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    if portal.settings.requires_two_factor {
        return two_factor_page(&portal, &member, Some("This site requires two-factor authentication.")).await;
    }
    if !portal.confirm_member(&member, form.field("password"), PAGE).await? {
        return two_factor_page(&portal, &member, Some(WRONG_PASSWORD)).await;
    }
    portal.store.two_factor().disable(member.account.id, Some(member.session_id)).await?;
    Ok(redirect_with_notice(PAGE, "two-factor-off"))
}
