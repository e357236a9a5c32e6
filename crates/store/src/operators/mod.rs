//! The operators of the admin console: their roles, credentials and sessions.

pub(crate) mod credentials;
pub(crate) mod links;
pub(crate) mod sessions;

use sqlx::postgres::PgArguments;
use sqlx::query::QueryScalar;
use sqlx::{FromRow, PgConnection, Postgres};
use uuid::Uuid;

use crate::access::Operators;
use crate::error::{StoreError, StoreRefusal, violates_constraint};

/// What an operator may do. A greater role includes the smaller ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorRole {
    /// May look at everything.
    Viewer,
    /// May also help owners of accounts and keys.
    Support,
    /// May also change limits and operators, and delete accounts.
    Admin,
}

impl OperatorRole {
    /// All roles, smallest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Support, Self::Admin];

    /// The name of the role.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Support => "support",
            Self::Admin => "admin",
        }
    }

    /// Parses the name of a role.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == text)
    }
}

/// The name of an operator, as the audit log has it: 1 to 64 letters, digits and `.`, `_`, `@`, `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorName(String);

impl OperatorName {
    /// Parses a name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || "._@-".contains(character);
        ((1..=64).contains(&text.len()) && text.chars().all(is_allowed)).then(|| Self(text.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The operator's id.
    pub id: i64,
    /// The name in the audit log.
    pub name: String,
    /// What the operator may do.
    pub role: OperatorRole,
    /// The WebAuthn user handle.
    pub handle: Uuid,
}

/// An operator, as lists show it.
#[derive(Clone, Debug)]
pub struct OperatorSummary {
    /// The operator.
    pub operator: Operator,
    /// When it was added, as Unix time in seconds.
    pub created_s: i64,
    /// When a session was last used, as Unix time in seconds. `None` if there is no session.
    pub last_seen_s: Option<i64>,
    /// Number of ways to sign in: passkeys and accounts of other providers.
    pub credentials: i64,
    /// Whether a link to add one can still be used.
    pub has_link: bool,
}

#[derive(FromRow)]
pub(crate) struct OperatorRow {
    id: i64,
    name: String,
    role: String,
    handle: Uuid,
}

#[derive(FromRow)]
struct SummaryRow {
    #[sqlx(flatten)]
    operator: OperatorRow,
    created_s: i64,
    last_seen_s: Option<i64>,
    credentials: i64,
    has_link: bool,
}

impl OperatorRow {
    pub(crate) fn into_operator(self) -> Operator {
        // The check of the table permits no other role.
        let role = OperatorRole::parse(&self.role).unwrap_or(OperatorRole::Viewer);
        Operator { id: self.id, name: self.name, role, handle: self.handle }
    }
}

impl Operators<'_> {
    /// All operators, by name.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self) -> Result<Vec<OperatorSummary>, StoreError> {
        let rows = sqlx::query_as(
            "select o.id, o.name, o.role, o.handle, floor(extract(epoch from o.created_at))::bigint as created_s,
                    (select floor(extract(epoch from max(s.seen_at)))::bigint from operator_sessions s
                     where s.operator_id = o.id) as last_seen_s,
                    (select count(*) from operator_passkeys p where p.operator_id = o.id)
                        + (select count(*) from operator_identities i where i.operator_id = o.id) as credentials,
                    exists (select from operator_links l where l.operator_id = o.id and l.expires_at > now()) as has_link
             from operators o order by lower(o.name)",
        )
        .fetch_all(&self.store.pool);
        let rows: Vec<SummaryRow> = self.store.with_timeout(rows).await?;
        let summary = |row: SummaryRow| OperatorSummary {
            operator: row.operator.into_operator(),
            created_s: row.created_s,
            last_seen_s: row.last_seen_s,
            credentials: row.credentials,
            has_link: row.has_link,
        };
        Ok(rows.into_iter().map(summary).collect())
    }

