//! Forms that create a secret work once. The page with the secret is the response to the form, because a secret is neither
//! stored nor put into a URL. Without this, reloading that page would create another key.

use crate::auth::csrf_form::CsrfForm;
use crate::auth::session_cookie::SecretToken;
use crate::error::PortalError;
use crate::page::CurrentMember;
use crate::state::Portal;

/// The token of a new form, for its field `form`.
pub(crate) fn form_token() -> String {
    SecretToken::generate().expose().to_owned()
}

impl Portal {
    /// Whether a form is sent for the first time, to any node.
    pub(crate) async fn use_form_once(&self, member: &CurrentMember, form: &CsrfForm) -> Result<bool, PortalError> {
        let token = SecretToken::parse(form.field("form")).ok_or(PortalError::StaleForm)?;
        Ok(self.store.sessions().use_form(member.session_id, &token.digest()).await?)
    }
}
