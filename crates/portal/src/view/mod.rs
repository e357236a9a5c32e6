//! What the pages show: one struct for each template, filled by the handlers and knowing nothing of stores and requests.

mod account;
mod auth;
mod chart;
mod filters;
#[cfg(test)]
mod fixtures;
mod frame;
mod keys;
mod public;
mod static_pages;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use account::{AccountPage, AlertSettings, DeleteAccountPage, PasskeyItem, SessionItem};
pub(crate) use auth::{EmailSentPage, ForgotPage, LinkAction, LinkPage, SignInPage, SignUpPage};
pub(crate) use chart::{daily_chart, pause_chart};
pub(crate) use frame::{Notice, PageFrame, SeoMetadata, Tab};
pub(crate) use keys::{
    DeleteKeyPage, KeyCard, KeyHistoryRow, KeyPage, KeysPage, NewKeyPage, NewSecretPage, PauseView, ScopeChoice,
};
pub(crate) use public::{DocsPage, LandingPage, ReferencePage, SearchPage};
pub(crate) use static_pages::{EnterprisePage, ErrorPage};
pub(crate) use usage::{KeyUsageRow, UsageDayRow, UsagePage, UsageView};
