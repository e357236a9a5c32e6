//! What the pages show: one struct for each template, filled by the handlers and knowing nothing of stores and requests.

mod account;
mod chart;
mod door;
mod filters;
mod frame;
mod keys;
mod plain;
mod public;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
mod usage;

pub(crate) use account::{AccountPage, Alerts, DeleteAccountPage, PasskeyRow, SessionRow};
pub(crate) use chart::{days_chart, minute_chart};
pub(crate) use door::{ForgotPage, LinkPage, LinkWish, SentPage, SignInPage, SignUpPage};
pub(crate) use frame::{Frame, Notice, Published, Tab};
pub(crate) use keys::{
    DeleteKeyPage, EventRow, KeyCard, KeyPage, KeysPage, MintedPage, NewKeyPage, PauseView, ScopeChoice,
};
pub(crate) use plain::{EnterprisePage, ProblemPage};
pub(crate) use public::{DocsPage, LandingPage, ReferencePage, SearchPage};
pub(crate) use usage::{DayRow, KeyUsage, UsagePage, UsageView};
