//! The table of every page and form, and the router.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::header::CONTENT_SECURITY_POLICY;
use http::{HeaderName, HeaderValue};
use tower_http::csrf::CsrfLayer;
use tower_http::set_header::SetResponseHeaderLayer;

use crate::auth::{confirm, link, passkeys, providers, second_factor, signin, signup};
use crate::csp::PAGE_CSP;
use crate::error::PortalError;
use crate::host::HostServices;
use crate::keys::{detail, explorer, list, new_key, past_pause, restrict};
use crate::landing::paired_address::{self, PAIRED_ADDRESS_PATH};
use crate::leaks::github;
use crate::live::events;
use crate::manage::{home_manage_routes, manage_router};
use crate::public_pages::home_redirect::redirect_to_home;
use crate::public_pages::{PageState, PublicPages, PublicPagesSettings};
use crate::state::Portal;
use crate::{
    account, alerts, assets, docs, error_page, https_redirect, landing, leaks, legal, limit_request, linked_accounts,
    reference, site_files, status, tokens, two_factor,
};

/// Denies the browser features that no page uses.
pub(crate) const PERMISSIONS_POLICY: HeaderValue = HeaderValue::from_static(
    "accelerometer=(), autoplay=(), camera=(), display-capture=(), encrypted-media=(), fullscreen=(), geolocation=(), \
     gyroscope=(), hid=(), magnetometer=(), microphone=(), midi=(), payment=(), picture-in-picture=(), \
     screen-wake-lock=(), serial=(), usb=(), xr-spatial-tracking=()",
);

const GITHUB_REPORTS_PATH: &str = "/leaked-keys/github";
/// Maximum number of subnets whose lookups on the landing page a remote node counts.
const REMOTE_SUBNETS_MAX: usize = 100_000;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// Anyone.
    Public,
    /// Signed-in members, for their own resources.
    Member,
}

/// A route of the portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortalRoute {
    /// `get` (includes HEAD) or `post`.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// Who may use it.
    pub access: RouteAccess,
    /// Whether remote nodes serve it too. They redirect all other routes to the portal of home.
    pub is_on_every_node: bool,
}

macro_rules! routes {
    (
        [every_node] $($method:ident $path:literal $access:ident $handler:path;)+
        [home] $($home_method:ident $home_path:literal $home_access:ident $home_handler:path;)+
    ) => {
        /// All routes of pages and forms.
        pub const PORTAL_ROUTES: &[PortalRoute] = &[
            $(PortalRoute {
                method: stringify!($method),
                path: $path,
                access: RouteAccess::$access,
                is_on_every_node: true,
            },)+
            $(PortalRoute {
                method: stringify!($home_method),
                path: $home_path,
                access: RouteAccess::$home_access,
                is_on_every_node: false,
            },)+
        ];

        fn public_page_routes<S: PageState>() -> Router<S> {
            Router::new()$(.route($path, $method($handler)))+
        }

        fn home_routes() -> Router<Arc<Portal>> {
            Router::new()$(.route($home_path, $home_method($home_handler)))+
        }

        fn home_redirect_routes() -> Router<PublicPages> {
            Router::new()$(.route($home_path, $home_method(redirect_to_home)))+
        }
    };
}

