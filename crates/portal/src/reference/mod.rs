//! The API reference: every operation of the OpenAPI document, with a form to send a request. The browser sends it with the
//! reader's key directly to the API; the key never reaches the portal.

mod code;
pub(crate) mod manage;
pub(crate) mod openapi;

use axum::response::Response;

use crate::page::{Visitor, render_page};
use crate::public_pages::PublicPages;
use crate::view::frame::Tab;
use crate::view::public::ReferencePage;

const DESCRIPTION: &str = "Operations, fields, headers, statuses and examples of the Ipseity API, version 1.1.0. Send requests with your key from \
    the page.";

pub(crate) async fn show_reference(pages: PublicPages, visitor: Visitor) -> Response {
    let document = pages.host.openapi_document();
    let frame = visitor.public_frame(&pages, "API reference", Tab::Reference, DESCRIPTION, "/reference");
    let mut operations = openapi::operation_docs(document, &pages.settings.base_url);
    let schemas = openapi::schema_docs(document, &operations);
    let common_errors = openapi::take_common_errors(&mut operations);
    render_page(&ReferencePage {
        frame,
        base_url: &pages.settings.base_url,
        operations,
        common_errors,
        manage_operations: manage::manage_operation_docs(document),
        schemas,
        headers: openapi::field_docs(&document["components"]["headers"]),
    })
}
