//! Signing in with a password, and out. An address that has no account gets the same answer in the same time as a wrong password.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use domain::Client;
use domain::account::Email;
use http::HeaderMap;
use http::header::SET_COOKIE;

use crate::Portal;
use crate::enter::digest_of;
use crate::page::{Member, Visitor, done};
use crate::password::Password;
use crate::posted::Posted;
use crate::problem::Problem;
use crate::view::{SignInPage, Tab};
use crate::visit::{self, Visit};

const WRONG: &str =
    "The e-mail address and the password do not belong together. Check both, or ask for a link to a new password.";

pub(crate) async fn form(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    page(&portal, &visitor, String::new(), None)
}

fn page(portal: &Portal, visitor: &Visitor, email: String, problem: Option<String>) -> Response {
    let frame = visitor.frame(portal, "Sign in", Tab::None);
    visitor.show(portal, &SignInPage { frame, email, problem, passkeys: portal.passkeys.is_some() })
}

pub(crate) async fn sign_in(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    visitor: Visitor,
    posted: Posted,
) -> Result<Response, Problem> {
    let typed = posted.text("email");
    let (Some(email), Some(password)) = (Email::parse(typed), Password::present(posted.text("password"))) else {
        portal.by_network.spend(client.address.neighbourhood())?;
        return Ok(page(&portal, &visitor, typed.to_owned(), Some(WRONG.to_owned())));
    };
    let tries = portal.admit_try(&client, &headers, &email).await?;
    let found = portal.store.find_credentials(&email).await?;
    let (account_id, hash) = found.map_or((None, None), |found| (Some(found.account_id), found.password_hash));
    let is_right = portal.passwords.verify(password, hash).await?;
    match account_id.filter(|_| is_right) {
        Some(account_id) => {
            portal.forgive(&tries, &email);
            portal.enter(account_id, &headers).await
        }
        None => {
            if let Tries::OfAStranger = tries {
                // Beyond the bound the next try is refused; this one was answered.
                let _ = portal.by_account.spend(digest_of(&email));
            }
            Ok(page(&portal, &visitor, typed.to_owned(), Some(WRONG.to_owned())))
        }
    }
}

/// On whose account a try is booked.
enum Tries {
    OfAKnownDevice([u8; 32]),
    OfAStranger,
}

impl Portal {
    /// Whether a password may be tried now. A browser that signed in to this account before has tries of its own, so that no stranger can use up
    /// its owner's.
    async fn admit_try(&self, client: &Client, headers: &HeaderMap, email: &Email) -> Result<Tries, Problem> {
        if let Some(device) = visit::device(headers)
            && self.store.is_known_device(email, &device.digest()).await?
        {
            self.by_device.spend(device.digest())?;
            return Ok(Tries::OfAKnownDevice(device.digest()));
        }
        self.by_network.spend(client.address.neighbourhood())?;
        self.by_account.check(&digest_of(email))?;
        Ok(Tries::OfAStranger)
    }

    /// A right password: the wrong ones before it were its owner's.
    fn forgive(&self, tries: &Tries, email: &Email) {
        match tries {
            Tries::OfAKnownDevice(device) => self.by_device.forgive(device),
            Tries::OfAStranger => self.by_account.forgive(&digest_of(email)),
        }
    }
}

pub(crate) async fn sign_out(
    State(portal): State<Arc<Portal>>,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    portal.store.end_session_of(&member.visit().digest()).await?;
    Ok(farewell(&portal, "signed-out"))
}

/// To the door, under a new visit.
pub(crate) fn farewell(portal: &Portal, what: &'static str) -> Response {
    let mut response = done("/signin", what);
    response.headers_mut().append(SET_COOKIE, Visit::open().cookie(portal.idle_max_s()));
    response
}
