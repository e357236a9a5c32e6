//! Runs before every operation: finds the token, and checks its scope and its limits.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use ipseity_domain::{Client, KEY_PREFIX, PersonalToken, TokenScope, causes};
use ipseity_keys::KeyService;
use ipseity_store::{AuthenticatedToken, Store};
use tokio::sync::SemaphorePermit;

use super::error::{ManageError, wait_s};
use crate::state::Portal;

/// Browsers add them to requests of pages, and scripts cannot remove them. `Sec-Fetch-Mode` is not one of them: servers that use
/// the `fetch` of Node.js send it too, and browsers never send it alone.
const BROWSER_HEADERS: [HeaderName; 4] = [
    ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-dest"),
    HeaderName::from_static("sec-fetch-user"),
];

/// The token of a request, whose scope the guard has checked.
#[derive(Clone)]
pub(super) struct ActingToken(Arc<AuthenticatedToken>);

impl FromRequestParts<Arc<Portal>> for ActingToken {
    type Rejection = ManageError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Portal>) -> Result<Self, ManageError> {
        parts.extensions.get::<Self>().cloned().ok_or(ManageError::Internal)
    }
}

impl std::ops::Deref for ActingToken {
    type Target = AuthenticatedToken;

    fn deref(&self) -> &AuthenticatedToken {
        &self.0
    }
}

/// PostgreSQL and the service of keys for a change with a token.
pub(super) struct ChangeServices<'a> {
    pub(super) store: Store,
    pub(super) keys: KeyService,
    _permit: SemaphorePermit<'a>,
}

impl Portal {
    /// Opens the connection for a change. It has the id of the token, so that the audit log gets the name of the token.
    pub(super) async fn change_services(&self, token: &ActingToken) -> Result<ChangeServices<'_>, ManageError> {
        let permit = self.manage_limits.connections.acquire().await.map_err(|_| ManageError::Internal)?;
        let store = self.store.for_token(token.id).map_err(|_| ManageError::Internal)?;
        Ok(ChangeServices { keys: self.key_service.with_store(store.clone()), store, _permit: permit })
    }

    /// Counts a change, if the account may make another. Each adds rows that are kept for a long time.
    pub(super) fn count_change(&self, token: &ActingToken) -> Result<(), ManageError> {
        let counted = self.key_action_throttle.record_attempt(token.account.id);
        counted.map_err(|wait| ManageError::ChangesLimited(wait_s(wait)))
    }
}

pub(super) async fn authorize(
    State((portal, scope)): State<(Arc<Portal>, TokenScope)>,
    mut request: Request,
    next: Next,
) -> Response {
    let authorized = async {
        let client = request.extensions().get::<Client>().cloned().ok_or(ManageError::Internal)?;
        let token = authenticate(&portal, &client, request.headers()).await?;
        if !token.scopes.contains(&scope) {
            return Err(ManageError::ScopeMissing(scope));
        }
        request.extensions_mut().insert(token);
        Ok(next.run(request).await)
    };
    let result = tokio::time::timeout(portal.settings.page_timeout, authorized).await;
    let result = result.unwrap_or_else(|_elapsed| {
        tracing::error!("management request timed out");
        Err(ManageError::Internal)
    });
    let mut response = result.unwrap_or_else(ManageError::into_response);
    match response.extensions_mut().remove::<Arc<ManageError>>() {
        Some(error) => error.response(&portal.settings.base_url),
        None => response,
    }
}

async fn authenticate(portal: &Portal, client: &Client, headers: &HeaderMap) -> Result<ActingToken, ManageError> {
    let text = bearer_token(headers);
    if text.is_some() && portal.settings.require_https && client.connection.is_encrypted == Some(false) {
        return Err(ManageError::HttpsRequired);
    }
    if BROWSER_HEADERS.iter().any(|name| headers.contains_key(name)) {
        return Err(ManageError::FromPage);
    }
    let text = text.ok_or(ManageError::MissingToken)?;
    if text.starts_with(KEY_PREFIX) {
        return Err(ManageError::KeyInsteadOfToken);
    }
    let token = PersonalToken::parse(text).ok_or(ManageError::InvalidToken)?;
    let limits = &portal.manage_limits;
    limits.request_throttle.record_attempt(token.digest).map_err(|wait| ManageError::TokenLimited(wait_s(wait)))?;
    let lookup = portal.store.personal_tokens();
    let lookup = lookup.authenticate(&token);
    let found = limits.unknown_tokens.find(*token.digest.as_bytes(), client.address.subnet(), lookup).await?;
    let found = found.ok_or(ManageError::InvalidToken)?;
    if found.is_expired {
        return Err(ManageError::ExpiredToken);
    }
    if portal.settings.requires_two_factor && !found.has_two_factor {
        return Err(ManageError::TwoFactorRequired);
    }
    record_use(portal, &found);
    Ok(ActingToken(Arc::new(found)))
}

/// Writes when the token was used, at most about once per hour. The request does not wait for it.
fn record_use(portal: &Portal, token: &AuthenticatedToken) {
    if token.is_use_stale && portal.manage_limits.use_throttle.record_attempt(token.id).is_ok() {
        let (store, id) = (portal.store.clone(), token.id);
        tokio::spawn(async move {
            if let Err(error) = store.personal_tokens().record_use(id).await {
                tracing::warn!(error = %causes(&error), "use of a personal token not recorded");
            }
        });
    }
}

/// The token of `Bearer <token>`. The scheme is case-insensitive (RFC 9110, section 11.1).
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}
