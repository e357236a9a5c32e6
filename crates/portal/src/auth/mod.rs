//! Sign-up, sign-in, sessions, passkeys, passwords, other providers and second factors.

pub(crate) mod common_passwords;
pub(crate) mod confirm;
pub(crate) mod csrf_form;
pub(crate) mod email_limits;
pub(crate) mod form_fields;
pub(crate) mod link;
pub(crate) mod next_path;
pub(crate) mod passkeys;
pub(crate) mod password;
pub(crate) mod providers;
pub(crate) mod recovery_codes;
pub(crate) mod second_factor;
pub(crate) mod secret_lookups;
pub(crate) mod session;
pub(crate) mod session_cookie;
pub(crate) mod sign_in_counts;
pub(crate) mod signin;
pub(crate) mod signup;
pub(crate) mod throttle;
pub(crate) mod totp;
pub(crate) mod webauthn;
