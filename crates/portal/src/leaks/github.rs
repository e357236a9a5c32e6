//! Reports from GitHub's secret scanning.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use ipseity_store::LeakedKey;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::error::PortalError;
use crate::leaks::find_keys;
use crate::leaks::signed_report::{Finding, ScannerKeys};
use crate::state::Portal;

const KEY_IDENTIFIER: &str = "github-public-key-identifier";
const KEY_SIGNATURE: &str = "github-public-key-signature";

/// Responds with a label for each finding, which GitHub uses to improve its search.
pub(crate) async fn receive(
    State(portal): State<Arc<Portal>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, PortalError> {
    if !portal.settings.receives_github_reports {
        return Ok(text_response(StatusCode::NOT_FOUND, "reports are not enabled\n"));
    }
    if !portal.is_signed_by_github(&headers, &body).await? {
        return Ok(text_response(StatusCode::FORBIDDEN, "invalid signature\n"));
    }
    let Ok(findings) = serde_json::from_slice::<Vec<Finding>>(&body) else {
        return Ok(text_response(StatusCode::BAD_REQUEST, "invalid report\n"));
    };
    let mut labels = Vec::new();
    for finding in findings {
        labels.push(portal.handle_finding(&finding).await?);
    }
    Ok(([(CONTENT_TYPE, "application/json")], Value::from(labels).to_string()).into_response())
}

fn text_response(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

impl Portal {
    async fn is_signed_by_github(&self, headers: &HeaderMap, body: &[u8]) -> Result<bool, PortalError> {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let (Some(identifier), Some(signature)) = (header(KEY_IDENTIFIER), header(KEY_SIGNATURE)) else {
            return Ok(false);
        };
        let keys = match self.github_keys.find(identifier) {
            Some(keys) => Some(keys),
            None => self.fetch_github_keys().await?,
        };
        Ok(keys.is_some_and(|keys| keys.verify(identifier, signature, body)))
    }

    async fn fetch_github_keys(&self) -> Result<Option<Arc<ScannerKeys>>, PortalError> {
        self.github_keys.record_fetch()?;
        let Some(document) = self.public_pages.host.fetch_scanner_keys().await else {
            return Err(PortalError::Unavailable);
        };
        let keys = ScannerKeys::parse(&document).map(Arc::new);
        match &keys {
            Some(keys) => self.github_keys.replace(Arc::clone(keys)),
            None => tracing::warn!("the published keys for secret scanning are not valid"),
        }
        Ok(keys)
    }

    async fn handle_finding(&self, finding: &Finding) -> Result<Value, PortalError> {
        let mut is_known = false;
        for key in find_keys(&finding.token) {
            is_known |= !matches!(self.deactivate_leaked(&key).await?, LeakedKey::Unknown);
        }
        let label = if is_known { "true_positive" } else { "false_positive" };
        let hash = STANDARD.encode(Sha256::digest(&finding.token));
        Ok(json!({ "token_hash": hash, "token_type": finding.kind, "label": label }))
    }
}
