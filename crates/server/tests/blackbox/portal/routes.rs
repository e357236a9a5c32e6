//! Every route of the portal, with the fields of its form and the expected status. A new route needs a new row.

use ipseity_portal::{PORTAL_ROUTES, PortalRoute, RouteAccess};
use ipseity_testkit::TestResponse;

use super::browser::Browser;
use super::fixture::{NEW_PASSWORD, PASSWORD, PortalFixture, TestMember, digest_sql, fresh_secret};

/// Placeholder for the email of the account under test.
const EMAIL_PLACEHOLDER: &str = "EMAIL";
/// Placeholder for the ID of its key.
const KEY_PLACEHOLDER: &str = "KEY";

/// A route and its form.
pub(crate) struct RouteCase {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// The fields of the form, without the CSRF token.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    /// The status for a visitor with access and a valid form.
    pub(crate) status: u16,
}

const fn page_case(path: &'static str) -> RouteCase {
    RouteCase { method: "get", path, fields: &[], status: 200 }
}

const fn form_case(path: &'static str, fields: &'static [(&'static str, &'static str)], status: u16) -> RouteCase {
    RouteCase { method: "post", path, fields, status }
}

pub(crate) const ROUTE_CASES: &[RouteCase] = &[
    page_case("/"),
    page_case("/docs"),
    page_case("/docs/search"),
    page_case("/docs/{page}"),
    page_case("/reference"),
    page_case("/enterprise"),
    page_case("/status"),
    // Without texts of the operator.
    RouteCase { method: "get", path: "/terms", fields: &[], status: 404 },
    RouteCase { method: "get", path: "/privacy", fields: &[], status: 404 },
    // Members have no use for it.
    RouteCase { method: "get", path: "/signup", fields: &[], status: 303 },
    form_case("/signup", &[("email", EMAIL_PLACEHOLDER), ("password", PASSWORD)], 200),
    RouteCase { method: "get", path: "/signin", fields: &[], status: 303 },
    form_case("/signin", &[("email", EMAIL_PLACEHOLDER), ("password", PASSWORD)], 303),
    // Without a password before.
    RouteCase { method: "get", path: "/signin/verify", fields: &[], status: 303 },
    form_case("/signin/verify", &[("code", "000000")], 303),
    form_case("/signin/passkey", &[], 200),
    // An invalid passkey gets an error page.
    form_case("/signin/passkey/finish", &[("credential", "{}")], 403),
    // The node has no other provider.
    form_case("/signin/provider/{index}", &[], 404),
    // Without a sign-in at a provider before.
    RouteCase { method: "get", path: "/signin/callback/{provider}", fields: &[], status: 403 },
    page_case("/forgot"),
    form_case("/forgot", &[("email", EMAIL_PLACEHOLDER)], 200),
    page_case("/link/{token}"),
    form_case("/link/{token}", &[("password", NEW_PASSWORD)], 303),
    page_case("/leaked-keys"),
    form_case("/leaked-keys", &[("key", "none")], 200),
    form_case("/signout", &[], 303),
    page_case("/keys"),
    form_case("/keys", &[("name", "one more"), ("scope", "ip")], 200),
    page_case("/keys/new"),
    page_case("/keys/{id}"),
    form_case("/keys/{id}/rename", &[("name", "another name")], 303),
    form_case("/keys/{id}/deactivate", &[], 303),
    form_case("/keys/{id}/reactivate", &[], 303),
    form_case("/keys/{id}/resume", &[], 303),
    form_case("/keys/{id}/rotate", &[("overlap_s", "3600")], 200),
    form_case("/keys/{id}/revoke-previous", &[], 303),
    form_case("/keys/{id}/invalidate-tickets", &[], 303),
    form_case("/keys/{id}/restrict", &[("origins", "https://example.com")], 303),
    page_case("/keys/{id}/pauses/{epoch}"),
    page_case("/keys/{id}/delete"),
    form_case("/keys/{id}/delete", &[("typed", KEY_PLACEHOLDER)], 303),
    page_case("/keys/{id}/usage.csv"),
    page_case("/usage"),
    page_case("/usage.csv"),
    page_case("/usage.json"),
    page_case("/events"),
    page_case("/account"),
    form_case("/account/email", &[("email", "elsewhere@example.com"), ("password", PASSWORD)], 200),
    form_case("/account/password", &[("current", PASSWORD), ("password", NEW_PASSWORD)], 303),
    page_case("/account/alerts"),
    form_case("/account/alerts", &[("near_daily_limit", "on")], 303),
    form_case(
        "/account/alerts/channels",
        &[("kind", "slack"), ("url", "https://hooks.invalid/"), ("paused", "on")],
        303,
    ),
    page_case("/account/alerts/{id}"),
    form_case("/account/alerts/{id}", &[("url", "https://hooks.invalid/"), ("paused", "on")], 303),
    form_case("/account/alerts/{id}/rotate", &[], 200),
    form_case("/account/alerts/{id}/test", &[], 303),
    form_case("/account/alerts/{id}/on", &[], 303),
    form_case("/account/alerts/{id}/deliveries/{delivery}", &[], 303),
    form_case("/account/alerts/{id}/delete", &[], 303),
    page_case("/account/tokens"),
    form_case("/account/tokens", &[("name", "a robot"), ("keys:read", "on"), ("lifetime_days", "30")], 200),
    form_case("/account/tokens/resume", &[("may_resume", "on")], 303),
    form_case("/account/tokens/{id}/revoke", &[], 303),
    form_case("/account/sessions/end-others", &[], 303),
    form_case("/account/sessions/{id}/end", &[], 303),
    form_case("/account/devices/{id}/forget", &[], 303),
    page_case("/account/sign-in"),
    form_case("/account/sign-in/providers/{index}", &[("password", PASSWORD)], 404),
    form_case("/account/sign-in/identities/{id}/unlink", &[], 303),
    page_case("/account/two-factor"),
    form_case("/account/two-factor/app", &[("password", PASSWORD)], 200),
    form_case("/account/two-factor/app/confirm", &[("code", "000000")], 200),
    form_case("/account/two-factor/passkeys", &[("password", PASSWORD)], 200),
    // Without two-factor authentication there are no codes.
    form_case("/account/two-factor/codes", &[("password", PASSWORD)], 404),
    form_case("/account/two-factor/off", &[("password", PASSWORD)], 303),
    page_case("/account/confirm"),
    form_case("/account/confirm/password", &[("password", PASSWORD)], 303),
    form_case("/account/confirm/begin", &[], 200),
    form_case("/account/confirm", &[("credential", "{}")], 403),
    form_case("/account/passkeys/begin", &[("password", PASSWORD)], 200),
    form_case("/account/passkeys", &[("credential", "{}"), ("name", "a phone")], 403),
    form_case("/account/passkeys/{id}/delete", &[], 303),
    page_case("/account/limits"),
    form_case("/account/limits", &[("daily_limit", "100,000"), ("message", "A larger shop")], 303),
    page_case("/account/delete"),
    form_case("/account/delete", &[("email", EMAIL_PLACEHOLDER), ("password", PASSWORD)], 303),
];

