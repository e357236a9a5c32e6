//! Sites whose remote nodes home nodes trust.

use std::time::Duration;

use sqlx::FromRow;

use crate::access::Sites;
use crate::error::{StoreError, StoreRefusal, violates_constraint};

/// How long a slot belongs to a process after its last renewal. A process that is cut off stops to use it long before.
const SLOT_VALID: Duration = Duration::from_secs(15);

/// A site whose remote nodes home nodes trust.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Site {
    /// The site's name.
    pub name: String,
    /// The SHA-256 fingerprint of the certificate that its nodes present.
    pub certificate_sha256: [u8; 32],
    /// When it was added, as Unix time in seconds.
    pub created_s: i64,
}

impl Sites<'_> {
    /// Whether the role may add and remove sites. The role of nodes may only read them.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn can_change(self) -> Result<bool, StoreError> {
        let allowed = sqlx::query_scalar(
            "select has_table_privilege('sites', 'insert') and has_table_privilege('sites', 'delete')",
        )
        .fetch_one(&self.store.pool);
        self.store.with_timeout(allowed).await
    }

    /// Adds a site. Home nodes trust this certificate until the site is removed.
    ///
    /// # Errors
    /// If the name is invalid, or the name or the certificate is taken, or the role may only read sites.
    pub async fn add(self, name: &str, certificate_sha256: &[u8; 32]) -> Result<(), StoreError> {
        let added = sqlx::query("insert into sites (name, certificate_sha256) values ($1, $2)")
            .bind(name)
            .bind(certificate_sha256.as_slice())
            .execute(&self.store.pool);
        self.store.with_timeout(async { added.await.map_err(map_refusal) }).await?;
        Ok(())
    }

    /// Removes a site. Returns `false` if it does not exist.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable, or the role may only read sites.
    pub async fn remove(self, name: &str) -> Result<bool, StoreError> {
        let removed = sqlx::query("delete from sites where name = $1").bind(name).execute(&self.store.pool);
        Ok(self.store.with_timeout(removed).await?.rows_affected() == 1)
    }

    /// All sites, ordered by name.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self) -> Result<Vec<Site>, StoreError> {
        let sites = sqlx::query_as(
            "select name, certificate_sha256, floor(extract(epoch from created_at))::bigint as created_s
             from sites order by name",
        )
        .fetch_all(&self.store.pool);
        self.store.with_timeout(sites).await
    }

    /// Claims or renews the slot of a site for one of its processes. `None` if another process of the site has it, or all slots
    /// are taken. It belongs to the process for 15 seconds after its last renewal.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn claim_slot(self, site: &str, node: &str) -> Result<Option<i16>, StoreError> {
        self.store.with_timeout(self.renew_or_claim_slot(site, node)).await
    }

    async fn renew_or_claim_slot(self, site: &str, node: &str) -> Result<Option<i16>, StoreError> {
        let renew = "update remote_slots set node = $2, expires_at = now() + make_interval(secs => $3)
                     where site = $1 and (node = $2 or expires_at < now()) returning slot";
        let renewed = sqlx::query_scalar(renew).bind(site).bind(node).bind(SLOT_VALID.as_secs_f64());
        if let Some(slot) = renewed.fetch_optional(&self.store.pool).await? {
            return Ok(Some(slot));
        }
        let mut transaction = self.store.pool.begin().await?;
        sqlx::query("lock table remote_slots in share row exclusive mode").execute(&mut *transaction).await?;
        sqlx::query("delete from remote_slots where expires_at < now()").execute(&mut *transaction).await?;
        let claim = "insert into remote_slots (slot, site, node, expires_at)
                     select min(number), $1, $2, now() + make_interval(secs => $3)
                     from generate_series(0, 29) number
                     where number not in (select slot from remote_slots)
                       and not exists (select from remote_slots where site = $1)
                     having min(number) is not null
                     returning slot";
        let claimed = sqlx::query_scalar(claim).bind(site).bind(node).bind(SLOT_VALID.as_secs_f64());
        let slot = claimed.fetch_optional(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(slot)
    }
}

fn map_refusal(error: sqlx::Error) -> StoreError {
    let refusals = [
        ("sites_pkey", StoreRefusal::SiteExists),
        ("sites_certificate_sha256_key", StoreRefusal::SiteCertificateExists),
        ("sites_name_check", StoreRefusal::InvalidSiteName),
    ];
    let refusal = refusals.into_iter().find(|(constraint, _)| violates_constraint(&error, constraint));
    refusal.map_or_else(|| error.into(), |(_, refusal)| refusal.into())
}
