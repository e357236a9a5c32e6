//! Links from mails and invitations. Opening one changes nothing, its button does; each works once.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use domain::Client;
use http::HeaderMap;
use store::{Refused, StoreError, Ticket, TicketKind};

use crate::Portal;
use crate::page::{Visitor, done};
use crate::password::Password;
use crate::posted::Posted;
use crate::problem::Problem;
use crate::signup::TAKEN;
use crate::view::{LinkPage, LinkWish, Tab};
use crate::visit::Secret;

const WRONG: &str =
    "This is not the password that was chosen at sign-up. If you did not sign up, close this page: nothing happens.";

pub(crate) async fn form(
    State(portal): State<Arc<Portal>>,
    Path(token): Path<String>,
    visitor: Visitor,
) -> Result<Response, Problem> {
    let (_, ticket) = portal.ticket(&token).await?;
    Ok(page(&portal, &visitor, &ticket, token, None))
}

fn page(portal: &Portal, visitor: &Visitor, ticket: &Ticket, token: String, problem: Option<String>) -> Response {
    let wish = wish(ticket, visitor);
    let title = match wish {
        LinkWish::Confirm { .. } => "Confirm your address",
        LinkWish::NewPassword => "Choose a new password",
        LinkWish::Invited => "Welcome",
        LinkWish::NewEmail => "Confirm your new address",
    };
    let frame = visitor.frame(portal, title, Tab::None);
    visitor.show(portal, &LinkPage { frame, wish, email: ticket.email.clone(), token, problem })
}

/// Whoever signed up with another's address chose the password. So it is asked for, unless the browser is the one that signed up: an owner who
/// confirms by mistake does not open the door to a stranger.
fn wish(ticket: &Ticket, visitor: &Visitor) -> LinkWish {
    match ticket.kind {
        TicketKind::SignUp => LinkWish::Confirm { with_password: ticket.visit != Some(visitor.visit.digest()) },
        TicketKind::Reset => LinkWish::NewPassword,
        TicketKind::Invite => LinkWish::Invited,
        TicketKind::NewEmail => LinkWish::NewEmail,
    }
}

pub(crate) async fn follow(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    Path(token): Path<String>,
    headers: HeaderMap,
    visitor: Visitor,
    posted: Posted,
) -> Result<Response, Problem> {
    let (digest, ticket) = portal.ticket(&token).await?;
    let again = |problem: &str| Ok(page(&portal, &visitor, &ticket, token.clone(), Some(problem.to_owned())));
    let typed = posted.text("password");
    match wish(&ticket, &visitor) {
        LinkWish::Confirm { with_password } => {
            if with_password {
                portal.by_network.spend(client.address.neighbourhood())?;
                let Some(password) = Password::present(typed) else { return again(WRONG) };
                if !portal.passwords.verify(password, ticket.password_hash.clone()).await? {
                    return again(WRONG);
                }
            }
            match portal.store.confirm_signup(&digest).await {
                Ok(account) => portal.enter(account.id, &headers).await,
                Err(StoreError::Refused(Refused::AccountExists)) => Err(Problem::LinkGone),
                Err(error) => Err(error.into()),
            }
        }
        LinkWish::NewPassword | LinkWish::Invited => {
            let password = match Password::choose(typed) {
                Ok(password) => password,
                Err(problem) => return again(problem),
            };
            portal.by_network.spend(client.address.neighbourhood())?;
            let hash = portal.passwords.hash(password).await?;
            let account_id = portal.store.take_new_password(&digest, &hash).await?;
            portal.enter(account_id, &headers).await
        }
        LinkWish::NewEmail => match portal.store.take_new_email(&digest).await {
            Ok(_) => Ok(done("/account", "email")),
            Err(StoreError::Refused(Refused::AccountExists)) => again(TAKEN),
            Err(error) => Err(error.into()),
        },
    }
}

/// A new link's token, for the one who is invited, and what is stored of it.
#[must_use]
pub fn invitation() -> (String, [u8; 32]) {
    let secret = Secret::mint();
    (secret.expose().to_owned(), secret.digest())
}

impl Portal {
    async fn ticket(&self, token: &str) -> Result<([u8; 32], Ticket), Problem> {
        let digest = Secret::parse(token).ok_or(Problem::LinkGone)?.digest();
        let ticket = self.store.find_ticket(&digest).await?.ok_or(Problem::LinkGone)?;
        Ok((digest, ticket))
    }
}
