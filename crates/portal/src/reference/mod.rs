//! The API reference: every operation of the OpenAPI document, with a form to send a request. The browser sends it with the
//! reader's key directly to the API; the key never reaches the portal.

pub(crate) mod openapi;

use axum::response::Response;

use crate::page::{Visitor, render_page};
use crate::public_pages::PublicPages;
use crate::view::frame::Tab;
use crate::view::public::ReferencePage;

const DESCRIPTION: &str = "Every operation, field, header, status and example of the Ipseity API, version 1.1.0. Send requests with your key from \
    the page.";

pub(crate) async fn show_reference(pages: PublicPages, visitor: Visitor) -> Response {
    let document = pages.host.openapi_document();
    let frame = visitor.public_frame(&pages, "API reference", Tab::Reference, DESCRIPTION, "/reference");
    render_page(&ReferencePage {
        frame,
        base_url: &pages.settings.base_url,
        operations: openapi::operation_docs(document),
        schemas: openapi::schema_docs(document),
        headers: openapi::field_docs(&document["components"]["headers"]),
    })
}
