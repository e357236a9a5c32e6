//! The processes of the deployment. Each home node writes a heartbeat, and one for each site that is connected to it.

use sqlx::FromRow;
use uuid::Uuid;

use crate::access::Nodes;
use crate::error::StoreError;
use crate::pool::MIGRATOR;

/// What a home node reports about itself.
#[derive(Clone, Copy, Debug)]
pub struct NodeHeartbeat<'a> {
    /// Identifies the process.
    pub id: Uuid,
    /// The host name.
    pub name: &'a str,
    /// The site. Empty if it is not set.
    pub site: &'a str,
    /// The version of the program.
    pub version: &'a str,
    /// When the process started, as Unix time in seconds.
    pub started_s: i64,
    /// Whether load balancers should send requests elsewhere.
    pub is_draining: bool,
    /// Whether it decides without Redis.
    pub is_degraded: bool,
    /// The sites whose remote nodes are connected to it.
    pub connected_sites: &'a [String],
}

/// What a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// PostgreSQL and Redis.
    Home,
    /// A connection to home nodes.
    Remote,
}

impl NodeRole {
    /// The role's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Remote => "remote",
        }
    }
}

/// A home node, or the remote nodes of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSummary {
    /// Identifies the process or the site.
    pub id: Uuid,
    /// What it has.
    pub role: NodeRole,
    /// The host name, or the site of remote nodes.
    pub name: String,
    /// The site. Empty if it is not set.
    pub site: String,
    /// The version of the program. `None` for remote nodes.
    pub version: Option<String>,
    /// The newest migration that the program knows. `None` for remote nodes.
    pub schema_version: Option<i64>,
    /// When the process started, as Unix time in seconds. `None` for remote nodes.
    pub started_s: Option<i64>,
    /// Seconds since the last heartbeat, by the clock of PostgreSQL.
    pub seen_ago_s: i64,
    /// Whether load balancers should send requests elsewhere.
    pub is_draining: bool,
    /// Whether it decides without Redis.
    pub is_degraded: bool,
}

#[derive(FromRow)]
struct NodeRow {
    id: Uuid,
    role: String,
    name: String,
    site: String,
    version: Option<String>,
    schema_version: Option<i64>,
    started_s: Option<i64>,
    seen_ago_s: i64,
    is_draining: bool,
    is_degraded: bool,
}

impl Nodes<'_> {
    /// Records that a node runs. Deletes rows of nodes that were not seen for a day.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn heartbeat(self, heartbeat: &NodeHeartbeat<'_>) -> Result<(), StoreError> {
        // Home nodes with the same site lock its row in the same order.
        let recorded = sqlx::query(
            "with connected as materialized (
                 select md5('ipseity site: ' || site)::uuid as id, site from unnest($9::text[]) site order by site
             ), forgotten as (
                 delete from nodes where id in (
                     select id from nodes
                     where last_seen_at < now() - interval '1 day' and id <> $1 and id not in (select id from connected)
                     for update skip locked)
             )
             insert into nodes (id, role, name, site, version, schema_version, started_at, is_draining, is_degraded)
             select id, 'remote', site, site, null, null::bigint, null::timestamptz, false, false from connected
             union all
             select $1, 'home', left($2, 255), left($3, 32), left($4, 64), $5, to_timestamp($6), $7, $8
             on conflict (id) do update set last_seen_at = now(), is_draining = excluded.is_draining,
                 is_degraded = excluded.is_degraded",
        )
        .bind(heartbeat.id)
        .bind(heartbeat.name)
        .bind(heartbeat.site)
        .bind(heartbeat.version)
        .bind(MIGRATOR.iter().map(|migration| migration.version).max())
        .bind(heartbeat.started_s)
        .bind(heartbeat.is_draining)
        .bind(heartbeat.is_degraded)
        .bind(heartbeat.connected_sites)
        .execute(&self.store.pool);
        self.store.with_timeout(recorded).await?;
        Ok(())
    }

    /// Removes the row of a node that stops.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn remove(self, id: Uuid) -> Result<(), StoreError> {
        let removed = sqlx::query("delete from nodes where id = $1").bind(id).execute(&self.store.pool);
        self.store.with_timeout(removed).await?;
        Ok(())
    }

    /// All nodes: home nodes first, ordered by site and name.
    ///
    /// # Errors
    /// If PostgreSQL is unavailable.
    pub async fn list(self) -> Result<Vec<NodeSummary>, StoreError> {
        let listed = sqlx::query_as(
            "select id, role, name, site, version, schema_version, floor(extract(epoch from started_at))::bigint as started_s,
                    greatest(floor(extract(epoch from now() - last_seen_at)), 0)::bigint as seen_ago_s, is_draining, is_degraded
             from nodes order by role, site, name, nodes.started_at, id",
        )
        .fetch_all(&self.store.pool);
        let rows: Vec<NodeRow> = self.store.with_timeout(listed).await?;
        Ok(rows.into_iter().filter_map(NodeRow::into_node).collect())
    }
}

impl NodeRow {
    /// `None` only for a row that violates the checks of the schema.
    fn into_node(self) -> Option<NodeSummary> {
        Some(NodeSummary {
            id: self.id,
            role: [NodeRole::Home, NodeRole::Remote].into_iter().find(|role| role.name() == self.role)?,
            name: self.name,
            site: self.site,
            version: self.version,
            schema_version: self.schema_version,
            started_s: self.started_s,
            seen_ago_s: self.seen_ago_s,
            is_draining: self.is_draining,
            is_degraded: self.is_degraded,
        })
    }
}
