//! The audit log, with filters and export.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use ipseity_domain::KeyId;
use ipseity_store::{AuditEvent, AuditFilter};
use serde::Deserialize;

use crate::console::error::ConsoleError;
use crate::console::operator::CurrentOperator;
use crate::console::state::Console;
use crate::console::view::frame::ConsoleTab;
use crate::console::view::overview::{AuditEventItem, AuditPage};
use crate::keys::csv::{csv_attachment, quote_cell};
use crate::page::render_page;
use crate::time;

const EVENTS_PER_PAGE: i64 = 100;
/// Maximum number of events of an export.
const EXPORT_EVENTS_MAX: i64 = 10_000;
const CSV_HEADER: &str = "id,time,action,actor,operator,account,key,subject,token\r\n";

/// What a person enters. Empty fields do not filter.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuditQuery {
    account: String,
    key: String,
    operator: String,
    action: String,
    before: String,
}

impl AuditQuery {
    fn filter(&self) -> Result<AuditFilter<'_>, ConsoleError> {
        let text = |text| Some(str::trim(text)).filter(|text| !text.is_empty());
        let invalid = |what: &str| ConsoleError::Rejected(format!("Enter {what}, or leave the field empty."));
        let account_id = text(&self.account).map(|number| number.parse().map_err(|_| invalid("an account number")));
        let key = text(&self.key).map(|id| KeyId::parse(id).ok_or_else(|| invalid("a key ID")));
        // PostgreSQL stores no NUL.
        if [&self.operator, &self.action].iter().any(|field| field.contains('\0')) {
            return Err(invalid("a name"));
        }
        Ok(AuditFilter {
            account_id: account_id.transpose()?,
            key: key.transpose()?,
            operator: text(&self.operator),
            action: text(&self.action),
            before_id: self.before.parse().ok(),
            ..AuditFilter::default()
        })
    }

    /// The filters as a query, without the page.
    fn to_query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in
            [("account", &self.account), ("key", &self.key), ("operator", &self.operator), ("action", &self.action)]
        {
            if !value.trim().is_empty() {
                query.append_pair(name, value.trim());
            }
        }
        query.finish()
    }
}

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    operator: CurrentOperator,
    Query(query): Query<AuditQuery>,
) -> Result<Response, ConsoleError> {
    let events = console.store.audit_log().list(&query.filter()?, EVENTS_PER_PAGE).await?;
    let is_full = events.len() == usize::try_from(EVENTS_PER_PAGE).unwrap_or(usize::MAX);
    Ok(render_page(&AuditPage {
        frame: operator.frame("Audit log", ConsoleTab::Audit),
        query: query.to_query(),
        next_before: events.last().filter(|_| is_full).map(|event| event.id),
        events: events.into_iter().map(event_item).collect(),
        account: query.account,
        key: query.key,
        operator: query.operator,
        action: query.action,
    }))
}

pub(super) async fn export_csv(
    State(console): State<Arc<Console>>,
    _: CurrentOperator,
    Query(query): Query<AuditQuery>,
) -> Result<Response, ConsoleError> {
    let events = console.store.audit_log().list(&query.filter()?, EXPORT_EVENTS_MAX).await?;
    let mut text = CSV_HEADER.to_owned();
    for event in events {
        let _ = write!(
            text,
            "{},{},{},{},{},{},{},{},{}\r\n",
            event.id,
            time::format_rfc3339(event.at_s),
            event.action,
            event.actor,
            quote_cell(event.operator.as_deref().unwrap_or_default()),
            event.account_id.map(|id| id.to_string()).unwrap_or_default(),
            event.key_id.unwrap_or_default(),
            quote_cell(event.subject.as_deref().unwrap_or_default()),
            quote_cell(event.token.as_deref().unwrap_or_default()),
        );
    }
    Ok(csv_attachment("ipseity-audit.csv", text))
}

pub(super) fn event_item(event: AuditEvent) -> AuditEventItem {
    AuditEventItem {
        at: time::format_second(event.at_s),
        action: event.action.replace('_', " "),
        actor: match (event.operator, event.token) {
            (Some(name), _) if event.actor == "operator" => name,
            (_, Some(token)) => format!("{} (token {token})", event.actor),
            _ => event.actor,
        },
        account: event.account_id.map(|id| (id, event.email.unwrap_or_else(|| format!("account {id}, deleted")))),
        key: event.key_id,
        subject: event.subject,
    }
}
