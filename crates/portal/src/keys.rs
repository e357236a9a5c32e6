//! The list of keys, and making new ones.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use domain::account::KeyName;
use domain::{ClearKey, Day, Field, KEYS_PER_ACCOUNT_MAX, KeyId, Scope, View};
use sha2::{Digest, Sha256};
use store::{KeyRow, Refused, StoreError};

use crate::page::{Member, show};
use crate::posted::Posted;
use crate::problem::Problem;
use crate::view::{KeyCard, KeysPage, MintedPage, NewKeyPage, PauseView, ScopeChoice, Tab, minute_chart};
use crate::visit::hex;
use crate::{Portal, time};

/// Said of a name that cannot be one.
pub(crate) const BAD_NAME: &str = "A name has 1 to 100 characters, none of them a control character.";
const SPENT: &str =
    "You hold 10 keys, and no account can hold more. Delete one that you no longer use, then make the new one.";

pub(crate) async fn list(State(portal): State<Arc<Portal>>, member: Member) -> Result<Response, Problem> {
    let rows = portal.store.keys(member.account.id).await?;
    let used = portal.used_today(&rows).await;
    let card = |(row, used)| card(row, used, member.account.daily_limit);
    let keys = rows.iter().zip(used).map(card).collect();
    Ok(show(&KeysPage {
        frame: member.frame(&portal, "Your keys", Tab::Keys),
        keys,
        keys_max: KEYS_PER_ACCOUNT_MAX,
        edition: edition(&rows),
    }))
}

/// Names what a list of keys shows, but for their use, which changes all the time.
pub(crate) fn edition(rows: &[KeyRow]) -> String {
    let mut digest = Sha256::new();
    for row in rows {
        let paused_ms = row.pause.as_ref().map(|pause| pause.at_ms);
        digest.update(format!("{:?}", (row.id, &row.name, row.state, row.retired_until_s, paused_ms)));
    }
    hex(&digest.finalize()[..8])
}

/// A key as pages show it.
pub(crate) fn card(row: &KeyRow, used: u64, limit: u64) -> KeyCard {
    let last_day = if used > 0 {
        Some("today".to_owned())
    } else {
        row.last_used.as_ref().map(|(day, _)| time::last_day(day, time::today()))
    };
    KeyCard {
        id: row.id.to_string(),
        name: row.name.clone(),
        scope: row.scope.name(),
        state: row.state.name(),
        created: time::date(row.created_s),
        last_day,
        used,
        limit,
        old_until: row.retired_until_s.map(time::minute),
        pause: row.pause.as_ref().map(|pause| PauseView {
            at: time::second(pause.at_ms / 1000),
            requests: pause.counts.iter().map(|count| u32::from(*count)).sum(),
            peak: pause.counts.iter().copied().max().unwrap_or(0),
            chart: minute_chart(&pause.counts),
        }),
    }
}

impl Portal {
    /// How much each key has used today, live; what was rolled up when the counter store does not answer.
    pub(crate) async fn used_today(&self, rows: &[KeyRow]) -> Vec<u64> {
        let today = time::today();
        let ids: Vec<KeyId> = rows.iter().map(|row| row.id).collect();
        let live = self.ledger.used(&ids).await.unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "today's use is shown as it was rolled up last");
            vec![None; ids.len()]
        });
        let of_today = |day: Day, count| if day == today { count } else { 0 };
        let count = |(row, live): (&KeyRow, Option<domain::Used>)| {
            row.today.max(live.map_or(0, |used| of_today(used.day, used.count)))
        };
        rows.iter().zip(live).map(count).collect()
    }

    /// A line for a shell.
    pub(crate) fn curl(&self, clear: &ClearKey) -> String {
        format!("curl -H 'Authorization: Bearer {}' {}/api/v1/ip", clear.expose(), self.settings.base_url)
    }
}

pub(crate) async fn form(State(portal): State<Arc<Portal>>, member: Member) -> Response {
    new_key(&portal, &member, String::new(), Scope::Full, None)
}

fn new_key(portal: &Portal, member: &Member, name: String, chosen: Scope, problem: Option<&str>) -> Response {
    let frame = member.frame(portal, "New key", Tab::Keys);
    let scopes = Scope::ALL.into_iter().map(|scope| choice(scope, chosen)).collect();
    show(&NewKeyPage { frame, name, scopes, problem: problem.map(str::to_owned) })
}

fn choice(scope: Scope, chosen: Scope) -> ScopeChoice {
    let sentence = match scope {
        Scope::Ip => "The caller's address, and nothing else.",
        Scope::Geo => "The address, where it is, and who operates its network.",
        Scope::Full => "All of that, and how the caller is connected.",
    };
    let field = |field: Field| (field.name(), field.scope() == scope);
    let fields = View::Scope(scope).fields().map(field).collect();
    ScopeChoice { name: scope.name(), sentence, fields, chosen: scope == chosen }
}

pub(crate) async fn create(
    State(portal): State<Arc<Portal>>,
    member: Member,
    posted: Posted,
) -> Result<Response, Problem> {
    let typed = posted.text("name").to_owned();
    let Some(scope) = Scope::parse(posted.text("scope")) else {
        return Ok(new_key(&portal, &member, typed, Scope::Full, Some("Choose what the key may see.")));
    };
    let Some(name) = KeyName::parse(&typed) else {
        return Ok(new_key(&portal, &member, typed, scope, Some(BAD_NAME)));
    };
    let clear = ClearKey::mint(random_byte);
    match portal.store.issue(&member.account, member.by(), &name, scope, &clear.key()).await {
        Ok(()) => {}
        Err(StoreError::Refused(Refused::KeysSpent)) => {
            return Ok(new_key(&portal, &member, typed, scope, Some(SPENT)));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(show(&MintedPage {
        frame: member.frame(&portal, "Your new key", Tab::Keys),
        id: clear.key().id.to_string(),
        name: name.as_str().to_owned(),
        curl: portal.curl(&clear),
        clear: clear.expose().to_owned(),
        rolled: None,
    }))
}

/// A byte that nobody can guess.
pub(crate) fn random_byte() -> u8 {
    let mut byte = [0];
    getrandom::fill(&mut byte).expect("the system gives random bytes");
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_is_explained_with_all_its_fields_and_marks_what_it_adds() {
        let [ip, geo, full] = Scope::ALL.map(|scope| choice(scope, Scope::Geo));
        assert_eq!(ip.fields, [("status", true), ("ip", true), ("ipv6", true)]);
        assert!(geo.fields.contains(&("ip", false)) && geo.fields.contains(&("city", true)) && geo.chosen);
        assert_eq!((full.fields.len(), full.chosen), (Field::ALL.len(), false));
    }
}
