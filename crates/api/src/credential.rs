//! The key or ticket of a request.

use std::borrow::Cow;

use http::request::Parts;

use crate::admission::credentials;
use crate::error::Refusal;

/// The key or ticket of a request.
pub(crate) fn find_credential(parts: &Parts) -> Result<Cow<'_, str>, Refusal> {
    let missing = |has_key| if has_key { Refusal::MissingScheme } else { Refusal::MissingKey };
    credentials::find_api_key(parts).ok_or_else(|| missing(credentials::has_key_without_bearer(parts)))
}
