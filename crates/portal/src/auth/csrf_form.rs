//! Submitted forms. A handler can read a form only through [`CsrfForm`], which rejects forms without the CSRF token of the
//! session.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequest, RawForm, Request};

use crate::auth::form_fields::parse_fields;
use crate::auth::session_cookie::SessionCookie;
use crate::error::PortalError;
use crate::state::Portal;

/// The fields of a form with a valid CSRF token.
pub(crate) struct CsrfForm(HashMap<String, String>);

impl FromRequest<Arc<Portal>> for CsrfForm {
    type Rejection = PortalError;

    async fn from_request(request: Request, portal: &Arc<Portal>) -> Result<Self, PortalError> {
        let session_cookie = SessionCookie::from_headers(request.headers());
        let RawForm(body) = RawForm::from_request(request, portal).await.map_err(|_| PortalError::StaleForm)?;
        let form = Self(parse_fields(&body));
        if session_cookie.verify_csrf_token(form.field("csrf")) { Ok(form) } else { Err(PortalError::StaleForm) }
    }
}

impl CsrfForm {
    /// The value of a field; empty if it is missing.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a checkbox is checked.
    pub(crate) fn is_checked(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}
