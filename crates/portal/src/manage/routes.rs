//! The table of every operation with the scope that it needs, and the routers.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post};
use ipseity_domain::TokenScope;

use super::error::ManageError;
use super::guard::authorize;
use super::{channels, keys, usage};
use crate::public_pages::PublicPages;
use crate::state::Portal;

/// An operation of the management API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManageRoute {
    /// `get` (includes HEAD), `post`, `patch` or `delete`.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// The scope that a token needs.
    pub scope: TokenScope,
    /// Its id in the OpenAPI document.
    pub id: &'static str,
    /// What it does.
    pub summary: &'static str,
}

macro_rules! routes {
    ($($method:ident $path:literal $scope:ident $id:literal $summary:literal $handler:path;)+) => {
        /// All operations of the management API.
        pub const MANAGE_ROUTES: &[ManageRoute] = &[
            $(ManageRoute {
                method: stringify!($method),
                path: $path,
                scope: TokenScope::$scope,
                id: $id,
                summary: $summary,
            },)+
        ];

        fn operations(portal: &Arc<Portal>) -> Router<Arc<Portal>> {
            let guard = |scope| from_fn_with_state((Arc::clone(portal), scope), authorize);
            Router::new()$(.route($path, $method($handler).route_layer(guard(TokenScope::$scope))))+
        }

        /// The router of a remote node, which has no stores. A redirect would make clients drop the token, or send it to another
        /// host.
        pub(crate) fn home_manage_routes(pages: &PublicPages) -> Router {
            Router::new()$(.route($path, $method(refuse_away_from_home)))+.with_state(pages.clone())
        }
    };
}

routes! {
    get    "/api/v1/manage/keys"                         KeysRead    "listKeys"            "List keys"                     keys::list;
    post   "/api/v1/manage/keys"                         KeysWrite   "createKey"           "Create a key"                  keys::create;
    get    "/api/v1/manage/keys/{id}"                    KeysRead    "getKey"              "Get a key"                     keys::show;
    patch  "/api/v1/manage/keys/{id}"                    KeysWrite   "updateKey"           "Rename, restrict, deactivate or reactivate a key" keys::update;
    delete "/api/v1/manage/keys/{id}"                    KeysWrite   "deleteKey"           "Delete a key"                  keys::delete;
    post   "/api/v1/manage/keys/{id}/rotate"             KeysWrite   "rotateKey"           "Replace the secret of a key"   keys::rotate;
    post   "/api/v1/manage/keys/{id}/revoke-previous"    KeysWrite   "revokePreviousSecret" "Revoke the previous secret of a key" keys::revoke_previous;
    post   "/api/v1/manage/keys/{id}/resume"             KeysResume  "resumeKey"           "Resume a paused key"           keys::resume;
    get    "/api/v1/manage/keys/{id}/pauses"             KeysRead    "listPauses"          "List the pauses of a key with their evidence" keys::pauses;
    get    "/api/v1/manage/usage"                        UsageRead   "getUsage"            "Get the usage of the last 30 days" usage::show;
    get    "/api/v1/manage/channels"                     AlertsRead  "listChannels"        "List channels of alerts"       channels::list;
    post   "/api/v1/manage/channels"                     AlertsWrite "createChannel"       "Create a channel of alerts"    channels::create;
    get    "/api/v1/manage/channels/{id}"                AlertsRead  "getChannel"          "Get a channel of alerts"       channels::show;
    patch  "/api/v1/manage/channels/{id}"                AlertsWrite "updateChannel"       "Change a channel of alerts"    channels::update;
    delete "/api/v1/manage/channels/{id}"                AlertsWrite "deleteChannel"       "Delete a channel of alerts"    channels::delete;
    post   "/api/v1/manage/channels/{id}/rotate-secret"  AlertsWrite "rotateChannelSecret" "Replace the signing secret of a webhook" channels::rotate_secret;
    post   "/api/v1/manage/channels/{id}/test"           AlertsWrite "testChannel"         "Send a test alert to a channel" channels::send_test;
}

/// Builds the router of all operations.
pub(crate) fn manage_router(portal: &Arc<Portal>) -> Router {
    operations(portal).with_state(Arc::clone(portal))
}

async fn refuse_away_from_home(pages: PublicPages) -> axum::response::Response {
    ManageError::NotAtHome(pages.settings.portal_url.clone()).response(&pages.settings.base_url)
}
