//! The pages of the operator's terms of service and privacy policy, from Markdown files.

pub(crate) mod text;

use axum::response::Response;

use crate::error::PortalError;
use crate::legal::text::LegalText;
use crate::page::{Visitor, render_page};
use crate::public_pages::PublicPages;
use crate::view::frame::Tab;
use crate::view::legal::LegalPage;

pub(crate) async fn show_terms(pages: PublicPages, visitor: Visitor) -> Result<Response, PortalError> {
    legal_page(&pages, &visitor, pages.legal_pages.terms.as_ref())
}

pub(crate) async fn show_privacy(pages: PublicPages, visitor: Visitor) -> Result<Response, PortalError> {
    legal_page(&pages, &visitor, pages.legal_pages.privacy.as_ref())
}

fn legal_page(pages: &PublicPages, visitor: &Visitor, text: Option<&LegalText>) -> Result<Response, PortalError> {
    let LegalText { path, title, html } = text.ok_or(PortalError::PathNotFound)?;
    let description = format!("{title} of {}.", pages.settings.base_url);
    let frame = visitor.public_frame(pages, title, Tab::None, &description, path);
    Ok(render_page(&LegalPage { frame, title, html }))
}
