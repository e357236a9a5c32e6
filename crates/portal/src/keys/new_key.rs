//! The form to create a key.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use ipseity_domain::account::KeyName;
use ipseity_domain::{Field, FieldSet, PlaintextKey, Restrictions, Scope};
use ipseity_store::{StoreError, StoreRefusal};

use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::keys::code_tabs::code_tabs;
use crate::keys::preset::web_page_caller_limit;
use crate::keys::single_use::form_token;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::frame::{PageFrame, Tab};
use crate::view::keys::{NewKeyPage, NewSecretPage, PresetFields, ScopeChoice};

pub(crate) const INVALID_KEY_NAME: &str = "Enter a name of 1 to 100 characters, without control characters.";
const INVALID_RESTRICTIONS: &str = "The key was not created. Correct the marked entries.";
pub(crate) const RESTRICTIONS_NOT_ENABLED: &str = "The operator of this service has not enabled restrictions yet. \
    Choose “No restrictions”, or ask the operator to upgrade all nodes and run `ipseity key enable-restrictions`.";

/// What the member entered.
struct NewKeyForm {
    name: String,
    scope: Scope,
    presets: PresetFields,
}

impl NewKeyForm {
    fn page(self, portal: &Portal, member: &CurrentMember, form_error: Option<&str>) -> Response {
        render_page(&NewKeyPage {
            frame: member.frame(portal, "Create key", Tab::Keys),
            form_token: form_token(),
            name: self.name,
            scopes: Scope::ALL.into_iter().map(|scope| scope_choice(scope, self.scope)).collect(),
            presets: self.presets,
            form_error: form_error.map(str::to_owned),
        })
    }
}

pub(crate) async fn new_key_form(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
) -> Result<Response, PortalError> {
    member.require_recent("/keys/new")?;
    let presets = PresetFields::new(portal.visitor_limit(member.account.burst_limit).await?);
    Ok(NewKeyForm { name: String::new(), scope: Scope::Full, presets }.page(&portal, &member, None))
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
    let scope = Scope::parse(form.field("scope"));
    let caller_limit = portal.visitor_limit(member.account.burst_limit).await?;
    let (presets, preset) = PresetFields::entered(&form, caller_limit);
    let mut entered = NewKeyForm { name: form.field("name").to_owned(), scope: scope.unwrap_or(Scope::Full), presets };
    let Some(scope) = scope else {
        return Ok(entered.page(&portal, &member, Some("Choose a scope.")));
    };
    let Some(preset) = preset else {
        return Ok(entered.page(&portal, &member, Some("Choose what the key is for.")));
    };
    let Some(name) = KeyName::parse(&entered.name) else {
        return Ok(entered.page(&portal, &member, Some(INVALID_KEY_NAME)));
    };
    let Some(restrictions) = preset.restrictions(&mut entered.presets, time::now_s()) else {
        return Ok(entered.page(&portal, &member, Some(INVALID_RESTRICTIONS)));
    };
    portal.record_key_action(&member)?;
    if !portal.use_form_once(&member, &form).await? {
        return Ok(redirect_with_notice("/keys", "created-before"));
    }
    let plaintext = PlaintextKey::generate(random_byte);
    let key = plaintext.to_api_key();
    match portal.store.keys().create(&member.account, member.actor(), &name, scope, &key, &restrictions).await {
        Ok(()) => {}
        Err(StoreError::Refused(StoreRefusal::KeyLimitReached { keys_max })) => {
            let message = format!("Limit reached ({keys_max} keys). Delete one to add another.");
            return Ok(entered.page(&portal, &member, Some(&message)));
        }
        Err(StoreError::Refused(StoreRefusal::RestrictionsNotEnabled)) => {
            return Ok(entered.page(&portal, &member, Some(RESTRICTIONS_NOT_ENABLED)));
        }
        Err(error) => return Err(error.into()),
    }
    let frame = member.frame(&portal, "Your new key", Tab::Keys);
    Ok(render_page(&portal.new_secret_page(frame, &plaintext, name.as_str(), &restrictions, None)))
}

impl Portal {
    /// Requests per minute of one visitor, for a new key in a page.
    pub(crate) async fn visitor_limit(&self, burst_limit: usize) -> Result<u32, PortalError> {
        let nodes = self.store.deployment().node_count().await?;
        Ok(web_page_caller_limit(burst_limit, nodes))
    }

    /// The page that shows a secret once.
    pub(crate) fn new_secret_page(
        &self,
        frame: PageFrame,
        plaintext: &PlaintextKey,
        name: &str,
        restrictions: &Restrictions,
        rotated: Option<Option<String>>,
    ) -> NewSecretPage {
        NewSecretPage {
            frame,
            id: plaintext.to_api_key().id.to_string(),
            name: name.to_owned(),
            plaintext_key: plaintext.expose().to_owned(),
            code: code_tabs(&self.settings.base_url, plaintext.expose(), restrictions),
            is_for_pages: !restrictions.origins.is_empty(),
            rotated,
        }
    }
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
