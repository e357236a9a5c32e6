//! Search for accounts and keys by exact values and beginnings, which indexes find among millions.

use ipseity_domain::KeyId;
use ipseity_domain::account::EmailAddress;
use sqlx::FromRow;

use crate::access::ConsoleQueries;
use crate::error::StoreError;
use crate::keys::record::key_daily_limit;
use crate::keys::search::{FoundKey, FoundKeyRow, found_key_columns};

/// An account that a search found.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct FoundAccount {
    /// The account's id.
    pub id: i64,
    /// The owner's email address.
    pub email: String,
    /// The name of the plan.
    pub plan: String,
    /// When it was created, as Unix time in seconds.
    pub created_s: i64,
    /// The number of keys.
    pub key_count: i64,
}

/// The columns of [`FoundAccount`], from `accounts a`.
macro_rules! found_account_columns {
    () => {
        "a.id, a.email, a.plan, floor(extract(epoch from a.created_at))::bigint as created_s,
         (select count(*) from keys k where k.account_id = a.id) as key_count"
    };
}
pub(crate) use found_account_columns;

// Beginnings are ranges, not patterns: the characters of LIKE have no meaning in them, and a plan for any value uses the index.
// DEL sorts after every character of an address, and U+10FFFF after every one of a name.
const SEARCH_ACCOUNTS: &str = concat!(
    "with found as (
         (select id, 0 as rank from accounts where id = $1)
         union all
         (select id, 1 from accounts
          where email collate \"C\" >= $2 and email collate \"C\" < $2 || chr(127) and id is distinct from $1
          order by email collate \"C\" limit $4)
         union all
         (select id, 2 from accounts where split_part(email, '@', 2) collate \"C\" = $3 order by id desc limit $4)
     )
     select ",
    found_account_columns!(),
    " from found join accounts a on a.id = found.id
     order by found.rank, case when found.rank < 2 then a.email end collate \"C\", a.id desc limit $4"
);

const SEARCH_KEYS: &str = concat!(
    "with found as (
         (select id, 0 as rank from keys where id = $1)
         union all
         (select id, 1 from keys
          where lower(name) collate \"C\" >= lower($2) and lower(name) collate \"C\" < lower($2) || chr(1114111)
              and id is distinct from $1
          order by lower(name) collate \"C\", id limit $3)
     )
     select ",
    found_key_columns!(),
    " from found join keys k on k.id = found.id join accounts a on a.id = k.account_id
     order by found.rank, lower(k.name) collate \"C\", k.id limit $3"
);

impl ConsoleQueries<'_> {
    /// The account with this number, accounts whose email address starts with the text, or those of a domain such as
    /// `@example.com`, newest first.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn search_accounts(self, text: &str, count_max: i64) -> Result<Vec<FoundAccount>, StoreError> {
        let text = text.trim();
        let (email_start, domain) = match text.strip_prefix('@') {
            Some(domain) => (None, Some(to_ascii_domain(domain))),
            None => (Some(text.to_ascii_lowercase()).filter(|start| !start.is_empty()), None),
        };
        let found = sqlx::query_as(SEARCH_ACCOUNTS)
            .bind(text.parse::<i64>().ok())
            .bind(email_start)
            .bind(domain)
            .bind(count_max)
            .fetch_all(&self.store.pool);
        self.store.with_timeout(found).await
    }

    /// The key with this ID, with or without the prefix `ips_`, and keys whose name starts with the text, ignoring case, ordered by
    /// name.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn search_keys(self, text: &str, count_max: i64) -> Result<Vec<FoundKey>, StoreError> {
        let text = text.trim();
        let id = KeyId::parse(text);
        let found = sqlx::query_as(SEARCH_KEYS)
            .bind(id.as_ref().map(KeyId::as_str))
            .bind(Some(text).filter(|start| !start.is_empty()))
            .bind(count_max)
            .fetch_all(&self.store.pool);
        let rows: Vec<FoundKeyRow> = self.store.with_timeout(found).await?;
        Ok(rows.into_iter().filter_map(FoundKeyRow::into_found_key).collect())
    }
}

/// The domain as addresses have it: an international one in its ASCII form.
fn to_ascii_domain(domain: &str) -> String {
    let address = EmailAddress::parse(&format!("any@{domain}"));
    let parsed = address.as_ref().and_then(|address| address.as_str().split_once('@'));
    parsed.map_or_else(|| domain.to_ascii_lowercase(), |(_, domain)| domain.to_owned())
}
