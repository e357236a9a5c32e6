//! Sign in with a password, and sign out. An unknown email gets the same response, after the same time, as a wrong password.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use ipseity_domain::account::EmailAddress;
use ipseity_domain::{Client, ClientSubnet, causes};
use ipseity_store::SessionStart;

use crate::auth::csrf_form::CsrfForm;
use crate::auth::next_path::NextPath;
use crate::auth::password::{OutdatedHash, Password, Requester, Verification};
use crate::auth::session::email_digest;
use crate::auth::session_cookie::{self, SessionCookie};
use crate::auth::sign_in_counts::SignInOutcome;
use crate::error::PortalError;
use crate::page::{CurrentMember, Visitor, redirect_with_notice};
use crate::state::Portal;
use crate::view::auth::{SignInForm, SignInPage, SignInReason};
use crate::view::frame::Tab;

const WRONG_CREDENTIALS: &str = "Incorrect email or password. Check both, or reset your password.";

pub(crate) async fn signin_form(
    State(portal): State<Arc<Portal>>,
    uri: Uri,
    headers: HeaderMap,
    visitor: Visitor,
) -> Response {
    let next = NextPath::from_query(&uri);
    if visitor.member.is_some() {
        return Redirect::to(next.as_deref().unwrap_or("/keys")).into_response();
    }
    // A browser without the device cookie never signed in, so no session of it can have ended.
    let reason = match next.as_deref() {
        Some(_) if session_cookie::device_token(&headers).is_some() => Some(SignInReason::SessionEnded),
        Some(_) => Some(SignInReason::MembersOnly),
        None => None,
    };
    signin_page(&portal, &visitor, SignInForm { next, reason, ..SignInForm::default() })
}

fn signin_page(portal: &Portal, visitor: &Visitor, form: SignInForm) -> Response {
    let frame = visitor.frame(&portal.public_pages, "Sign in", Tab::None);
    visitor.render(
        portal,
        &SignInPage { frame, form, passkeys_available: portal.webauthn.is_some(), providers: portal.providers.names() },
    )
}

pub(crate) async fn sign_in(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    let (email_input, next) = (form.field("email"), NextPath::parse(form.field("next")));
    let wrong_credentials = |next| {
        let email = email_input.to_owned();
        let form = SignInForm { email, next, form_error: Some(WRONG_CREDENTIALS), ..SignInForm::default() };
        Ok(signin_page(&portal, &visitor, form))
    };
    let (Some(email), Some(password)) = (EmailAddress::parse(email_input), Password::parse(form.field("password")))
    else {
        portal.subnet_throttle.record_attempt(client.address.subnet())?;
        return wrong_credentials(next);
    };
    match portal.verify_login(&client, &headers, &email, password).await? {
        Some(account_id) => {
            portal.finish_first_factor(account_id, SessionStart::OneFactor, &headers, &visitor, &next).await
        }
        None => wrong_credentials(next),
    }
}

/// An attempt to sign in, and where it counts.
enum LoginAttempt {
    /// From a browser that signed in to this account before.
    KnownBrowser { device: [u8; 32], account: [u8; 32] },
    /// From any other browser.
    Stranger { subnet: ClientSubnet, account: [u8; 32] },
}

impl LoginAttempt {
    fn requester(&self) -> Requester {
        match self {
            Self::KnownBrowser { account, .. } => Requester::Owner(*account),
            Self::Stranger { .. } => Requester::Stranger,
        }
    }
}

impl Portal {
    /// Verifies the password of a visitor who is not signed in. Returns the account if it is correct.
    pub(crate) async fn verify_login(
        self: &Arc<Self>,
        client: &Client,
        headers: &HeaderMap,
        email: &EmailAddress,
        password: Password,
    ) -> Result<Option<i64>, PortalError> {
        let attempt = self.count_login_attempt(client, headers, email).await.inspect_err(|error| {
            if matches!(error, PortalError::Throttled(_)) {
                self.sign_in_counts.inc(SignInOutcome::Throttled);
            }
        })?;
        let verified = async {
            let credentials = self.store.accounts().find_credentials(email).await?;
            let (account_id, hash) = credentials
                .map_or((None, None), |credentials| (Some(credentials.account_id), credentials.password_hash));
            let verification = self.password_pool.verify(attempt.requester(), password, hash).await?;
            Ok::<_, PortalError>(account_id.filter(|account_id| self.accept_verified(*account_id, verification)))
        };
        let account_id = verified.await.inspect_err(|_| self.give_back_login_attempt(&attempt))?;
        if account_id.is_some() {
            self.reset_login_attempts(&attempt);
        } else {
            self.sign_in_counts.inc(SignInOutcome::WrongPassword);
        }
        Ok(account_id)
    }

