//! HTML escaping, for text that is not written through a template.

/// Escapes text for an HTML element, not for an attribute.
pub(crate) fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Escapes text for an HTML element or a double-quoted attribute.
pub(crate) fn escape_html(text: &str) -> String {
    escape_text(text).replace('"', "&quot;")
}
