//! Signing up, and asking for a link to a new password. With mail, neither tells whether an address has an account.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use domain::Client;
use domain::account::Email;
use http::HeaderMap;
use store::{Refused, StoreError};

use crate::Portal;
use crate::page::Visitor;
use crate::password::Password;
use crate::posted::Posted;
use crate::problem::Problem;
use crate::view::{ForgotPage, SentPage, SignUpPage, Tab};

/// Said of a text that cannot be an e-mail address.
pub(crate) const NO_ADDRESS: &str = "This is not an e-mail address; it needs an @ between two parts.";
/// Said of an address that has an account, where no mail can say it to its owner alone.
pub(crate) const TAKEN: &str = "An account with this address exists already. Sign in, or use another address.";

pub(crate) async fn form(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    page(&portal, &visitor, String::new(), None)
}

fn page(portal: &Portal, visitor: &Visitor, email: String, problem: Option<&str>) -> Response {
    visitor.show(
        portal,
        &SignUpPage {
            frame: visitor.frame(portal, "Get a key", Tab::None),
            email,
            problem: problem.map(str::to_owned),
            open: portal.settings.signup_open,
            confirmed_by_mail: portal.settings.has_mail,
        },
    )
}

pub(crate) async fn sign_up(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    visitor: Visitor,
    posted: Posted,
) -> Result<Response, Problem> {
    if !portal.settings.signup_open {
        return Err(Problem::Closed);
    }
    let typed = posted.text("email").to_owned();
    let Some(email) = Email::parse(&typed) else {
        return Ok(page(&portal, &visitor, typed, Some(NO_ADDRESS)));
    };
    let password = match Password::choose(posted.text("password")) {
        Ok(password) => password,
        Err(problem) => return Ok(page(&portal, &visitor, typed, Some(problem))),
    };
    portal.by_network.spend(client.address.neighbourhood())?;
    let hash = portal.passwords.hash(password).await?;
    if portal.settings.has_mail {
        portal.store.request_signup(&email, &hash, &visitor.visit.digest()).await?;
        return Ok(sent(&portal, &visitor, typed, "Follow the link in it to finish signing up.", "/signup"));
    }
    match portal.store.create_member(&email, &hash).await {
        Ok(account) => portal.enter(account.id, &headers).await,
        Err(StoreError::Refused(Refused::AccountExists)) => Ok(page(&portal, &visitor, typed, Some(TAKEN))),
        Err(error) => Err(error.into()),
    }
}

/// The page that says where to look next.
fn sent(portal: &Portal, visitor: &Visitor, email: String, sentence: &'static str, again: &'static str) -> Response {
    let frame = visitor.frame(portal, "Look into your mail", Tab::None);
    visitor.show(portal, &SentPage { frame, email, sentence, again })
}

pub(crate) async fn forgot_form(State(portal): State<Arc<Portal>>, visitor: Visitor) -> Response {
    forgot_page(&portal, &visitor, String::new(), None)
}

fn forgot_page(portal: &Portal, visitor: &Visitor, email: String, problem: Option<&str>) -> Response {
    let frame = visitor.frame(portal, "Forgotten password", Tab::None);
    let problem = problem.map(str::to_owned);
    visitor.show(portal, &ForgotPage { frame, email, problem, has_mail: portal.settings.has_mail })
}

pub(crate) async fn forgot(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    visitor: Visitor,
    posted: Posted,
) -> Result<Response, Problem> {
    let typed = posted.text("email").to_owned();
    if !portal.settings.has_mail {
        return Ok(forgot_page(&portal, &visitor, typed, None));
    }
    let Some(email) = Email::parse(&typed) else {
        return Ok(forgot_page(&portal, &visitor, typed, Some(NO_ADDRESS)));
    };
    portal.by_network.spend(client.address.neighbourhood())?;
    portal.store.request_reset(&email).await?;
    let sentence = "If the address has an account, the link in it leads to a new password.";
    Ok(sent(&portal, &visitor, typed, sentence, "/forgot"))
}
