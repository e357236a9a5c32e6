//! Documentation, and how to get more. A stranger who only reads gets no cookie.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::Portal;
use crate::page::{Visitor, show};
use crate::view::{DocsPage, EnterprisePage, Tab};

/// A sentence about where data comes from, and the address that it links to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The sentence.
    pub text: String,
    /// The address, if its licence asks for one.
    pub url: Option<String>,
}

pub(crate) async fn docs(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    let frame = visitor.frame(&portal, "Documentation", Tab::Docs);
    let attributions = (portal.attributions)();
    show(&DocsPage { frame, base_url: &portal.settings.base_url, attributions })
}

pub(crate) async fn enterprise(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    show(&EnterprisePage { frame: visitor.frame(&portal, "More than the free plan", Tab::None) })
}
