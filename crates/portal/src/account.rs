//! The account: address, password, mails, sessions, and its end.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use domain::account::Email;
use domain::{Change, Client};
use store::{AlertSwitches, Refused, StoreError};

use crate::page::{Member, done, show as show_page};
use crate::password::Password;
use crate::posted::Posted;
use crate::problem::Problem;
use crate::signin::farewell;
use crate::signup::{NO_ADDRESS, TAKEN};
use crate::view::{AccountPage, Alerts, DeleteAccountPage, PasskeyRow, SentPage, SessionRow, Tab};
use crate::{Portal, time};

const WRONG: &str = "This is not your present password.";

/// What is wrong with which form of the page, and the new address as it was typed.
#[derive(Default)]
struct Problems {
    typed_email: String,
    email: Option<String>,
    password: Option<String>,
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, member: Member) -> Result<Response, Problem> {
    page(&portal, &member, Problems::default()).await
}

async fn page(portal: &Portal, member: &Member, problems: Problems) -> Result<Response, Problem> {
    let account = &member.account;
    let AlertSwitches { near, spent, paused } = portal.store.alerts(account.id).await?;
    let session = |row: store::SessionRow| SessionRow {
        id: row.id,
        label: row.label,
        since: time::minute(row.created_s),
        seen: time::minute(row.seen_s),
        current: row.id == member.session,
    };
    let passkey =
        |row: store::PasskeyRow| PasskeyRow { id: row.id, name: row.name, created: time::date(row.created_s) };
    let sessions = portal.store.sessions(account.id, portal.settings.session_idle_max).await?;
    let passkeys = portal.store.passkeys(account.id).await?;
    Ok(show_page(&AccountPage {
        frame: member.frame(portal, "Your account", Tab::Account),
        email: account.email.clone(),
        plan: account.plan.clone(),
        daily_limit: account.daily_limit,
        alerts: Alerts { near, spent, paused },
        has_mail: portal.settings.has_mail,
        sessions: sessions.into_iter().map(session).collect(),
        passkeys: passkeys.into_iter().map(passkey).collect(),
        passkeys_possible: portal.passkeys.is_some(),
        new_email: problems.typed_email,
        email_problem: problems.email,
        password_problem: problems.password,
    }))
}

impl Portal {
    /// Whether a member knows their own password. Tries count as a sign-in's do: an open page is no way around the bound.
    async fn is_own_password(&self, member: &Member, client: &Client, typed: &str) -> Result<bool, Problem> {
        self.by_network.spend(client.address.neighbourhood())?;
        let Some(password) = Password::present(typed) else { return Ok(false) };
        let hash = self.store.password_hash(member.account.id).await?;
        Ok(self.passwords.verify(password, hash).await?)
    }
}

pub(crate) async fn change_email(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    let typed = posted.text("email");
    let again = |problem: &str| Problems {
        typed_email: typed.to_owned(),
        email: Some(problem.to_owned()),
        ..Problems::default()
    };
    let Some(email) = Email::parse(typed) else {
        return page(&portal, &member, again(NO_ADDRESS)).await;
    };
    if !portal.is_own_password(&member, &client, posted.text("password")).await? {
        return page(&portal, &member, again(WRONG)).await;
    }
    if portal.settings.has_mail {
        portal.store.request_email(member.account.id, &email).await?;
        let frame = member.frame(&portal, "Look into your mail", Tab::Account);
        let sentence = "Follow the link in it, and this address replaces your present one.";
        return Ok(show_page(&SentPage { frame, email: email.to_string(), sentence, again: "/account" }));
    }
    match portal.store.change_email(member.account.id, &email).await {
        Ok(()) => Ok(done("/account", "email")),
        Err(StoreError::Refused(Refused::AccountExists)) => page(&portal, &member, again(TAKEN)).await,
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn change_password(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    let again = |problem: &str| Problems { password: Some(problem.to_owned()), ..Problems::default() };
    let password = match Password::choose(posted.text("password")) {
        Ok(password) => password,
        Err(problem) => return page(&portal, &member, again(problem)).await,
    };
    if !portal.is_own_password(&member, &client, posted.text("current")).await? {
        return page(&portal, &member, again(WRONG)).await;
    }
    let hash = portal.passwords.hash(password).await?;
    portal.store.set_password(member.account.id, &hash, Some(member.session)).await?;
    Ok(done("/account", "password"))
}

pub(crate) async fn choose_alerts(
    State(portal): State<Arc<Portal>>,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    let [near, spent, paused] = ["near", "spent", "paused"].map(|kind| posted.is_ticked(kind));
    portal.store.set_alerts(member.account.id, AlertSwitches { near, spent, paused }).await?;
    Ok(done("/account", "alerts"))
}

pub(crate) async fn end_session(
    State(portal): State<Arc<Portal>>,
    Path(id): Path<String>,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let id = id.parse().map_err(|_| Problem::NotFound)?;
    if !portal.store.end_session(member.account.id, id).await? {
        return Err(Problem::NotFound);
    }
    Ok(if id == member.session { farewell(&portal, "signed-out") } else { done("/account", "session") })
}

pub(crate) async fn end_other_sessions(
    State(portal): State<Arc<Portal>>,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    portal.store.end_other_sessions(member.account.id, member.session).await?;
    Ok(done("/account", "sessions"))
}

pub(crate) async fn delete_form(State(portal): State<Arc<Portal>>, member: Member) -> Result<Response, Problem> {
    delete_page(&portal, &member, None).await
}

async fn delete_page(portal: &Portal, member: &Member, problem: Option<&str>) -> Result<Response, Problem> {
    let keys = portal.store.keys(member.account.id).await?.len();
    let frame = member.frame(portal, "Delete your account", Tab::Account);
    Ok(show_page(&DeleteAccountPage { frame, keys, problem: problem.map(str::to_owned) }))
}

pub(crate) async fn delete(
    State(portal): State<Arc<Portal>>,
    Extension(client): Extension<Client>,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    if !portal.is_own_password(&member, &client, posted.text("password")).await? {
        return delete_page(&portal, &member, Some(WRONG)).await;
    }
    for id in portal.store.delete_account(member.account.id).await? {
        portal.publish(&Change::Gone(id)).await;
    }
    Ok(farewell(&portal, "account-deleted"))
}
