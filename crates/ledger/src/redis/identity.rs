//! The identity of a Redis server.

use redis::RedisError;
use redis::aio::MultiplexedConnection;

/// The identity and the role of a server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// Identifies the data set, by `run_id` and `master_replid`. It changes when a server is restarted, restored or
    /// promoted. Records of another incarnation are not trusted.
    pub(crate) incarnation: String,
    pub(crate) is_primary: bool,
    pub(crate) is_cluster: bool,
}

impl ServerIdentity {
    pub(crate) async fn fetch(conn: &mut MultiplexedConnection) -> Result<Self, RedisError> {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("server").arg("replication").arg("cluster").query_async(conn).await?;
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
        Ok(Self {
            // Sixteen characters are enough, and every record contains them.
            incarnation: format!("{:.8}{:.8}", field("run_id"), field("master_replid")),
            is_primary: field("role") == "master",
            is_cluster: field("cluster_enabled") == "1",
        })
    }
}
