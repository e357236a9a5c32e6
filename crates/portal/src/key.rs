//! One key: its page, and everything that its owner can do to it.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use domain::account::KeyName;
use domain::{Change, ClearKey, KeyId, State as KeyState};
use store::{HistoryRow, KeyRow};

use crate::keys::{BAD_NAME, card, random_byte};
use crate::page::{Member, done, show as show_page};
use crate::posted::Posted;
use crate::problem::Problem;
use crate::view::{DeleteKeyPage, EventRow, KeyPage, MintedPage, Tab};
use crate::{Portal, time};

/// Rows of a key's history on its page.
const HISTORY_MAX: i64 = 50;
/// How long an old secret may go on after a roll: not at all, an hour, a day, a week.
const OVERLAPS_S: [u32; 4] = [0, 3600, 86_400, 604_800];

type Id = Path<String>;

impl Portal {
    /// One of the member's own keys.
    async fn own_key(&self, member: &Member, id: &str) -> Result<KeyRow, Problem> {
        let id = read(id)?;
        self.store.find_key(member.account.id, id).await?.ok_or(Problem::NotFound)
    }
}

fn read(id: &str) -> Result<KeyId, Problem> {
    KeyId::parse(id).ok_or(Problem::NotFound)
}

pub(crate) async fn show(State(portal): State<Arc<Portal>>, Path(id): Id, member: Member) -> Result<Response, Problem> {
    page(&portal, &member, &id, None).await
}

async fn page(portal: &Portal, member: &Member, id: &str, problem: Option<&str>) -> Result<Response, Problem> {
    let row = portal.own_key(member, id).await?;
    let used = portal.used_today(std::slice::from_ref(&row)).await;
    let used = used.first().copied().unwrap_or(0);
    let history = portal.store.history(member.account.id, row.id, HISTORY_MAX).await?;
    let usage = portal.usage_of(member, row.id, used).await?;
    Ok(show_page(&KeyPage {
        frame: member.frame(portal, &row.name, Tab::Keys),
        card: card(&row, used, member.account.daily_limit),
        usage,
        history: history.iter().map(event).collect(),
        problem: problem.map(str::to_owned),
    }))
}

fn event(row: &HistoryRow) -> EventRow {
    let what = match row.act.as_str() {
        "issued" => "Made",
        "renamed" => "Renamed",
        "deactivated" => "Deactivated",
        "reactivated" => "Reactivated",
        "paused" => "Paused: more than 300 requests within 60 seconds",
        "resumed" => "Resumed",
        "rolled" => "Rolled: a new secret",
        "retired" => "The old secret ended",
        other => other,
    };
    let by = match row.actor.as_str() {
        "owner" => "you",
        "operator" => "the operator",
        _ => "the service",
    };
    EventRow { at: time::minute(row.at_s), what: what.to_owned(), by }
}

pub(crate) async fn rename(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    let Some(name) = KeyName::parse(posted.text("name")) else {
        return page(&portal, &member, &id, Some(BAD_NAME)).await;
    };
    portal.store.rename(member.by(), read(&id)?, &name).await?;
    Ok(done(&format!("/keys/{id}"), "renamed"))
}

impl Portal {
    /// Puts a change in force and goes back to the key.
    async fn changed(&self, id: &str, change: &Change, what: &'static str) -> Response {
        let what = if self.publish(change).await { what } else { "saved" };
        done(&format!("/keys/{id}"), what)
    }
}

pub(crate) async fn deactivate(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let change = portal.store.deactivate(member.by(), read(&id)?).await?;
    Ok(portal.changed(&id, &change, "deactivated").await)
}

pub(crate) async fn reactivate(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let change = portal.store.reactivate(member.by(), read(&id)?).await?;
    let is_paused = matches!(&change, Change::Stands(standing) if standing.marks.state() == KeyState::Paused);
    Ok(portal.changed(&id, &change, if is_paused { "still-paused" } else { "reactivated" }).await)
}

pub(crate) async fn resume(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let row = portal.own_key(&member, &id).await?;
    portal.settle(row.id).await?;
    let change = portal.store.resume(member.by(), row.id).await?;
    Ok(portal.changed(&id, &change, "resumed").await)
}

impl Portal {
    /// Writes down a pause that only the counter store knows of yet, so that there is something to resume.
    async fn settle(&self, id: KeyId) -> Result<(), Problem> {
        for pause in self.ledger.pending(id).await.unwrap_or_default() {
            self.store.record_pause(&pause).await?;
            self.ledger.confirm(&pause).await?;
        }
        Ok(())
    }
}

pub(crate) async fn retire(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let change = portal.store.retire(member.by(), read(&id)?).await?;
    Ok(portal.changed(&id, &change, "retired").await)
}

pub(crate) async fn roll(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    let overlap_s = posted.text("overlap_s").parse().ok().filter(|overlap_s| OVERLAPS_S.contains(overlap_s));
    let Some(overlap_s) = overlap_s else {
        return page(&portal, &member, &id, Some("Choose how long the old secret stays valid.")).await;
    };
    let clear = ClearKey::roll(read(&id)?, random_byte);
    let change = portal.store.roll(member.by(), &clear.key(), overlap_s).await?;
    portal.publish(&change).await;
    let row = portal.own_key(&member, &id).await?;
    Ok(show_page(&MintedPage {
        frame: member.frame(&portal, "Your new secret", Tab::Keys),
        id,
        name: row.name,
        curl: portal.curl(&clear),
        clear: clear.expose().to_owned(),
        rolled: Some(row.retired_until_s.map(time::minute)),
    }))
}

pub(crate) async fn delete_form(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
) -> Result<Response, Problem> {
    let row = portal.own_key(&member, &id).await?;
    let frame = member.frame(&portal, "Delete a key", Tab::Keys);
    Ok(show_page(&DeleteKeyPage { frame, id: row.id.to_string(), name: row.name }))
}

pub(crate) async fn delete(
    State(portal): State<Arc<Portal>>,
    Path(id): Id,
    member: Member,
    _: Posted,
) -> Result<Response, Problem> {
    let change = portal.store.delete(member.by(), read(&id)?).await?;
    let what = if portal.publish(&change).await { "deleted" } else { "saved" };
    Ok(done("/keys", what))
}
