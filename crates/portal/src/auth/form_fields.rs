//! The fields of a form.

use std::collections::HashMap;

/// Parses the body of a form. If a field is repeated, its last value counts.
pub(crate) fn parse_fields(body: &[u8]) -> HashMap<String, String> {
    form_urlencoded::parse(body).into_owned().collect()
}
