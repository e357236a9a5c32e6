//! The page of personal tokens: create, list and revoke them, and choose whether they can resume paused keys.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use ipseity_domain::{KeyId, PlaintextToken, TokenName, TokenScope};
use ipseity_store::{NewToken, StoreError, StoreRefusal, TokenSummary};

use crate::auth::csrf_form::CsrfForm;
use crate::error::PortalError;
use crate::keys::new_key::random_byte;
use crate::keys::single_use::form_token;
use crate::page::{CurrentMember, redirect_with_notice, render_page};
use crate::state::Portal;
use crate::time;
use crate::view::frame::Tab;
use crate::view::tokens::{LifetimeChoice, NewTokenForm, TokenItem, TokenScopeChoice, TokensPage};

const PAGE: &str = "/account/tokens";
/// Days until a token expires, and how the form says it. 0 is never.
const LIFETIMES: [(u32, &str); 4] = [(30, "In 30 days"), (90, "In 90 days"), (365, "In a year"), (0, "Never")];
const LIFETIME_DEFAULT: u32 = 90;

/// A token as entered.
struct TokenInput {
    name: String,
    scopes: Vec<TokenScope>,
    lifetime_days: u32,
}

impl TokenInput {
    fn empty() -> Self {
        Self { name: String::new(), scopes: vec![TokenScope::KeysRead], lifetime_days: LIFETIME_DEFAULT }
    }

    fn read(form: &CsrfForm) -> Self {
        let lifetime_days = form.field("lifetime_days").parse().ok();
        let is_choice = |days: &u32| LIFETIMES.iter().any(|(choice, _)| choice == days);
        Self {
            name: form.field("name").to_owned(),
            scopes: TokenScope::ALL.into_iter().filter(|scope| form.is_checked(scope.name())).collect(),
            lifetime_days: lifetime_days.filter(is_choice).unwrap_or(LIFETIME_DEFAULT),
        }
    }

    /// The name to store, or what is wrong.
    fn check(&self) -> Result<TokenName, &'static str> {
        let name =
            TokenName::parse(&self.name).ok_or("Enter a name of 1 to 64 characters, without control characters.")?;
        if self.scopes.is_empty() { Err("Choose at least one scope.") } else { Ok(name) }
    }

    fn into_form(self, form_error: Option<&str>) -> NewTokenForm {
        let scope = |scope: TokenScope| TokenScopeChoice {
            name: scope.name(),
            label: scope.name(),
            hint: scope_hint(scope),
            is_checked: self.scopes.contains(&scope),
        };
        let lifetime = |(value, label)| LifetimeChoice { value, label, is_selected: value == self.lifetime_days };
        NewTokenForm {
            form_token: form_token(),
            scopes: TokenScope::ALL.map(scope).into(),
            lifetimes: LIFETIMES.map(lifetime).into(),
            name: self.name,
            form_error: form_error.map(str::to_owned),
        }
    }
}

const fn scope_hint(scope: TokenScope) -> &'static str {
    match scope {
        TokenScope::KeysRead => "List keys, with their status, restrictions and pauses.",
        TokenScope::KeysWrite => "Create, change, rotate and delete keys. Includes new secrets.",
        TokenScope::KeysResume => "Resume paused keys, if you allow it below.",
        TokenScope::UsageRead => "Read the usage of keys.",
        TokenScope::AlertsRead => "List webhooks and Slack channels.",
        TokenScope::AlertsWrite => "Create, change, test and delete webhooks and Slack channels.",
    }
}

/// All pages under `/account` work without two-factor authentication, because it is set up there. A token must not be a way
/// around it.
fn require_setup(portal: &Portal, member: &CurrentMember) -> Result<(), PortalError> {
    let is_missing = portal.settings.requires_two_factor && !member.has_two_factor;
    if is_missing { Err(PortalError::TwoFactorRequired) } else { Ok(()) }
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: CurrentMember) -> Result<Response, PortalError> {
    tokens_page(&portal, &member, TokenInput::empty(), None, None).await
}

