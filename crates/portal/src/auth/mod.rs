//! Sign-up, sign-in, sessions, passkeys and passwords.

pub(crate) mod common_passwords;
pub(crate) mod csrf_form;
pub(crate) mod email_limits;
pub(crate) mod form_fields;
pub(crate) mod link;
pub(crate) mod passkeys;
pub(crate) mod password;
pub(crate) mod secret_lookups;
pub(crate) mod session;
pub(crate) mod session_cookie;
pub(crate) mod signin;
pub(crate) mod signup;
pub(crate) mod throttle;
pub(crate) mod webauthn;
