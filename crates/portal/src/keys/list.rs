//! The list of keys, and the form to create one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_domain::account::KeyName;
use ipseity_domain::{Field, FieldSet, KEYS_PER_ACCOUNT_MAX, KeyId, PlaintextKey, Scope, UtcDay};
use ipseity_store::{KeySummary, StoreError, StoreRefusal};
use sha2::{Digest, Sha256};

use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::page::{CurrentMember, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::chart::pause_chart;
use crate::view::frame::Tab;
use crate::view::keys::{KeyCard, KeysPage, NewKeyPage, NewSecretPage, PauseView, ScopeChoice};

pub(crate) const INVALID_KEY_NAME: &str = "Enter a name of 1 to 100 characters, without control characters.";
const KEY_LIMIT_REACHED: &str = "Limit reached (10 keys). Delete one to add another.";

pub(crate) async fn list(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    let rows = portal.store.keys().list(member.account.id).await?;
    let used = portal.key_usage_today(&rows).await;
    let to_card = |(row, used)| key_card(row, used, member.account.daily_limit);
    let keys = rows.iter().zip(used).map(to_card).collect();
    Ok(render_page(&KeysPage {
        frame: member.frame(&portal, "Your keys", Tab::Keys),
        keys,
        keys_max: KEYS_PER_ACCOUNT_MAX,
        version: key_list_version(&rows),
    }))
}

/// Version of what the list shows, without usage, which changes all the time.
pub(crate) fn key_list_version(rows: &[KeySummary]) -> String {
    let mut digest = Sha256::new();
    for row in rows {
        let paused_ms = row.pause.as_ref().map(|pause| pause.paused_at_ms);
        digest.update(format!("{:?}", (row.id, &row.name, row.state, row.previous_until_s, paused_ms)));
    }
    hex::encode(&digest.finalize()[..8])
}

/// A key for display.
pub(crate) fn key_card(row: &KeySummary, used_today: u64, daily_limit: u64) -> KeyCard {
    let last_used = if used_today > 0 {
        Some("today".to_owned())
    } else {
        row.last_used.as_ref().map(|(day, _)| time::format_recent_day(day, time::today()))
    };
    KeyCard {
        id: row.id.to_string(),
        name: row.name.clone(),
        scope: row.scope.name(),
        state: row.state.name(),
        created: time::format_date(row.created_s),
        last_used,
        used_today,
        daily_limit,
        previous_valid_until: row.previous_until_s.map(time::format_minute),
        pause: row.pause.as_ref().map(|pause| PauseView {
            paused_at: time::format_second(pause.paused_at_ms / 1000),
            requests: pause.counts.iter().map(|count| u32::from(*count)).sum(),
            peak_per_second: pause.counts.iter().copied().max().unwrap_or(0),
            chart: pause_chart(&pause.counts),
        }),
    }
}

impl Portal {
    /// Today's usage of each key, from Redis; from the last usage flush if Redis is unavailable.
    pub(crate) async fn key_usage_today(&self, rows: &[KeySummary]) -> Vec<u64> {
        let today = time::today();
        let ids: Vec<KeyId> = rows.iter().map(|row| row.id).collect();
        let live = self.ledger.usage_of(&ids).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "live usage unavailable; showing the last flush");
            vec![None; ids.len()]
        });
        let if_today = |day: UtcDay, highest_count| if day == today { highest_count } else { 0 };
        let highest_count = |(row, live): (&KeySummary, Option<ipseity_domain::DailyUsage>)| {
            row.used_today.max(live.map_or(0, |used| if_today(used.day, used.count)))
        };
        rows.iter().zip(live).map(highest_count).collect()
    }

    /// A curl command that uses the key.
    pub(crate) fn curl_command(&self, plaintext: &PlaintextKey) -> String {
        format!("curl -H 'Authorization: Bearer {}' {}/api/v1/ip", plaintext.expose(), self.settings.base_url)
    }
}

pub(crate) async fn new_key_form(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    member.require_recent("/keys/new")?;
    Ok(new_key_page(&portal, &member, String::new(), Scope::Full, None))
}

fn new_key_page(
    portal: &Portal,
    member: &CurrentMember,
    name: String,
    selected: Scope,
    form_error: Option<&str>,
) -> Response {
    let frame = member.frame(portal, "Create key", Tab::Keys);
    let scopes = Scope::ALL.into_iter().map(|scope| scope_choice(scope, selected)).collect();
    render_page(&NewKeyPage { frame, name, scopes, form_error: form_error.map(str::to_owned) })
}

fn scope_choice(scope: Scope, selected: Scope) -> ScopeChoice {
    let description = match scope {
        Scope::Ip => "Only the caller’s IP address.",
        Scope::Geo => "The IP address, its location and its network.",
        Scope::Full => "Everything in geo, plus connection details.",
    };
    let field = |field: Field| (field.name(), field.scope() == scope);
    let fields = FieldSet::Scope(scope).fields().map(field).collect();
    ScopeChoice { name: scope.name(), description, fields, is_selected: scope == selected }
}

pub(crate) async fn create(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    member.require_recent("/keys/new")?;
    let name_input = form.field("name").to_owned();
    let Some(scope) = Scope::parse(form.field("scope")) else {
        return Ok(new_key_page(&portal, &member, name_input, Scope::Full, Some("Choose a scope.")));
    };
    let Some(name) = KeyName::parse(&name_input) else {
        return Ok(new_key_page(&portal, &member, name_input, scope, Some(INVALID_KEY_NAME)));
    };
    portal.record_key_action(&member)?;
    let plaintext = PlaintextKey::generate(random_byte);
    match portal.store.keys().create(&member.account, member.actor(), &name, scope, &plaintext.to_api_key()).await {
        Ok(()) => {}
        Err(StoreError::Refused(StoreRefusal::KeyLimitReached)) => {
            return Ok(new_key_page(&portal, &member, name_input, scope, Some(KEY_LIMIT_REACHED)));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(render_page(&NewSecretPage {
        frame: member.frame(&portal, "Your new key", Tab::Keys),
        id: plaintext.to_api_key().id.to_string(),
        name: name.as_str().to_owned(),
        curl_command: portal.curl_command(&plaintext),
        plaintext_key: plaintext.expose().to_owned(),
        rotated: None,
    }))
}

/// A byte from the system's random number generator.
pub(crate) fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("the system provides random bytes");
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_choice_lists_all_fields_and_marks_added_ones() {
        let [ip, geo, full] = Scope::ALL.map(|scope| scope_choice(scope, Scope::Geo));
        assert_eq!(ip.fields, [("status", true), ("ip", true), ("ipv6", true)]);
        assert!(geo.fields.contains(&("ip", false)) && geo.fields.contains(&("city", true)) && geo.is_selected);
        assert_eq!((full.fields.len(), full.is_selected), (Field::ALL.len(), false));
    }
}
