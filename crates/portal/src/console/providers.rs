//! Sign-in with an account of another provider: OpenID Connect or GitHub.
//!
//! Such an account is linked only by its operator: with the link of an invitation, or from a signed-in session. Its email
//! address links nothing.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::HeaderMap;
use ipseity_domain::causes;
use ipseity_store::{NewCredential, Redemption};
use serde::{Deserialize, Serialize};

use crate::auth::csrf_form::CsrfForm;
use crate::auth::session_cookie::SessionCookie;
use crate::console::error::ConsoleError;
use crate::console::join::{generate_handle, parse_name};
use crate::console::operator::{ConsoleVisitor, CurrentOperator};
use crate::console::path_part::PathPart;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::pages::ContinuePage;
use crate::oidc::{ExternalIdentity, OidcError, PendingSignIn, SignInCallback, SignInProvider};
use crate::page::{redirect_with_notice, render_page};

const LABEL_CHARS_MAX: usize = 254;

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

/// The state of a sign-in between its two requests.
#[derive(Serialize, Deserialize)]
struct ProviderState {
    purpose: Purpose,
    pending: PendingSignIn,
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
    let ProviderState { purpose, pending } = console.take_provider_state(&visitor.session_cookie).await?;
    let provider = console.providers.iter().find(|provider| provider.issuer() == pending.issuer());
    let provider = provider.filter(|provider| provider.redirect_url().ends_with(&format!("/signin/callback/{path}")));
    let provider = provider.ok_or(ConsoleError::NotFound)?;
    let callback = SignInCallback::parse(query.as_deref().unwrap_or_default());
    let identity = match callback {
        Ok(callback) => console.in_time(provider, provider.finish(pending, &callback)).await?,
        Err(error) => return Err(rejection(provider, &error)),
    };
    match purpose {
        Purpose::SignIn => {
            let found = console.store.operators().find_identity(&identity.issuer, &identity.subject).await?;
            let operator_id = found.ok_or_else(|| not_linked(provider))?;
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
        let provider = self.providers.get(index).ok_or(ConsoleError::NotFound)?;
        let (url, pending) = self.in_time(provider, provider.begin()).await?;
        let state = serde_json::to_value(ProviderState { purpose, pending })?;
        self.store.webauthn_states().save(&visitor.session_cookie.digest(), &state).await?;
        let frame = visitor.frame("Continue", ConsoleTab::None);
        Ok(render_page(&ContinuePage { frame, provider: provider.name().to_owned(), url: url.into() }))
    }

    /// Waits for a provider, but not as long as for a page.
    async fn in_time<T>(
        &self,
        provider: &SignInProvider,
        call: impl Future<Output = Result<T, OidcError>>,
    ) -> Result<T, ConsoleError> {
        let outcome = tokio::time::timeout(self.settings.page_timeout * 3 / 4, call).await;
        let outcome = outcome.map_err(|_elapsed| {
            let name = provider.name();
            tracing::warn!(provider = name, "sign-in of an operator failed: no answer in time");
            ConsoleError::ProviderRefused(format!("{name} didn’t answer in time. Try again."))
        })?;
        outcome.map_err(|error| rejection(provider, &error))
    }

    /// Takes the state that was saved when the sign-in began. It can be used once, by the same browser.
    async fn take_provider_state(&self, session_cookie: &SessionCookie) -> Result<ProviderState, ConsoleError> {
        let state = self.store.webauthn_states().take(&session_cookie.digest()).await?;
        state.and_then(|state| serde_json::from_value(state).ok()).ok_or_else(|| {
            let reason = "The sign-in took longer than five minutes, or was begun in another browser. Try again.";
            ConsoleError::ProviderRefused(reason.to_owned())
        })
    }
}

fn rejection(provider: &SignInProvider, error: &OidcError) -> ConsoleError {
    let name = provider.name();
    if matches!(error, OidcError::Denied(_)) {
        return ConsoleError::ProviderRefused(format!("The sign-in with {name} was canceled."));
    }
    tracing::warn!(provider = name, error = %causes(error), "sign-in of an operator failed");
    ConsoleError::ProviderRefused(format!("{name} did not confirm who you are. The log of the node says why."))
}

fn not_linked(provider: &SignInProvider) -> ConsoleError {
    let name = provider.name();
    ConsoleError::ProviderRefused(format!(
        "No operator signs in with this {name} account. Use the link of your invitation, or link the account on your profile."
    ))
}

fn credential_of<'a>(identity: &'a ExternalIdentity, label: &'a str) -> NewCredential<'a> {
    NewCredential::Identity { issuer: &identity.issuer, subject: &identity.subject, label }
}

/// What the profile calls the account.
fn label_of(identity: &ExternalIdentity) -> String {
    let label = identity.email.as_deref().or(identity.name.as_deref()).unwrap_or(&identity.subject);
    label.chars().filter(|character| !character.is_control()).take(LABEL_CHARS_MAX).collect()
}
