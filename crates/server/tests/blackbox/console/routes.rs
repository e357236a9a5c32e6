//! Every route of the console, with the fields of its form and the expected status. A new route needs a new row.

use ipseity_testkit::TestResponse;

use super::fixture::{ConsoleTarget, TestOperator, fresh_name};
use crate::portal::browser::Browser;
use crate::portal::fixture::fresh_email;

/// Placeholders for what belongs to the target.
const EMAIL: &str = "EMAIL";
const FAILED_EMAIL: &str = "FAILED EMAIL";
/// Placeholders for new ones.
const FRESH_EMAIL: &str = "FRESH EMAIL";
const FRESH_NAME: &str = "FRESH NAME";

type Fields = &'static [(&'static str, &'static str)];

/// A route and its form.
pub(crate) struct RouteCase {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// The fields of the form, without the CSRF token.
    fields: Fields,
    /// The status for an operator with the role and a valid form.
    pub(crate) status: u16,
}

const fn page_case(path: &'static str) -> RouteCase {
    RouteCase { method: "get", path, fields: &[], status: 200 }
}

const fn form_case(path: &'static str, fields: Fields, status: u16) -> RouteCase {
    RouteCase { method: "post", path, fields, status }
}

pub(crate) const ROUTE_CASES: &[RouteCase] = &[
    // Operators have no use for it.
    RouteCase { method: "get", path: "/signin", fields: &[], status: 303 },
    form_case("/signin/passkey", &[], 200),
    // An invalid passkey gets an error page.
    form_case("/signin/passkey/finish", &[("credential", "{}")], 403),
    // The node has no other provider.
    form_case("/signin/provider/{index}", &[], 404),
    RouteCase { method: "get", path: "/signin/callback/{provider}", fields: &[], status: 403 },
    form_case("/join/{token}/provider/{index}", &[], 404),
    page_case("/join/{token}"),
    form_case("/join/{token}/passkey", &[], 200),
    form_case("/join/{token}/passkey/finish", &[("credential", "{}")], 403),
    form_case("/signout", &[], 303),
    page_case("/"),
    page_case("/search"),
    page_case("/sign-ups"),
    form_case("/sign-ups/invite", &[("email", FRESH_EMAIL)], 200),
    page_case("/rejections"),
    page_case("/requests"),
    form_case("/requests/{id}/decide", &[("decision", "granted")], 303),
    page_case("/emails"),
    form_case("/emails/retry", &[("queue", "links"), ("id", FAILED_EMAIL)], 303),
    page_case("/nodes"),
    page_case("/system"),
    page_case("/audit"),
    page_case("/audit.csv"),
    page_case("/accounts/{id}"),
    form_case("/accounts/{id}/password-reset", &[], 303),
    form_case("/accounts/{id}/plan", &[("plan", "free")], 303),
    form_case("/accounts/{id}/limits", &[("daily_limit", "5")], 303),
    form_case("/accounts/{id}/two-factor-off", &[], 303),
    page_case("/accounts/{id}/delete"),
    form_case("/accounts/{id}/delete", &[("email", EMAIL)], 303),
    page_case("/keys/{id}"),
    form_case("/keys/{id}/resume", &[], 303),
    form_case("/keys/{id}/deactivate", &[], 303),
    form_case("/keys/{id}/reactivate", &[], 303),
    form_case("/keys/{id}/revoke-previous", &[], 303),
    form_case("/keys/{id}/restrict", &[("origins", "https://example.com")], 303),
    form_case("/keys/{id}/limits", &[("daily_limit", "5")], 303),
    page_case("/profile"),
    form_case("/profile/passkeys", &[], 200),
    form_case("/profile/passkeys/finish", &[("credential", "{}")], 403),
    form_case("/profile/passkeys/{id}/remove", &[], 303),
    form_case("/profile/provider/{index}", &[], 404),
    // The operator has none.
    form_case("/profile/identities/{id}/remove", &[], 404),
    form_case("/profile/sessions/end-others", &[], 303),
    page_case("/operators"),
    form_case("/operators", &[("name", FRESH_NAME), ("role", "viewer")], 200),
    form_case("/operators/{id}/link", &[], 200),
    form_case("/operators/{id}/role", &[("role", "support")], 303),
    form_case("/operators/{id}/remove", &[], 303),
];

impl RouteCase {
    pub(crate) fn is_form(&self) -> bool {
        self.method == "post"
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// The path with the IDs of a target. A passkey is that of the operator.
    pub(crate) fn path_for(&self, target: &ConsoleTarget, operator: Option<&TestOperator>) -> String {
        let id = match self.path {
            path if path.starts_with("/accounts/") => &target.account,
            path if path.starts_with("/keys/") => &target.key,
            path if path.starts_with("/requests/") => &target.request,
            path if path.starts_with("/operators/") => &target.operator,
            _ => operator.map_or(&target.operator, |operator| &operator.passkey),
        };
        self.path
            .replace("{id}", id)
            .replace("{token}", &target.link_token)
            .replace("{index}", "0")
            .replace("{provider}", "oidc")
    }

    /// The fields for a target.
    pub(crate) fn fields_for(&self, target: &ConsoleTarget) -> Vec<(&'static str, String)> {
        let substitute = |value: &'static str| match value {
            EMAIL => target.email.clone(),
            FAILED_EMAIL => target.failed_email.clone(),
            FRESH_EMAIL => fresh_email(),
            FRESH_NAME => fresh_name("added"),
            other => other.to_owned(),
        };
        self.fields.iter().map(|(name, value)| (*name, substitute(value))).collect()
    }

    /// Requests the route as a page would, with a valid CSRF token.
    pub(crate) async fn visit(&self, browser: &mut Browser, path: &str, target: &ConsoleTarget) -> TestResponse {
        if !self.is_form() {
            return browser.get(path).await;
        }
        let fields = self.fields_for(target);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.post(path, &fields).await
    }
}
