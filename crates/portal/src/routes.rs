//! Every page and form, in one table.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::header::{CONTENT_SECURITY_POLICY, STRICT_TRANSPORT_SECURITY};
use http::{HeaderName, HeaderValue};
use tower_http::compression::CompressionLayer;
use tower_http::csrf::CsrfLayer;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::problem::{self, Problem};
use crate::{
    Portal, account, assets, docs, events, files, key, keys, landing, link, passkeys, reference, signin, signup, usage,
};

/// Nothing from elsewhere, nothing inline.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);
/// Half a year, for services that are reached over TLS.
const TLS_ONLY: HeaderValue = HeaderValue::from_static("max-age=15552000");

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody.
    Anyone,
    /// Whoever is signed in, for their own things.
    Member,
}

/// One entry of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// `get`, which stands for HEAD too, or `post`.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// Who may use it.
    pub who: Who,
}

macro_rules! routes {
    ($($method:ident $path:literal $who:ident $handler:path;)+) => {
        /// The table, for whoever wants to try every route.
        pub const ROUTES: &[Route] =
            &[$(Route { method: stringify!($method), path: $path, who: Who::$who }),+];

        fn pages() -> Router<Arc<Portal>> {
            Router::new()$(.route($path, $method($handler)))+
        }
    };
}

routes! {
    get  "/"                                Anyone landing::landing;
    get  "/docs"                            Anyone docs::start;
    get  "/docs/search"                     Anyone docs::search;
    get  "/docs/{page}"                     Anyone docs::page;
    get  "/reference"                       Anyone reference::reference;
    get  "/enterprise"                      Anyone docs::enterprise;

    get  "/signup"                          Anyone signup::form;
    post "/signup"                          Anyone signup::sign_up;
    get  "/signin"                          Anyone signin::form;
    post "/signin"                          Anyone signin::sign_in;
    post "/signin/passkey"                  Anyone passkeys::begin_sign_in;
    post "/signin/passkey/finish"           Anyone passkeys::finish_sign_in;
    get  "/forgot"                          Anyone signup::forgot_form;
    post "/forgot"                          Anyone signup::forgot;
    get  "/link/{token}"                    Anyone link::form;
    post "/link/{token}"                    Anyone link::follow;
    post "/signout"                         Member signin::sign_out;

    get  "/keys"                            Member keys::list;
    post "/keys"                            Member keys::create;
    get  "/keys/new"                        Member keys::form;
    get  "/keys/{id}"                       Member key::show;
    post "/keys/{id}/rename"                Member key::rename;
    post "/keys/{id}/deactivate"            Member key::deactivate;
    post "/keys/{id}/reactivate"            Member key::reactivate;
    post "/keys/{id}/resume"                Member key::resume;
    post "/keys/{id}/roll"                  Member key::roll;
    post "/keys/{id}/retire"                Member key::retire;
    get  "/keys/{id}/delete"                Member key::delete_form;
    post "/keys/{id}/delete"                Member key::delete;
    get  "/keys/{id}/usage.csv"             Member usage::key_csv;

    get  "/usage"                           Member usage::show;
    get  "/usage.csv"                       Member usage::csv;
    get  "/events"                          Member events::stream;

    get  "/account"                         Member account::show;
    post "/account/email"                   Member account::change_email;
    post "/account/password"                Member account::change_password;
    post "/account/alerts"                  Member account::choose_alerts;
    post "/account/sessions/end-others"     Member account::end_other_sessions;
    post "/account/sessions/{id}/end"       Member account::end_session;
    post "/account/passkeys/begin"          Member passkeys::begin_registration;
    post "/account/passkeys"                Member passkeys::finish_registration;
    post "/account/passkeys/{id}/delete"    Member passkeys::delete;
    get  "/account/delete"                  Member account::delete_form;
    post "/account/delete"                  Member account::delete;
}

/// The portal's pages and files.
pub fn router(portal: Arc<Portal>) -> Router {
    let origin = CsrfLayer::new().with_rejection_response(|_| Problem::ForeignSite.into_response());
    let mut pages = pages()
        .layer(DefaultBodyLimit::max(portal.settings.form_bytes_max))
        .layer(origin)
        .layer(from_fn_with_state(Arc::clone(&portal), problem::tell))
        .layer(SetResponseHeaderLayer::overriding(CONTENT_SECURITY_POLICY, POLICY))
        .layer(SetResponseHeaderLayer::overriding(
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ));
    if portal.settings.base_url.starts_with("https://") {
        pages = pages.layer(SetResponseHeaderLayer::overriding(STRICT_TRANSPORT_SECURITY, TLS_ONLY));
    }
    // Pages are sent as they are: a compressed page that holds a token and what a stranger wrote tells the token by its length.
    let files = files::router().route("/assets/{version}/{*file}", get(assets::file)).layer(CompressionLayer::new());
    pages.merge(files).with_state(portal)
}
