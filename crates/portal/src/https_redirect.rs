//! Redirects from plain HTTP to HTTPS.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::Method;
use http::uri::PathAndQuery;
use ipseity_domain::Client;

use crate::public_pages::PublicPages;

/// Redirects a page or file that was requested over plain HTTP to the same path under the base URL. Forms are not
/// redirected: the browser has already sent their content, and without a cookie they are rejected.
pub(crate) async fn redirect_to_https(State(pages): State<PublicPages>, request: Request, next: Next) -> Response {
    let client = request.extensions().get::<Client>();
    let is_plaintext = client.is_some_and(|client| client.connection.is_encrypted == Some(false));
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !(pages.settings.require_https && is_plaintext && is_read) {
        return next.run(request).await;
    }
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    Redirect::permanent(&format!("{}{path}", pages.settings.base_url)).into_response()
}