    /// Whether the password of an account is correct. An outdated hash is upgraded in the background.
    pub(crate) fn accept_verified(self: &Arc<Self>, account_id: i64, verification: Verification) -> bool {
        let is_correct = verification.is_correct();
        if let Verification::Outdated(outdated) = verification {
            tokio::spawn(Arc::clone(self).upgrade_hash(account_id, outdated));
        }
        is_correct
    }

    /// Replaces an outdated hash, unless the password has changed. If the service is busy, the next sign-in does it. It waits with
    /// strangers, so that it takes no thread from owners.
    async fn upgrade_hash(self: Arc<Self>, account_id: i64, OutdatedHash { password, hash }: OutdatedHash) {
        let Ok(new_hash) = self.password_pool.hash(Requester::Stranger, password).await else { return };
        if let Err(error) = self.store.accounts().upgrade_password_hash(account_id, &hash, &new_hash).await {
            tracing::warn!(error = %causes(&error), "password hash not upgraded; will retry");
        }
    }

    /// Counts an attempt before its password is verified, if it is allowed. A browser that signed in to this account before has
    /// a separate limit, so that strangers cannot lock the owner out.
    async fn count_login_attempt(
        &self,
        client: &Client,
        headers: &HeaderMap,
        email: &EmailAddress,
    ) -> Result<LoginAttempt, PortalError> {
        let account = email_digest(email.as_str());
        let subnet = client.address.subnet();
        if let Some(device_token) = session_cookie::device_token(headers)
            && self.is_known_device(device_token.digest(), subnet, email).await?
        {
            let device = device_token.digest();
            self.device_throttle.record_attempt(device)?;
            return Ok(LoginAttempt::KnownBrowser { device, account });
        }
        self.subnet_throttle.record_attempt(subnet)?;
        self.account_throttle.record_attempt(account)?;
        Ok(LoginAttempt::Stranger { subnet, account })
    }

    /// Whether a browser signed in to this account before. A browser that cannot be looked up, because its network sent too many
    /// unknown cookies, counts as a stranger.
    async fn is_known_device(
        &self,
        device: [u8; 32],
        subnet: ClientSubnet,
        email: &EmailAddress,
    ) -> Result<bool, PortalError> {
        let lookup = async { Ok(self.store.devices().is_known(email, &device).await?.then_some(())) };
        match self.secret_lookups.find_limited(device, subnet, lookup).await {
            Ok(found) => Ok(found.is_some()),
            Err(PortalError::Throttled(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Gives an attempt back whose password was not verified, because the service is busy or a store is unavailable.
    fn give_back_login_attempt(&self, attempt: &LoginAttempt) {
        match attempt {
            LoginAttempt::KnownBrowser { device, .. } => self.device_throttle.give_back(device),
            LoginAttempt::Stranger { subnet, account } => {
                self.subnet_throttle.give_back(subnet);
                self.account_throttle.give_back(account);
            }
        }
    }

    /// Resets the attempts after a correct password.
    fn reset_login_attempts(&self, attempt: &LoginAttempt) {
        match attempt {
            LoginAttempt::KnownBrowser { device, .. } => self.device_throttle.reset(device),
            LoginAttempt::Stranger { account, .. } => self.account_throttle.reset(account),
        }
    }
}

pub(crate) async fn sign_out(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    portal.store.sessions().end_by_digest(&member.session_cookie().digest()).await?;
    Ok(sign_out_response(&portal, "signed-out"))
}

/// What the browser deletes at sign-out. Not `"cookies"`, because the device cookie stays.
const CLEAR_SITE_DATA: HeaderValue = HeaderValue::from_static("\"cache\", \"storage\"");

/// Redirects to the sign-in page with a new session cookie.
pub(crate) fn sign_out_response(portal: &Portal, notice: &'static str) -> Response {
    let mut response = redirect_with_notice("/signin", notice);
    response.headers_mut().insert(HeaderName::from_static("clear-site-data"), CLEAR_SITE_DATA);
    response.headers_mut().append(SET_COOKIE, SessionCookie::generate().to_set_cookie(portal.session_idle_timeout_s()));
    response
}
