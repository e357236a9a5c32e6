//! The table of every page and form of the console with the role it needs, and the router.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue};
use ipseity_store::OperatorRole;
use tower_http::csrf::CsrfLayer;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::assets;
use crate::console::error::ConsoleError;
use crate::console::guard::{authorize, check_host_and_origin};
use crate::console::state::Console;
use crate::console::{
    accounts, audit, emails, join, keys, nodes, operators, overview, profile, providers, rejections, requests, search,
    sign_in, sign_ups, system,
};
use crate::csp::PAGE_CSP;
use crate::routes::PERMISSIONS_POLICY;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleAccess {
    /// Anyone who reaches the listener.
    Public,
    /// Every operator.
    Viewer,
    /// Operators with the role support or admin.
    Support,
    /// Operators with the role admin.
    Admin,
}

impl ConsoleAccess {
    /// The smallest role that may use the route. `None` if none is needed.
    #[must_use]
    pub const fn role(self) -> Option<OperatorRole> {
        match self {
            Self::Public => None,
            Self::Viewer => Some(OperatorRole::Viewer),
            Self::Support => Some(OperatorRole::Support),
            Self::Admin => Some(OperatorRole::Admin),
        }
    }
}

/// A route of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsoleRoute {
    /// `get` (includes HEAD) or `post`.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// Who may use it.
    pub access: ConsoleAccess,
}

macro_rules! routes {
    ($($method:ident $path:literal $access:ident $handler:path;)+) => {
        /// All routes of pages and forms.
        pub const CONSOLE_ROUTES: &[ConsoleRoute] = &[
            $(ConsoleRoute { method: stringify!($method), path: $path, access: ConsoleAccess::$access },)+
        ];

        fn page_routes(console: &Arc<Console>) -> Router<Arc<Console>> {
            let guard = |access| from_fn_with_state((Arc::clone(console), access), authorize);
            Router::new()$(.route($path, $method($handler).layer(guard(ConsoleAccess::$access))))+
                .fallback_service(
                    Router::new()
                        .fallback(async || ConsoleError::NotFound)
                        .layer(guard(ConsoleAccess::Public)),
                )
        }
    };
}

routes! {
    get  "/signin"                          Public  sign_in::show;
    post "/signin/passkey"                  Public  sign_in::begin_passkey;
    post "/signin/passkey/finish"           Public  sign_in::finish_passkey;
    post "/signin/provider/{index}"         Public  providers::begin_sign_in;
    get  "/signin/callback/{provider}"      Public  providers::finish;
    get  "/join/{token}"                    Public  join::show;
    post "/join/{token}/passkey"            Public  join::begin_passkey;
    post "/join/{token}/passkey/finish"     Public  join::finish_passkey;
    post "/join/{token}/provider/{index}"   Public  providers::begin_join;
    post "/signout"                         Viewer  sign_in::sign_out;

    get  "/"                                Viewer  overview::show;
    get  "/search"                          Viewer  search::show;
    get  "/sign-ups"                        Viewer  sign_ups::show;
    post "/sign-ups/invite"                 Support sign_ups::invite;
    get  "/rejections"                      Viewer  rejections::show;
    get  "/requests"                        Viewer  requests::list;
    post "/requests/{id}/decide"            Admin   requests::decide;
    get  "/emails"                          Viewer  emails::list;
    post "/emails/retry"                    Support emails::retry;
    get  "/nodes"                           Viewer  nodes::list;
    get  "/system"                          Viewer  system::show;
    get  "/audit"                           Viewer  audit::list;
    get  "/audit.csv"                       Viewer  audit::export_csv;

    get  "/accounts/{id}"                   Viewer  accounts::show;
    post "/accounts/{id}/password-reset"    Support accounts::send_password_reset;
    post "/accounts/{id}/plan"              Admin   accounts::set_plan;
    post "/accounts/{id}/limits"            Admin   accounts::set_limits;
    post "/accounts/{id}/two-factor-off"    Admin   accounts::disable_two_factor;
    get  "/accounts/{id}/delete"            Admin   accounts::delete_form;
    post "/accounts/{id}/delete"            Admin   accounts::delete;

    get  "/keys/{id}"                       Viewer  keys::show;
    post "/keys/{id}/resume"                Support keys::resume;
    post "/keys/{id}/deactivate"            Support keys::deactivate;
    post "/keys/{id}/reactivate"            Support keys::reactivate;
    post "/keys/{id}/revoke-previous"       Support keys::revoke_previous;
    post "/keys/{id}/restrict"              Support keys::restrict;
    post "/keys/{id}/limits"                Admin   keys::set_limits;

    get  "/profile"                         Viewer  profile::show;
    post "/profile/passkeys"                Viewer  profile::begin_passkey;
    post "/profile/passkeys/finish"         Viewer  profile::finish_passkey;
    post "/profile/passkeys/{id}/remove"    Viewer  profile::remove_passkey;
    post "/profile/provider/{index}"        Viewer  providers::begin_link;
    post "/profile/identities/{id}/remove"  Viewer  profile::remove_identity;
    post "/profile/sessions/end-others"     Viewer  profile::end_other_sessions;

    get  "/operators"                       Admin   operators::list;
    post "/operators"                       Admin   operators::invite;
    post "/operators/{id}/link"             Admin   operators::renew_link;
    post "/operators/{id}/role"             Admin   operators::set_role;
    post "/operators/{id}/remove"           Admin   operators::remove;
}

/// Builds the router of all pages and files of the console.
pub fn console_router(console: Arc<Console>) -> Router {
    let csrf_layer = CsrfLayer::new().with_rejection_response(|_| ConsoleError::CrossOrigin.into_response());
    let header = |name, value: &'static str| {
        SetResponseHeaderLayer::if_not_present(HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    page_routes(&console)
        .layer(csrf_layer)
        .route("/assets/{version}/{*file}", get(assets::serve_asset))
        .layer(DefaultBodyLimit::max(console.settings.form_bytes_max))
        .layer(from_fn_with_state(Arc::clone(&console), check_host_and_origin))
        .layer(SetResponseHeaderLayer::overriding(CONTENT_SECURITY_POLICY, PAGE_CSP))
        .layer(SetResponseHeaderLayer::overriding(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")))
        // Without a referrer, browsers would also send no origin with forms.
        .layer(SetResponseHeaderLayer::overriding(REFERRER_POLICY, HeaderValue::from_static("same-origin")))
        .layer(SetResponseHeaderLayer::if_not_present(CACHE_CONTROL, HeaderValue::from_static("no-store")))
        .layer(header("x-frame-options", "DENY"))
        .layer(header("cross-origin-opener-policy", "same-origin"))
        .layer(header("cross-origin-resource-policy", "same-origin"))
        .layer(SetResponseHeaderLayer::overriding(HeaderName::from_static("permissions-policy"), PERMISSIONS_POLICY))
        .with_state(console)
}
