//! The portal: access control, sessions, forms, emails and live updates.

mod alert_emails;
mod authenticator;
mod authorization;
mod banner;
pub(crate) mod browser;
mod csrf;
mod email_addresses;
mod email_changes;
mod email_limits;
mod email_links;
mod enumeration;
pub(crate) mod fixture;
mod key_badges;
mod key_limit_race;
mod key_restrictions;
mod leaked_keys;
mod live_updates;
mod page_performance;
mod passkeys;
pub(crate) mod routes;
mod security_emails;
mod security_headers;
mod sessions;
mod sign_in_redirects;
mod signin_flood;
mod throttle;
mod two_factor;
