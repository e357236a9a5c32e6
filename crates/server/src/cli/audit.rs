//! `ipseity audit`

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use ipseity_domain::{KeyId, causes};
use ipseity_store::{AuditEvent, AuditFilter, AuditHorizon, StoreError};
use jiff::Timestamp;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::cli::admin_context::AdminContext;
use crate::cli::output;
use crate::cli::parse::parse_key_id;

const COLUMNS: [&str; 6] = ["TIME (UTC)", "ACTION", "ACTOR", "KEY", "ACCOUNT", "SUBJECT"];
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Events per query.
const FOLLOW_PAGE: i64 = 1_000;
/// How long to wait for changes that are not complete. Their events may have smaller numbers than the newest one.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
const SETTLE_REPORT_DELAY: Duration = Duration::from_secs(2);
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Args)]
pub(super) struct AuditCommand {
    /// Only the account with this email address, or with this number if it was deleted.
    #[arg(long, value_name = "EMAIL")]
    account: Option<String>,
    /// Only the key with this ID.
    #[arg(long, value_name = "ID", value_parser = parse_key_id)]
    key: Option<KeyId>,
    /// Only events since this time, such as 2026-11-18T09:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<Timestamp>,
    /// Only events with a larger number, oldest first, to continue after an earlier run.
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
    /// Print the oldest event first, and wait for new ones until you press Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Maximum number of events. With --follow, of those before it started, unless --after is given.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

impl AuditCommand {
    pub(super) async fn run(&self, admin: &AdminContext, json: bool) -> Result<()> {
        let account_id = match &self.account {
            Some(account) => Some(find_account_id(admin, account).await?),
            None => None,
        };
        let since_s = self.since.map(Timestamp::as_second);
        let mut filter =
            AuditFilter { account_id, key: self.key, since_s, after_id: self.after, ..AuditFilter::default() };
        if self.follow {
            return self.follow(admin, &mut filter, json).await;
        }
        let log = admin.store.audit_log();
        let horizon = log.horizon().await?;
        let settled = timeout(SETTLE_TIMEOUT, wait_until_settled(admin, &horizon)).await;
        filter.before_id = Some(horizon.id + 1);
        let is_continued = self.after.is_some();
        let events = if is_continued {
            log.list_oldest(&filter, self.limit).await?
        } else {
            log.list(&filter, self.limit).await?
        };
        self.print(&events, json)?;
        if usize::try_from(self.limit).is_ok_and(|limit| events.len() == limit) {
            output::print_warning(if is_continued {
                "there may be newer events. Continue after the last one, or raise --limit."
            } else {
                "there may be older events. Raise --limit to see them."
            })?;
        }
        settled
            .context("a change is still open, and its events may have smaller numbers; run the command again later")?
    }

    /// Prints the newest events or those after a number, and then new ones. An outage of PostgreSQL only delays them.
    async fn follow(&self, admin: &AdminContext, filter: &mut AuditFilter<'_>, json: bool) -> Result<()> {
        if self.after.is_none() {
            let log = admin.store.audit_log();
            let horizon = log.horizon().await?;
            wait_until_settled(admin, &horizon).await?;
            filter.before_id = Some(horizon.id + 1);
            let mut events = log.list(filter, self.limit).await?;
            events.reverse();
            self.print(&events, json)?;
            filter.after_id = Some(horizon.id);
        }
        loop {
            sleep(FOLLOW_INTERVAL).await;
            match self.print_new(admin, filter, json).await {
                Err(error) if matches!(error.downcast_ref(), Some(StoreError::Outage(_))) => {
                    output::print_warning(&causes(error.as_ref()).to_string())?;
                }
                outcome => outcome?,
            }
        }
    }

    /// Prints all events after those of the filter, and moves the filter behind them.
    async fn print_new(&self, admin: &AdminContext, filter: &mut AuditFilter<'_>, json: bool) -> Result<()> {
        let log = admin.store.audit_log();
        let horizon = log.horizon().await?;
        wait_until_settled(admin, &horizon).await?;
        filter.before_id = Some(horizon.id + 1);
        loop {
            let events = log.list_oldest(filter, FOLLOW_PAGE).await?;
            self.print(&events, json)?;
            filter.after_id = events.last().map(|event| event.id).or(filter.after_id);
            if events.len() < usize::try_from(FOLLOW_PAGE)? {
                filter.after_id = Some(horizon.id);
                return Ok(());
            }
        }
    }

    fn print(&self, events: &[AuditEvent], json: bool) -> Result<()> {
        if json {
            return events.iter().try_for_each(|event| output::print_json(&event_json(event)));
        }
        let rows: Vec<_> = events.iter().map(event_row).collect();
        if self.follow { output::print_rows(&rows) } else { output::print_table(COLUMNS, &rows) }
    }
}

/// Waits until no change can add an event before the horizon.
async fn wait_until_settled(admin: &AdminContext, horizon: &AuditHorizon) -> Result<()> {
    let waiting_since = Instant::now();
    let mut is_reported = false;
    while !admin.store.audit_log().is_settled(horizon).await? {
        if !is_reported && waiting_since.elapsed() >= SETTLE_REPORT_DELAY {
            is_reported = true;
            output::print_warning("waiting for a change that is still open in PostgreSQL (see pg_stat_activity)")?;
        }
        sleep(SETTLE_INTERVAL).await;
    }
    Ok(())
}

async fn find_account_id(admin: &AdminContext, account: &str) -> Result<i64> {
    match account.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(admin.find_account(account).await.context("for a deleted account, use its number")?.id),
    }
}

fn event_json(event: &AuditEvent) -> serde_json::Value {
    json!({
        "id": event.id,
        "at": output::format_rfc3339(event.at_s),
        "action": event.action,
        "actor": event.actor,
        "operator": event.operator,
        "key": event.key_id,
        "account": event.email,
        "account_id": event.account_id,
        "subject": event.subject,
        "token": event.token,
    })
}

fn event_row(event: &AuditEvent) -> [String; 6] {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let account = event.email.clone().or_else(|| event.account_id.map(|id| id.to_string()));
    let name = event.operator.clone().or_else(|| event.token.as_ref().map(|token| format!("(token {token})")));
    let actor = name.map_or(event.actor.clone(), |name| format!("{} {name}", event.actor));
    [
        output::format_utc(event.at_s),
        event.action.clone(),
        actor,
        text(&event.key_id),
        account.unwrap_or_default(),
        text(&event.subject),
    ]
}
