//! Every route of the portal, with what its form sends and what whoever may use it is answered. Whoever adds a route adds a row.

use ::portal::{ROUTES, Route, Who};
use testkit::Reply;

use super::browser::Browser;
use super::stage::{Member, NEW_PASSWORD, PASSWORD, Stage, digest_sql, fresh_secret};

/// Stands for the e-mail address of the one whose things are tried.
const EMAIL: &str = "EMAIL";

/// One route.
pub(crate) struct Row {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// What is sent beside the token.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    /// The status for whoever may use it, with all in order.
    pub(crate) status: u16,
}

const fn page(path: &'static str) -> Row {
    Row { method: "get", path, fields: &[], status: 200 }
}

const fn form(path: &'static str, fields: &'static [(&'static str, &'static str)], status: u16) -> Row {
    Row { method: "post", path, fields, status }
}

pub(crate) const ROWS: &[Row] = &[
    page("/"),
    page("/docs"),
    page("/docs/search"),
    page("/docs/{page}"),
    page("/reference"),
    page("/enterprise"),
    page("/signup"),
    form("/signup", &[("email", EMAIL), ("password", PASSWORD)], 200),
    page("/signin"),
    form("/signin", &[("email", EMAIL), ("password", PASSWORD)], 303),
    form("/signin/passkey", &[], 200),
    // Nobody's passkey: refused, on a page of its own.
    form("/signin/passkey/finish", &[("credential", "{}")], 403),
    page("/forgot"),
    form("/forgot", &[("email", EMAIL)], 200),
    page("/link/{token}"),
    form("/link/{token}", &[("password", NEW_PASSWORD)], 303),
    form("/signout", &[], 303),
    page("/keys"),
    form("/keys", &[("name", "one more"), ("scope", "ip")], 200),
    page("/keys/new"),
    page("/keys/{id}"),
    form("/keys/{id}/rename", &[("name", "another name")], 303),
    form("/keys/{id}/deactivate", &[], 303),
    form("/keys/{id}/reactivate", &[], 303),
    form("/keys/{id}/resume", &[], 303),
    form("/keys/{id}/roll", &[("overlap_s", "3600")], 200),
    form("/keys/{id}/retire", &[], 303),
    page("/keys/{id}/delete"),
    form("/keys/{id}/delete", &[], 303),
    page("/keys/{id}/usage.csv"),
    page("/usage"),
    page("/usage.csv"),
    page("/events"),
    page("/account"),
    form("/account/email", &[("email", "elsewhere@example.com"), ("password", PASSWORD)], 200),
    form("/account/password", &[("current", PASSWORD), ("password", NEW_PASSWORD)], 303),
    form("/account/alerts", &[("near", "on")], 303),
    form("/account/sessions/end-others", &[], 303),
    form("/account/sessions/{id}/end", &[], 303),
    form("/account/passkeys/begin", &[], 200),
    form("/account/passkeys", &[("credential", "{}"), ("name", "a phone")], 403),
    form("/account/passkeys/{id}/delete", &[], 303),
    page("/account/delete"),
    form("/account/delete", &[("password", PASSWORD)], 303),
];

impl Row {
    /// The entry of the portal's own table.
    pub(crate) fn route(&self) -> Option<&'static Route> {
        ROUTES.iter().find(|route| route.method == self.method && route.path == self.path)
    }

    pub(crate) fn is_for_members(&self) -> bool {
        self.route().is_some_and(|route| route.who == Who::Member)
    }

    pub(crate) fn is_form(&self) -> bool {
        self.method == "post"
    }

    /// Whether its path names something of somebody's.
    pub(crate) fn names_a_thing(&self) -> bool {
        self.path.contains("{id}")
    }

    /// An open page's stream never ends: only its refusals can be read whole.
    pub(crate) fn is_endless(&self) -> bool {
        self.path == "/events"
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// Somebody with a thing of every kind that a path can name.
pub(crate) struct Owner {
    pub(crate) email: String,
    pub(crate) key: String,
    key_name: String,
    session: String,
    passkey: String,
    token: String,
}

impl Owner {
    /// Makes an owner, and the browser that is signed in as them.
    pub(crate) async fn plant(stage: &Stage) -> (Self, Browser) {
        let Member { browser, email, id } = stage.plant_member().await;
        let [key, key_name] = ["", "key-of-"].map(|prefix| format!("{prefix}{}", &fresh_secret()[..10]));
        let (credential, token) = (fresh_secret(), fresh_secret());
        let (passkey, digest) = (PASSKEY.replace("CREDENTIAL", &credential), digest_sql(&token));
        let sql = format!(
            "with key as (
                 insert into keys (id, account_id, seat, name, scope, digest)
                 values ('{key}', {id}, 1, '{key_name}', 'full', {digest})
             ), ticket as (
                 insert into tickets (kind, email, digest, expires_at, mailed_at)
                 values ('reset', '{email}', {digest}, now() + interval '1 hour', now())
             ), passkey as (
                 insert into passkeys (account_id, credential_id, name, passkey)
                 values ({id}, decode('{credential}', 'hex'), '{key_name}', '{passkey}') returning id
             ), session as (
                 insert into sessions (account_id, digest, label) values ({id}, {digest}, '{key_name}') returning id
             )
             select session.id, passkey.id from session, passkey"
        );
        let numbers = stage.psql(&sql).await;
        let (session, passkey) = numbers.split_once('|').expect("two numbers");
        (Self { email, key, key_name, session: session.to_owned(), passkey: passkey.to_owned(), token }, browser)
    }

    /// A row's path to this owner's things.
    pub(crate) fn path(&self, row: &Row) -> String {
        let id = match row.path {
            path if path.starts_with("/account/sessions/") => &self.session,
            path if path.starts_with("/account/passkeys/") => &self.passkey,
            _ => &self.key,
        };
        row.path.replace("{id}", id).replace("{token}", &self.token).replace("{page}", "errors")
    }

    /// A row's fields, about this owner.
    pub(crate) fn fields<'a>(&'a self, row: &Row) -> Vec<(&'static str, &'a str)> {
        let about = |value: &'static str| if value == EMAIL { self.email.as_str() } else { value };
        row.fields.iter().map(|(name, value)| (*name, about(value))).collect()
    }

    /// Uses a route on this owner's things, as a page would.
    pub(crate) async fn visited_by(&self, browser: &mut Browser, row: &Row) -> Reply {
        let path = self.path(row);
        if row.is_form() { browser.post(&path, &self.fields(row)).await } else { browser.get(&path).await }
    }

    /// Holds an answer to saying nothing of this owner.
    #[track_caller]
    pub(crate) fn is_unknown_to(&self, reply: &Reply, what: &str) {
        let text = reply.text();
        for own in [&self.email, &self.key_name, &self.key] {
            assert!(!text.contains(own.as_str()), "{what} tells {own}");
        }
    }
}

/// A passkey as it is stored; nobody holds its other half.
const PASSKEY: &str = r#"{"cred": {
    "cred_id": "CREDENTIAL",
    "cred": {"type_": "ES256", "key": {"EC_EC2": {"curve": "SECP256R1", "x": "AAAA", "y": "AAAA"}}},
    "counter": 0, "transports": null, "user_verified": true, "backup_eligible": false, "backup_state": false,
    "registration_policy": "required", "extensions": {}, "attestation": {"data": "None", "metadata": "None"},
    "attestation_format": "none"
}}"#;
