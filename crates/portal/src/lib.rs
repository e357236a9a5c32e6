//! The portal: the HTML pages for people.
//!
//! It serves the landing page, the documentation and API reference, sign-up and sign-in, and the dashboard for keys, usage
//! and the account. Pages are rendered on the server and work without JavaScript.
//!
//! - [`Portal`] is the shared state. The server creates it from a [`PortalSettings`] and its [`HostServices`].
//! - [`router`] builds the axum router. [`PORTAL_ROUTES`] lists every page and form, for tests.
//! - [`public_pages_router`] builds the router of a remote node, which has no stores. It serves the pages that need no account,
//!   and redirects all others to the portal of home.
//! - [`MANAGE_ROUTES`] lists the operations of the management API, and [`manage_openapi`] describes them.
//! - [`PortalWorker`] is the background task. It sends queued emails and alerts, and notifies open pages of changes.
//!
//! The portal does not enforce limits (`ipseity-ledger` does) and does not look up addresses (`ipseity-api` does). It never
//! writes a client address to a log, a table or an email. Every form that changes something is read through
//! `auth::csrf_form::CsrfForm`, which verifies that the form came from a page of the same session.

mod account;
mod alerts;
mod assets;
mod auth;
mod console;
mod csp;
mod docs;
mod error;
mod error_page;
mod host;
mod html;
mod https_redirect;
mod identity_providers;
mod keys;
mod landing;
mod leaks;
mod legal;
mod limit_request;
mod linked_accounts;
mod live;
mod mail;
mod manage;
mod oidc;
mod page;
mod permits;
mod public_pages;
mod reference;
mod routes;
mod site_files;
mod state;
mod static_file;
mod status;
mod time;
mod tokens;
mod two_factor;
mod view;
mod worker;

pub use alerts::AlertOptions;
pub use auth::link::generate_invitation;
pub use console::{
    CONSOLE_ROUTES, Console, ConsoleAccess, ConsoleHost, ConsoleRoute, ConsoleSettings, GeoEdition, HealthCheck,
    NodeCertificate, OperatorStores, console_router, generate_operator_link, offer_first_link,
};
pub use host::{DataAttribution, HostServices, ProbeState, ServiceHealth, SiteHeartbeat, VisitorLookup};
pub use legal::text::LegalTexts;
pub use mail::{MailerError, MailerOptions};
pub use manage::{MANAGE_ROUTES, ManageRoute, ManageSettings, manage_openapi};
pub use oidc::{
    ExternalIdentity, GithubSettings, IdTokenError, OidcError, OidcProviderSettings, PendingSignIn, ProviderErrorCode,
    SignInCallback, SignInProvider,
};
pub use public_pages::PublicPagesSettings;
pub use routes::{PORTAL_ROUTES, PageRouters, PortalRoute, RouteAccess, public_pages_router, router};
pub use state::{Portal, PortalSettings};
pub use worker::{PortalWorker, PortalWorkerError};
