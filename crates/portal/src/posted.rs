//! A form that was sent. Reading it is the only way to its fields, and refuses it unless it carries the token of its own visit.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequest, RawForm, Request};

use crate::Portal;
use crate::problem::Problem;
use crate::visit::Visit;

/// The fields of a form that this visit sent.
pub(crate) struct Posted(HashMap<String, String>);

impl FromRequest<Arc<Portal>> for Posted {
    type Rejection = Problem;

    async fn from_request(request: Request, portal: &Arc<Portal>) -> Result<Self, Problem> {
        let visit = Visit::of(request.headers());
        let RawForm(body) = RawForm::from_request(request, portal).await.map_err(|_| Problem::StaleForm)?;
        let fields: HashMap<String, String> = form_urlencoded::parse(&body).into_owned().collect();
        let posted = Self(fields);
        if visit.allows(posted.text("csrf")) { Ok(posted) } else { Err(Problem::StaleForm) }
    }
}

impl Posted {
    /// A field, or nothing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a box is ticked.
    pub(crate) fn is_ticked(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}
