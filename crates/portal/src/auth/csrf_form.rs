//! Submitted forms. A handler can read a form only through [`CsrfForm`], which rejects forms without the CSRF token of the
//! session.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequest, RawForm, Request};

use crate::auth::form_fields::parse_fields;
use crate::auth::session_cookie::SessionCookie;
use crate::console::error::ConsoleError;
use crate::console::state::Console;
use crate::error::PortalError;
use crate::state::Portal;

/// The fields of a form with a valid CSRF token.
pub(crate) struct CsrfForm(HashMap<String, String>);

impl FromRequest<Arc<Portal>> for CsrfForm {
    type Rejection = PortalError;

    async fn from_request(request: Request, portal: &Arc<Portal>) -> Result<Self, PortalError> {
        let session_cookie = SessionCookie::from_headers(request.headers());
        Self::read(request, portal, &session_cookie).await.ok_or(PortalError::StaleForm)
    }
}

impl FromRequest<Arc<Console>> for CsrfForm {
    type Rejection = ConsoleError;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, ConsoleError> {
        let session_cookie = SessionCookie::of_console(request.headers());
        let mut form = Self::read(request, console, &session_cookie).await.ok_or(ConsoleError::StaleForm)?;
        // PostgreSQL stores no NUL.
        form.0.values_mut().for_each(|value| value.retain(|character| character != '\0'));
        Ok(form)
    }
}

impl CsrfForm {
    async fn read<S: Send + Sync>(request: Request, state: &S, session_cookie: &SessionCookie) -> Option<Self> {
        let RawForm(body) = RawForm::from_request(request, state).await.ok()?;
        let form = Self(parse_fields(&body));
        session_cookie.verify_csrf_token(form.field("csrf")).then_some(form)
    }

    /// The value of a field; empty if it is missing.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a checkbox is checked.
    pub(crate) fn is_checked(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}
