//! Sign-in with an account of another provider: OpenID Connect or GitHub.
//!
//! Such an account is linked only by its operator: with the link of an invitation, or from a signed-in session. Its email
//! address links nothing.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::HeaderMap;
use ipseity_store::{NewCredential, Redemption};
use serde::{Deserialize, Serialize};

use crate::auth::csrf_form::CsrfForm;
use crate::console::error::ConsoleError;
use crate::console::join::{generate_handle, parse_name};
use crate::console::operator::{ConsoleVisitor, CurrentOperator};
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::pages::ContinuePage;
use crate::identity_providers::{ProviderFailure, ProviderVisit, label_of};
use crate::oidc::ExternalIdentity;
use crate::page::{redirect_with_notice, render_page};

/// What happens after the provider has identified the person.
#[derive(Serialize, Deserialize)]
enum Purpose {
    SignIn,
    /// Uses a link. The name is that of the first operator.
    Join {
        digest: [u8; 32],
        name: Option<String>,
    },
    /// Adds the account to this operator.
    Link {
        operator_id: i64,
    },
}

pub(super) async fn begin_sign_in(
    State(console): State<Arc<Console>>,
    PathPart(index): PathPart<usize>,
    visitor: ConsoleVisitor,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    console.begin_provider(index, &visitor, Purpose::SignIn).await
}

pub(super) async fn begin_join(
    State(console): State<Arc<Console>>,
    PathPart((token, index)): PathPart<(String, usize)>,
    visitor: ConsoleVisitor,
    form: CsrfForm,
) -> Result<Response, ConsoleError> {
    let (digest, link) = console.find_link(&token).await?;
    let name = match link.operator {
        Some(_) => None,
        None => Some(parse_name(form.field("name"))?.as_str().to_owned()),
    };
    console.begin_provider(index, &visitor, Purpose::Join { digest, name }).await
}

pub(super) async fn begin_link(
    State(console): State<Arc<Console>>,
    PathPart(index): PathPart<usize>,
    operator: CurrentOperator,
    _: CsrfForm,
) -> Result<Response, ConsoleError> {
    let purpose = Purpose::Link { operator_id: operator.operator.id };
    console.begin_provider(index, &operator.visitor, purpose).await
}

pub(super) async fn finish(
    State(console): State<Arc<Console>>,
    PathPart(path): PathPart<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    visitor: ConsoleVisitor,
) -> Result<Response, ConsoleError> {
    let state = console.store.webauthn_states().take(&visitor.session_cookie.digest()).await?;
    let visit = ProviderVisit::<Purpose>::read(state)?;
    let (purpose, identity) = console.providers.finish(visit, &path, query.as_deref()).await?;
    match purpose {
        Purpose::SignIn => {
            let found = console.store.operators().find_identity(&identity.issuer, &identity.subject).await?;
            let operator_id = found.ok_or_else(|| not_linked(&console.providers.name_of(&identity.issuer)))?;
            console.sign_in_throttle.reset(&());
            console.open_session(operator_id, &headers).await
        }
        Purpose::Join { digest, name } => {
            let name = name.as_deref().map(parse_name).transpose()?;
            let label = label_of(&identity);
            let redemption = Redemption {
                digest: &digest,
                first: name.as_ref().map(|name| (name, generate_handle())),
                credential: credential_of(&identity, &label),
            };
            let operator_id = console.store.operators().redeem_link(redemption).await?;
            console.sign_in_throttle.reset(&());
            console.open_session(operator_id, &headers).await
        }
        Purpose::Link { operator_id } => {
            let signed_in = visitor.signed_in.filter(|signed_in| signed_in.operator.id == operator_id);
            let operator = signed_in.ok_or(ConsoleError::NotSignedIn)?.operator;
            let label = label_of(&identity);
            let stores = console.stores_of(&operator)?;
            stores.store.operators().add_credential(operator.id, &credential_of(&identity, &label)).await?;
            Ok(redirect_with_notice("/profile", "identity"))
        }
    }
}

impl Console {
    /// A page that continues at the provider. Not a redirect: the content security policy lets forms lead only to this site.
    async fn begin_provider(
        &self,
        index: usize,
        visitor: &ConsoleVisitor,
        purpose: Purpose,
    ) -> Result<Response, ConsoleError> {
        self.sign_in_throttle.record_attempt(())?;
        let (link, state) = self.providers.begin(index, purpose).await?;
        self.store.webauthn_states().save(&visitor.session_cookie.digest(), &state).await?;
        let frame = visitor.frame("Continue", ConsoleTab::None);
        Ok(render_page(&ContinuePage { frame, link }))
    }
}

impl From<ProviderFailure> for ConsoleError {
    fn from(failure: ProviderFailure) -> Self {
        match &failure {
            ProviderFailure::UnknownProvider => Self::NotFound,
            ProviderFailure::NotConfirmed(_) => {
                Self::ProviderRefused(format!("{} The log of the node says why.", failure.message()))
            }
            ProviderFailure::NothingBegun | ProviderFailure::Canceled(_) | ProviderFailure::NoAnswer(_) => {
                Self::ProviderRefused(failure.message())
            }
        }
    }
}

fn not_linked(provider: &str) -> ConsoleError {
    ConsoleError::ProviderRefused(format!(
        "No operator signs in with this {provider} account. Use the link of your invitation, or link the account on your profile."
    ))
}

fn credential_of<'a>(identity: &'a ExternalIdentity, label: &'a str) -> NewCredential<'a> {
    NewCredential::Identity { issuer: &identity.issuer, subject: &identity.subject, label }
}