    /// Adds an operator, who signs in with a link for the first time. The link expires after a week.
    ///
    /// # Errors
    /// If the name is taken.
    pub async fn invite(
        self,
        name: &OperatorName,
        role: OperatorRole,
        link_digest: &[u8; 32],
    ) -> Result<i64, StoreError> {
        let invited = async {
            let mut transaction = self.store.pool.begin().await?;
            let id = insert_operator(&mut transaction, name, role, None).await?;
            links::replace_link(&mut transaction, id, link_digest).await?;
            transaction.commit().await?;
            Ok(id)
        };
        self.store.with_timeout::<_, StoreError>(invited).await
    }

    /// Changes the role of an operator. Returns its name.
    ///
    /// # Errors
    /// If the operator does not exist, or is the only admin who can sign in.
    pub async fn set_role(self, id: i64, role: OperatorRole) -> Result<String, StoreError> {
        let set = sqlx::query_scalar("update operators set role = $2 where id = $1 returning name");
        self.change(set.bind(id).bind(role.name())).await
    }

    /// Removes an operator with all sessions. Returns its name.
    ///
    /// # Errors
    /// If the operator does not exist, or is the only admin who can sign in.
    pub async fn remove(self, id: i64) -> Result<String, StoreError> {
        self.change(sqlx::query_scalar("delete from operators where id = $1 returning name").bind(id)).await
    }

    /// Changes an operator with this statement, unless no admin could sign in any more.
    async fn change(self, statement: QueryScalar<'_, Postgres, String, PgArguments>) -> Result<String, StoreError> {
        let changed = async {
            let mut transaction = self.store.pool.begin().await?;
            lock_operators(&mut transaction).await?;
            let had_admin = has_joined_admin(&mut transaction).await?;
            let name = statement.fetch_optional(&mut *transaction).await?;
            if had_admin && !has_joined_admin(&mut transaction).await? {
                return Err(StoreRefusal::LastAdmin.into());
            }
            transaction.commit().await?;
            name.ok_or_else(|| StoreRefusal::UnknownOperator.into())
        };
        self.store.with_timeout::<_, StoreError>(changed).await
    }
}

/// Keeps others from adding, changing and removing operators, so that at least one admin stays.
pub(crate) async fn lock_operators(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("lock table operators in share row exclusive mode").execute(connection).await?;
    Ok(())
}

/// Whether there is an admin who can sign in.
async fn has_joined_admin(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "select exists (
             select from operators o where role = 'admin'
                 and (exists (select from operator_passkeys p where p.operator_id = o.id)
                     or exists (select from operator_identities i where i.operator_id = o.id)))",
    )
    .fetch_one(connection)
    .await
}

pub(crate) async fn insert_operator(
    connection: &mut PgConnection,
    name: &OperatorName,
    role: OperatorRole,
    handle: Option<Uuid>,
) -> Result<i64, StoreError> {
    let id = sqlx::query_scalar(
        "insert into operators (name, role, handle) values ($1, $2, coalesce($3, gen_random_uuid())) returning id",
    )
    .bind(name.as_str())
    .bind(role.name())
    .bind(handle)
    .fetch_one(connection)
    .await;
    id.map_err(|error| match violates_constraint(&error, "operators_name") {
        true => StoreRefusal::OperatorExists.into(),
        false => error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greater_roles_include_smaller_ones() {
        assert!(OperatorRole::Admin > OperatorRole::Support && OperatorRole::Support > OperatorRole::Viewer);
        for role in OperatorRole::ALL {
            assert_eq!(OperatorRole::parse(role.name()), Some(role));
        }
        assert_eq!(OperatorRole::parse("owner"), None);
    }

    #[test]
    fn operator_names_fit_into_the_audit_log() {
        for name in ["ada", "Ada.Lovelace@ipseity.example", "a_b-c", &"x".repeat(64)] {
            assert!(OperatorName::parse(name).is_some(), "{name}");
        }
        for name in ["", " ada", "a b", "ä", "a\n", "<b>", &"x".repeat(65)] {
            assert!(OperatorName::parse(name).is_none(), "{name}");
        }
    }
}