impl RouteCase {
    /// The entry in the route table of the portal.
    pub(crate) fn route(&self) -> Option<&'static PortalRoute> {
        PORTAL_ROUTES.iter().find(|route| route.method == self.method && route.path == self.path)
    }

    pub(crate) fn is_for_members(&self) -> bool {
        self.route().is_some_and(|route| route.access == RouteAccess::Member)
    }

    pub(crate) fn is_form(&self) -> bool {
        self.method == "post"
    }

    /// Whether its path contains the ID of a resource.
    pub(crate) fn has_id(&self) -> bool {
        self.path.contains("{id}")
    }

    /// Whether it is the event stream, whose successful response never ends.
    pub(crate) fn is_stream(&self) -> bool {
        self.path == "/events"
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// An account with one resource of every kind that a path can contain.
pub(crate) struct AccountFixture {
    pub(crate) email: String,
    pub(crate) key: String,
    key_name: String,
    session: String,
    passkey: String,
    identity: String,
    device: String,
    pub(crate) channel: String,
    delivery: String,
    /// Of a link.
    token: String,
}

impl AccountFixture {
    /// Creates the account, and a browser that is signed in to it.
    pub(crate) async fn create(fixture: &PortalFixture) -> (Self, Browser) {
        let TestMember { browser, email, id } = fixture.create_member().await;
        let [key, key_name] = ["", "key-of-"].map(|prefix| format!("{prefix}{}", &fresh_secret()[..10]));
        let (credential, token) = (fresh_secret(), fresh_secret());
        let (passkey, digest) = (STORED_PASSKEY.replace("CREDENTIAL", &credential), digest_sql(&token));
        let sql = format!(
            "with key as (
                 insert into keys (id, account_id, seat, name, scope, digest)
                 values ('{key}', {id}, 1, '{key_name}', 'full', {digest})
             ), pause as (
                 insert into pauses (key_id, burst_window, paused_at, counts)
                 values ('{key}', 1, now(), array_fill(5::smallint, array[60]))
             ), ticket as (
                 insert into tickets (kind, email, digest, expires_at, mailed_at)
                 values ('reset', '{email}', {digest}, now() + interval '1 hour', now())
             ), passkey as (
                 insert into passkeys (account_id, credential_id, name, passkey)
                 values ({id}, decode('{credential}', 'hex'), '{key_name}', '{passkey}') returning id
             ), identity as (
                 insert into identities (account_id, issuer, subject, label)
                 values ({id}, 'https://idp.example', '{credential}', '{key_name}') returning id
             ), session as (
                 insert into sessions (account_id, digest, label) values ({id}, {digest}, '{key_name}') returning id
             ), device as (
                 insert into devices (account_id, digest, label) values ({id}, {digest}, '{key_name}') returning id
             ), personal_token as (
                 -- With the ID of the key.
                 insert into personal_tokens (id, account_id, name, digest, scopes)
                 values ('{key}', {id}, '{key_name}', {digest}, '{{keys:read}}')
             ), channel as (
                 insert into alert_channels (account_id, kind, url, alerts, secret)
                 values ({id}, 'webhook', 'https://127.0.0.1/{key_name}', '{{paused}}', {digest}) returning id
             ), delivery as (
                 insert into notices (account_id, kind, key_id, channel_id, message_id, details, mailed_at, expires_at)
                 select {id}, 'alert_test', '', id, gen_random_uuid(),
                     jsonb_build_object('name', '{key_name}', 'day', '', 'used', 0, 'daily_limit', 0, 'burst_limit', 0), now(), now()
                 from channel returning id
             )
             select session.id, passkey.id, identity.id, device.id, channel.id, delivery.id
             from session, passkey, identity, device, channel, delivery"
        );
        let numbers = fixture.psql(&sql).await;
        let ids: Vec<_> = numbers.split('|').map(str::to_owned).collect();
        let [session, passkey, identity, device, channel, delivery] = ids.try_into().expect("query returns six IDs");
        (Self { email, key, key_name, session, passkey, identity, device, channel, delivery, token }, browser)
    }

    /// The path of a route, with the IDs of this account.
    pub(crate) fn path_for(&self, row: &RouteCase) -> String {
        let id = match row.path {
            path if path.starts_with("/account/sessions/") => &self.session,
            path if path.starts_with("/account/passkeys/") => &self.passkey,
            path if path.starts_with("/account/sign-in/identities/") => &self.identity,
            path if path.starts_with("/account/devices/") => &self.device,
            path if path.starts_with("/account/alerts/") => &self.channel,
            path if path.starts_with("/account/tokens/") => &self.key,
            _ => &self.key,
        };
        let path = row.path.replace("{id}", id).replace("{delivery}", &self.delivery).replace("{token}", &self.token);
        path.replace("{page}", "errors").replace("{epoch}", "1").replace("{index}", "0").replace("{provider}", "oidc")
    }

    /// The fields of a route, with the email and the key of this account.
    pub(crate) fn fields_for<'a>(&'a self, row: &RouteCase) -> Vec<(&'static str, &'a str)> {
        let substitute = |value: &'static str| match value {
            EMAIL_PLACEHOLDER => self.email.as_str(),
            KEY_PLACEHOLDER => self.key.as_str(),
            value => value,
        };
        row.fields.iter().map(|(name, value)| (*name, substitute(value))).collect()
    }

    /// Requests a route on resources of this account, as a page would.
    pub(crate) async fn visit(&self, browser: &mut Browser, row: &RouteCase) -> TestResponse {
        let path = self.path_for(row);
        if row.is_form() { browser.post(&path, &self.fields_for(row)).await } else { browser.get(&path).await }
    }

    /// Asserts that a response contains nothing about this account.
    #[track_caller]
    pub(crate) fn assert_not_disclosed(&self, reply: &TestResponse, what: &str) {
        let text = reply.text();
        for secret in [&self.email, &self.key_name, &self.key] {
            assert!(!text.contains(secret.as_str()), "{what} discloses {secret}");
        }
    }
}

/// A stored passkey without a private key.
const STORED_PASSKEY: &str = r#"{"cred": {
    "cred_id": "CREDENTIAL",
    "cred": {"type_": "ES256", "key": {"EC_EC2": {"curve": "SECP256R1", "x": "AAAA", "y": "AAAA"}}},
    "counter": 0, "transports": null, "user_verified": true, "backup_eligible": false, "backup_state": false,
    "registration_policy": "required", "extensions": {}, "attestation": {"data": "None", "metadata": "None"},
    "attestation_format": "none"
}}"#;
