//! Reports of leaked keys: from people, by a form, and from GitHub's secret scanning, as signed JSON. Everyone who knows a
//! key can use it, so knowing it is enough to deactivate it.

pub(crate) mod github;
pub(crate) mod github_keys;
mod signed_report;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ipseity_domain::{ApiKey, Client, KEY_CHARS, KEY_PREFIX};
use ipseity_store::LeakedKey;

use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::page::Visitor;
use crate::state::Portal;
use crate::view::frame::Tab;
use crate::view::static_pages::ReportKeyPage;

/// Maximum number of keys in one report.
const KEYS_MAX: usize = 100;

pub(crate) async fn show(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    report_page(&portal, &visitor, None)
}

fn report_page(portal: &Portal, visitor: &Visitor, outcome: Option<&'static str>) -> Response {
    let frame = visitor.frame(&portal.public_pages, "Report a leaked key", Tab::None);
    visitor.render(portal, &ReportKeyPage { frame, outcome, email_enabled: portal.settings.email_enabled })
}

pub(crate) async fn report(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    visitor: Visitor,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    portal.subnet_throttle.record_attempt(client.address.subnet())?;
    let keys = find_keys(form.field("key"));
    let mut has_worked = false;
    for key in &keys {
        has_worked |= matches!(portal.deactivate_leaked(key).await?, LeakedKey::Invalidated(_));
    }
    let outcome = match (keys.is_empty(), has_worked) {
        (true, _) => "This text contains no Ipseity key. A key starts with ips_ and has 52 characters.",
        (false, true) if portal.settings.email_enabled => {
            "Thank you. The key no longer works, and its owner gets an email."
        }
        (false, true) => "Thank you. The key no longer works.",
        (false, false) => "Thank you. This key did not work anyway.",
    };
    Ok(report_page(&portal, &visitor, Some(outcome)))
}

/// The keys in a text.
fn find_keys(text: &str) -> Vec<ApiKey> {
    let candidates = text.match_indices(KEY_PREFIX).filter_map(|(start, _)| text.get(start..start + KEY_CHARS));
    candidates.filter_map(ApiKey::parse).take(KEYS_MAX).collect()
}

impl Portal {
    /// Deactivates a key, or revokes the previous secret of a rotated key, and notifies its owner.
    async fn deactivate_leaked(&self, key: &ApiKey) -> Result<LeakedKey, PortalError> {
        let leaked = self.store.keys().deactivate_leaked(key).await?;
        if let LeakedKey::Invalidated(change) = &leaked {
            // An error is logged. The change takes effect from the outbox.
            let _ = self.key_service.publish(change.clone()).await;
        }
        Ok(leaked)
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::PlaintextKey;

    use super::*;

    #[test]
    fn keys_are_found_in_any_text() {
        let [first, second] = [1, 2].map(|byte| PlaintextKey::generate(|| byte));
        let text = format!("KEY={}\ncurl '?key={}' ips_short ips_é", first.expose(), second.expose());
        assert_eq!(find_keys(&text), [first.to_api_key(), second.to_api_key()]);
        let mistyped = first.expose().replace("ips_0", "ips_1").replace("ips_1", "ips_2");
        assert_eq!(find_keys(&mistyped), [], "the checksum differs");
    }
}