// A route under `[every_node]` needs neither an account nor a store. Remote nodes redirect the routes under `[home]`.
routes! {
    [every_node]
    get  "/"                                Public landing::show_landing;
    get  "/docs"                            Public docs::show_index;
    get  "/docs/search"                     Public docs::show_search;
    get  "/docs/{page}"                     Public docs::show_page;
    get  "/reference"                       Public reference::show_reference;
    get  "/enterprise"                      Public landing::show_enterprise;
    get  "/status"                          Public status::show_status;
    get  "/terms"                           Public legal::show_terms;
    get  "/privacy"                         Public legal::show_privacy;

    [home]
    get  "/signup"                          Public signup::signup_form;
    post "/signup"                          Public signup::sign_up;
    get  "/signin"                          Public signin::signin_form;
    post "/signin"                          Public signin::sign_in;
    get  "/signin/verify"                   Public second_factor::show;
    post "/signin/verify"                   Public second_factor::verify;
    post "/signin/passkey"                  Public passkeys::begin_sign_in;
    post "/signin/passkey/finish"           Public passkeys::finish_sign_in;
    post "/signin/provider/{index}"         Public providers::begin_sign_in;
    get  "/signin/callback/{provider}"      Public providers::finish;
    get  "/forgot"                          Public signup::forgot_form;
    post "/forgot"                          Public signup::request_password_reset;
    get  "/link/{token}"                    Public link::link_form;
    post "/link/{token}"                    Public link::redeem_link;
    get  "/leaked-keys"                     Public leaks::show;
    post "/leaked-keys"                     Public leaks::report;
    post "/signout"                         Member signin::sign_out;

    get  "/keys"                            Member list::list;
    post "/keys"                            Member new_key::create;
    get  "/keys/new"                        Member new_key::new_key_form;
    get  "/keys/{id}"                       Member detail::show;
    post "/keys/{id}/rename"                Member detail::rename;
    post "/keys/{id}/deactivate"            Member detail::deactivate;
    post "/keys/{id}/reactivate"            Member detail::reactivate;
    post "/keys/{id}/resume"                Member detail::resume;
    post "/keys/{id}/rotate"                Member detail::rotate;
    post "/keys/{id}/revoke-previous"       Member detail::revoke_previous;
    post "/keys/{id}/restrict"              Member restrict::restrict;
    post "/keys/{id}/invalidate-tickets"    Member restrict::invalidate_tickets;
    get  "/keys/{id}/pauses/{epoch}"        Member past_pause::show;
    get  "/keys/{id}/delete"                Member detail::delete_form;
    post "/keys/{id}/delete"                Member detail::delete;
    get  "/keys/{id}/usage.csv"             Member explorer::download_key_csv;

    get  "/usage"                           Member explorer::show;
    get  "/usage.csv"                       Member explorer::download_csv;
    get  "/usage.json"                      Member explorer::download_json;
    get  "/events"                          Member events::stream;

    get  "/account"                         Member account::show;
    post "/account/email"                   Member account::change_email;
    post "/account/password"                Member account::change_password;
    get  "/account/alerts"                  Member alerts::pages::show;
    post "/account/alerts"                  Member alerts::pages::save_email_alerts;
    post "/account/alerts/channels"         Member alerts::pages::create_channel;
    get  "/account/alerts/{id}"             Member alerts::pages::show_channel;
    post "/account/alerts/{id}"             Member alerts::pages::update_channel;
    post "/account/alerts/{id}/rotate"      Member alerts::pages::rotate_secret;
    post "/account/alerts/{id}/test"        Member alerts::pages::send_test;
    post "/account/alerts/{id}/on"          Member alerts::pages::turn_on;
    post "/account/alerts/{id}/delete"      Member alerts::pages::delete_channel;
    post "/account/alerts/{id}/deliveries/{delivery}" Member alerts::pages::redeliver;
    get  "/account/tokens"                  Member tokens::show;
    post "/account/tokens"                  Member tokens::create;
    post "/account/tokens/resume"           Member tokens::set_may_resume;
    post "/account/tokens/{id}/revoke"      Member tokens::revoke;
    post "/account/sessions/end-others"     Member account::end_other_sessions;
    post "/account/sessions/{id}/end"       Member account::end_session;
    post "/account/devices/{id}/forget"     Member account::forget_device;
    get  "/account/sign-in"                 Member linked_accounts::show;
    post "/account/sign-in/providers/{index}" Member linked_accounts::link;
    post "/account/sign-in/identities/{id}/unlink" Member linked_accounts::unlink;
    get  "/account/two-factor"              Member two_factor::show;
    post "/account/two-factor/app"          Member two_factor::begin_totp;
    post "/account/two-factor/app/confirm"  Member two_factor::enable_totp;
    post "/account/two-factor/passkeys"     Member two_factor::enable_passkeys;
    post "/account/two-factor/codes"        Member two_factor::replace_codes;
    post "/account/two-factor/off"          Member two_factor::disable;
    get  "/account/confirm"                 Member confirm::show;
    post "/account/confirm/password"        Member confirm::confirm_password;
    post "/account/confirm/begin"           Member passkeys::begin_confirmation;
    post "/account/confirm"                 Member passkeys::finish_confirmation;
    post "/account/passkeys/begin"          Member passkeys::begin_registration;
    post "/account/passkeys"                Member passkeys::finish_registration;
    post "/account/passkeys/{id}/delete"    Member passkeys::delete;
    get  "/account/limits"                  Member limit_request::show;
    post "/account/limits"                  Member limit_request::create;
    get  "/account/delete"                  Member account::delete_form;
    post "/account/delete"                  Member account::delete;
}

