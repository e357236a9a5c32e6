//! Sign-in with an account of another provider: OpenID Connect or GitHub. A provider is a first factor, like the password.
//!
//! Such an account is linked only from a signed-in session, and works only for the member who linked it. Its email address links
//! nothing and finds no account.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use http::HeaderMap;
use ipseity_domain::Client;
use ipseity_store::{NewIdentity, SessionStart, StoreError, StoreRefusal};
use serde::{Deserialize, Serialize};

use crate::auth::csrf_form::CsrfForm;
use crate::auth::next_path::NextPath;
use crate::auth::sign_in_counts::SignInOutcome;
use crate::error::PortalError;
use crate::identity_providers::{ProviderFailure, ProviderVisit, label_of};
use crate::oidc::ExternalIdentity;
use crate::page::{CurrentMember, Visitor, redirect_with_notice};
use crate::state::Portal;
use crate::view::auth::ContinueAtProviderPage;
use crate::view::frame::Tab;

/// The page of linked accounts.
pub(crate) const LINKED_ACCOUNTS: &str = "/account/sign-in";

/// What happens after the provider has identified the person.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Purpose {
    /// Signs in, and then leads to this page.
    SignIn { next: String },
    /// Links the account of the provider. Only the session that began this can finish it.
    Link { account_id: i64, session_id: i64 },
}

impl Purpose {
    /// Where the person can try again.
    const fn retry_path(&self) -> &'static str {
        match self {
            Self::SignIn { .. } => "/signin",
            Self::Link { .. } => LINKED_ACCOUNTS,
        }
    }
}

pub(crate) async fn begin_sign_in(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    Path(index): Path<String>,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    portal.subnet_throttle.record_attempt(client.address.subnet())?;
    let next = NextPath::parse(form.field("next"));
    portal.visit_provider(&index, &visitor, Purpose::SignIn { next: next.field().to_owned() }).await
}

pub(crate) async fn finish(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    Path(path): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    visitor: Visitor,
) -> Result<Response, PortalError> {
    let visit = portal.take_provider_visit(&visitor, &client).await?;
    if let Purpose::Link { account_id, session_id } = visit.purpose
        && !visitor.is_session(account_id, session_id)
    {
        return Err(PortalError::NotSignedIn);
    }
    let retry_path = visit.purpose.retry_path();
    let finished = portal.providers.finish(visit, &path, query.as_deref()).await;
    let (purpose, identity) = finished.map_err(|failure| portal.count_rejected(failure.into_error(retry_path)))?;
    match purpose {
        Purpose::SignIn { next } => {
            let found = portal.store.identities().find_account(&identity.issuer, &identity.subject).await?;
            let not_linked = || PortalError::IdentityNotLinked(portal.providers.name_of(&identity.issuer));
            let (account_id, identity_id) = found.ok_or_else(|| portal.count_rejected(not_linked()))?;
            portal.subnet_throttle.give_back(&client.address.subnet());
            let start = SessionStart::Identity(identity_id);
            portal.finish_first_factor(account_id, start, &headers, &visitor, &NextPath::parse(&next)).await
        }
        Purpose::Link { account_id, session_id } => portal.link_identity(account_id, session_id, &identity).await,
    }
}

impl Visitor {
    fn is_session(&self, account_id: i64, session_id: i64) -> bool {
        self.member.as_ref().is_some_and(|member| member.account.id == account_id && member.session_id == session_id)
    }
}

impl ProviderFailure {
    fn into_error(self, retry_path: &'static str) -> PortalError {
        match self {
            Self::UnknownProvider => PortalError::NotFound,
            Self::NothingBegun | Self::Canceled(_) | Self::NoAnswer(_) | Self::NotConfirmed(_) => {
                PortalError::ProviderFailed { reason: self.message(), retry_path }
            }
        }
    }
}

impl Portal {
    /// Begins to link an account of a provider to a member who has confirmed it.
    pub(crate) async fn begin_link(&self, index: &str, member: &CurrentMember) -> Result<Response, PortalError> {
        let purpose = Purpose::Link { account_id: member.account.id, session_id: member.session_id };
        self.visit_provider(index, member.visitor(), purpose).await
    }

    /// A page that continues at the provider. Not a redirect: the content security policy lets forms lead only to this site.
    async fn visit_provider(&self, index: &str, visitor: &Visitor, purpose: Purpose) -> Result<Response, PortalError> {
        let index = index.parse().map_err(|_| PortalError::NotFound)?;
        let retry_path = purpose.retry_path();
        let begun = self.providers.begin(index, purpose).await;
        let (link, state) = begun.map_err(|failure| failure.into_error(retry_path))?;
        self.store.webauthn_states().save(&visitor.session_cookie.digest(), &state).await?;
        let frame = visitor.frame(&self.public_pages, "Continue", Tab::None);
        Ok(visitor.render(self, &ContinueAtProviderPage { frame, link }))
    }

    /// Takes the state that was saved when the visit began. It can be used once, by the same browser.
    async fn take_provider_visit(
        &self,
        visitor: &Visitor,
        client: &Client,
    ) -> Result<ProviderVisit<Purpose>, PortalError> {
        let digest = visitor.session_cookie.digest();
        let state = match visitor.session_cookie.is_new() {
            true => None,
            false => {
                let lookup = self.store.webauthn_states().take(&digest);
                self.secret_lookups.find_limited(digest, client.address.subnet(), lookup).await?
            }
        };
        ProviderVisit::read(state).map_err(|failure| self.count_rejected(failure.into_error("/signin")))
    }

    fn count_rejected(&self, error: PortalError) -> PortalError {
        self.sign_in_counts.inc(SignInOutcome::ProviderRejected);
        error
    }

    async fn link_identity(
        &self,
        account_id: i64,
        session_id: i64,
        identity: &ExternalIdentity,
    ) -> Result<Response, PortalError> {
        let label = label_of(identity);
        let new = NewIdentity { issuer: &identity.issuer, subject: &identity.subject, label: &label };
        match self.store.identities().link(account_id, session_id, &new).await {
            Ok(true) => Ok(redirect_with_notice(LINKED_ACCOUNTS, "linked")),
            Ok(false) => Ok(redirect_with_notice(LINKED_ACCOUNTS, "linked-before")),
            Err(StoreError::Refused(StoreRefusal::IdentityTaken)) => {
                Err(PortalError::IdentityTaken(self.providers.name_of(&identity.issuer)))
            }
            Err(StoreError::Refused(StoreRefusal::IdentityLimitReached)) => Err(PortalError::IdentityLimitReached),
            Err(error) => Err(error.into()),
        }
    }
}
