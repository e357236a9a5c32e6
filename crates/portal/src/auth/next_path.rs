//! The page to return to after a sign-in or a confirmation.

use http::{Method, Uri};
use ipseity_domain::KeyId;

/// The sections of members.
const SECTIONS: [&str; 3] = ["keys", "usage", "account"];

/// The path of a page of members. It contains only letters, digits, `/`, `-` and `_`, so it cannot lead to another site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NextPath(Option<String>);

impl NextPath {
    /// Anything else than the path of a page of members becomes no path.
    pub(crate) fn parse(text: &str) -> Self {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_'));
        let section = text.strip_prefix('/').and_then(|rest| rest.split('/').next());
        let is_known = section.is_some_and(|section| SECTIONS.contains(&section));
        Self((is_plain && is_known).then(|| text.to_owned()))
    }

    /// Reads the query `next=PATH`.
    pub(crate) fn from_query(uri: &Uri) -> Self {
        uri.query().and_then(|query| query.strip_prefix("next=")).map(Self::parse).unwrap_or_default()
    }

    /// The page to show after the sign-in that a request needs. After a form it is the page of the form, because the form is lost.
    pub(crate) fn after_request(method: &Method, path: &str) -> Self {
        if matches!(*method, Method::GET | Method::HEAD) {
            return Self::parse(path);
        }
        let mut segments = path.split('/').skip(1);
        let page = match (segments.next(), segments.next()) {
            (Some("keys"), Some(id)) if KeyId::parse(id).is_some() => format!("/keys/{id}"),
            (Some(section), _) => format!("/{section}"),
            (None, _) => return Self::default(),
        };
        Self::parse(&page)
    }

    pub(crate) fn as_deref(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The path, or empty. For the field of a form.
    pub(crate) fn field(&self) -> &str {
        self.as_deref().unwrap_or_default()
    }

    /// A URL with this path as its query.
    pub(crate) fn append_to(&self, url: &str) -> String {
        self.as_deref().map_or_else(|| url.to_owned(), |path| format!("{url}?next={path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_members_are_returned_to() {
        for path in ["/keys", "/keys/new", "/keys/0123456789/delete", "/usage", "/account/two-factor"] {
            assert_eq!(NextPath::parse(path).as_deref(), Some(path));
        }
        for other in [
            "",
            "/",
            "keys",
            "//evil.example",
            "//keys",
            "/\\evil.example",
            "/%2fevil.example",
            "%2f%2fevil.example",
            "https://evil.example/keys",
            "javascript:alert(1)",
            "/keys.evil.example",
            "/keys@evil.example",
            "/keysevil",
            "/keys?x",
            "/keys#x",
            "/keys/..%2f",
            "/keys/../signout",
            "/keys\\x",
            "/keys\r\nset-cookie:a=b",
            "/keys\t",
            "\t/keys",
            "/k\u{200b}eys",
            "/signout",
            "/events",
        ] {
            assert_eq!(NextPath::parse(other).as_deref(), None, "{other}");
        }
    }

    #[test]
    fn form_leads_back_to_its_page() {
        for (method, path, expected) in [
            (Method::GET, "/keys/0123456789", Some("/keys/0123456789")),
            (Method::POST, "/keys", Some("/keys")),
            (Method::POST, "/keys/0123456789/resume", Some("/keys/0123456789")),
            (Method::POST, "/keys/wrong/resume", Some("/keys")),
            (Method::POST, "/account/sessions/7/end", Some("/account")),
            (Method::POST, "/signout", None),
            (Method::GET, "/events", None),
        ] {
            assert_eq!(NextPath::after_request(&method, path).as_deref(), expected, "{method} {path}");
        }
    }
}