async fn tokens_page(
    portal: &Portal,
    member: &CurrentMember,
    input: TokenInput,
    form_error: Option<&str>,
    created: Option<(String, String)>,
) -> Result<Response, PortalError> {
    let store = portal.store.personal_tokens();
    let tokens = store.list(member.account.id).await?;
    let may_resume = store.may_resume(member.account.id).await?;
    let tokens_max = portal.settings.manage.tokens_per_account_max;
    let has_room = tokens.len() < usize::try_from(tokens_max).unwrap_or(usize::MAX);
    Ok(render_page(&TokensPage {
        frame: member.frame(portal, "Personal tokens", Tab::Account),
        created,
        tokens: tokens.into_iter().map(token_item).collect(),
        tokens_max,
        new_token: has_room.then(|| input.into_form(form_error)),
        may_resume,
    }))
}

fn token_item(token: TokenSummary) -> TokenItem {
    let expiry = match token.expires_at_s {
        None => "Never expires".to_owned(),
        Some(at_s) if token.is_expired => format!("Expired {}", time::format_date(at_s)),
        Some(at_s) => format!("Expires {}", time::format_date(at_s)),
    };
    TokenItem {
        id: token.id.to_string(),
        name: token.name,
        scopes: token.scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(", "),
        created: time::format_date(token.created_s),
        expiry,
        is_expired: token.is_expired,
        last_used: token.last_used_s.map(time::format_minute),
    }
}

pub(crate) async fn create(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    require_setup(&portal, &member)?;
    member.require_recent(PAGE)?;
    let input = TokenInput::read(&form);
    let name = match input.check() {
        Ok(name) => name,
        Err(error) => return tokens_page(&portal, &member, input, Some(error), None).await,
    };
    portal.record_key_action(&member)?;
    if !portal.use_form_once(&member, &form).await? {
        return Ok(redirect_with_notice(PAGE, "token-before"));
    }
    let plaintext = PlaintextToken::generate(random_byte);
    let token = plaintext.to_personal_token();
    let lifetime_days = Some(input.lifetime_days).filter(|days| *days > 0);
    let new = NewToken { name: &name, token: &token, scopes: &input.scopes, lifetime_days };
    let tokens_max = portal.settings.manage.tokens_per_account_max;
    match portal.store.personal_tokens().create(member.account.id, member.session_id, &new, tokens_max).await {
        Ok(()) => {
            let created = (name.as_str().to_owned(), plaintext.expose().to_owned());
            tokens_page(&portal, &member, TokenInput::empty(), None, Some(created)).await
        }
        Err(StoreError::Refused(StoreRefusal::TokenLimitReached)) => Ok(redirect_with_notice(PAGE, "token-limit")),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn revoke(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: CurrentMember,
    _: CsrfForm,
) -> Result<Response, PortalError> {
    member.require_recent(PAGE)?;
    let id = KeyId::parse(&id).ok_or(PortalError::NotFound)?;
    portal.store.personal_tokens().revoke(member.account.id, id).await?;
    Ok(redirect_with_notice(PAGE, "token-revoked"))
}

pub(crate) async fn set_may_resume(
    State(portal): State<Arc<Portal>>,
    member: CurrentMember,
    form: CsrfForm,
) -> Result<Response, PortalError> {
    require_setup(&portal, &member)?;
    member.require_recent(PAGE)?;
    let may_resume = form.is_checked("may_resume");
    // Not throttled if it only forbids, like every revocation.
    if may_resume {
        portal.record_key_action(&member)?;
    }
    portal.store.personal_tokens().set_may_resume(member.account.id, may_resume).await?;
    Ok(redirect_with_notice(PAGE, if may_resume { "tokens-resume" } else { "tokens-no-resume" }))
}