/// The routers of a node's pages.
pub struct PageRouters {
    /// All pages, forms and files.
    pub routes: Router,
    /// The page for a path without a route.
    pub not_found: Router,
}

/// Builds the routers of all pages and files.
pub fn router(portal: Arc<Portal>) -> PageRouters {
    let page_routes =
        public_page_routes().merge(home_routes()).layer(DefaultBodyLimit::max(portal.settings.form_bytes_max));
    // For programs: no session and no form, but a signature.
    let report_routes = Router::new()
        .route(GITHUB_REPORTS_PATH, post(github::receive))
        .layer(DefaultBodyLimit::max(portal.settings.form_bytes_max))
        .layer(from_fn_with_state(Arc::clone(&portal), error_page::render_errors::<Arc<Portal>>));
    let routes = with_page_layers(page_routes, &portal).merge(report_routes).merge(file_routes());
    let manage_routes = manage_router(&portal);
    let PageRouters { routes, not_found } = page_routers(routes, portal);
    PageRouters { routes: routes.merge(manage_routes), not_found }
}

/// Builds the routers of a remote node: the pages and files that need no account, and redirects to the portal of home.
///
/// # Panics
/// Panics outside of a Tokio runtime, because it starts a task that removes expired counts.
pub fn public_pages_router(settings: PublicPagesSettings, host: Box<dyn HostServices>) -> PageRouters {
    let pages = PublicPages::new(settings, host, REMOTE_SUBNETS_MAX);
    pages.spawn_sweep();
    let routes = with_page_layers(public_page_routes().merge(home_redirect_routes()), &pages)
        .route(GITHUB_REPORTS_PATH, post(redirect_to_home))
        .merge(file_routes());
    let manage_routes = home_manage_routes(&pages);
    let PageRouters { routes, not_found } = page_routers(routes, pages);
    PageRouters { routes: routes.merge(manage_routes), not_found }
}

fn page_routers<S: PageState>(routes: Router<S>, state: S) -> PageRouters {
    let not_found = with_page_layers(Router::new().fallback(async || PortalError::PathNotFound), &state);
    let [routes, not_found] = [routes, not_found].map(|router| {
        let redirect_layer = from_fn_with_state(state.public_pages().clone(), https_redirect::redirect_to_https);
        router.layer(redirect_layer).with_state(state.clone())
    });
    PageRouters { routes, not_found }
}

/// Adds error pages, security headers and the check for forms of other sites.
fn with_page_layers<S: PageState>(page_routes: Router<S>, state: &S) -> Router<S> {
    let csrf_layer = CsrfLayer::new().with_rejection_response(|_| PortalError::CrossOrigin.into_response());
    // Pages are not compressed: with a token and attacker-controlled text on one page, the compressed length leaks the token (BREACH).
    page_routes
        .layer(csrf_layer)
        .layer(from_fn_with_state(state.clone(), error_page::render_errors::<S>))
        // The landing page has a policy with two more URLs.
        .layer(SetResponseHeaderLayer::if_not_present(CONTENT_SECURITY_POLICY, PAGE_CSP))
        .layer(SetResponseHeaderLayer::overriding(
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ))
        .layer(SetResponseHeaderLayer::overriding(
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ))
        .layer(SetResponseHeaderLayer::overriding(HeaderName::from_static("permissions-policy"), PERMISSIONS_POLICY))
}

fn file_routes<S: PageState>() -> Router<S> {
    assets::prepare();
    site_files::router()
        .route(PAIRED_ADDRESS_PATH, get(paired_address::show_paired_address))
        .route("/assets/{version}/{*file}", get(assets::serve_asset))
}
