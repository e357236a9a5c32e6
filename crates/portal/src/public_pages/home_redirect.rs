//! Redirects from a remote node to the portal of home.

use axum::response::{IntoResponse, Redirect, Response};
use http::header::CACHE_CONTROL;
use http::{Method, Uri};

use crate::public_pages::PublicPages;

/// Redirects a page to the same path and query at home. A form redirects to the page at its path: its content may be
/// secret, so the browser must not send it to another host.
pub(crate) async fn redirect_to_home(pages: PublicPages, method: Method, uri: Uri) -> Response {
    // The path of a route starts with a slash, so the host is always that of the portal URL.
    let mut target = format!("{}{}", pages.settings.portal_url, uri.path());
    let redirect = if method == Method::POST {
        Redirect::to(&target)
    } else {
        if let Some(query) = uri.query() {
            target.push('?');
            target.push_str(query);
        }
        Redirect::temporary(&target)
    };
    ([(CACHE_CONTROL, "no-store")], redirect).into_response()
}
