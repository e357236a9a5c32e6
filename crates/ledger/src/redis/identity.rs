//! The identity of a Redis server.

use redis::RedisError;
use redis::aio::MultiplexedConnection;

/// Who a server is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    /// `run_id` and `master_replid`: a store that was restarted, restored or promoted has another stamp, and records under the old one are not
    /// believed.
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
            // Sixteen characters tell two stores apart, and every record carries them.
            incarnation: format!("{:.8}{:.8}", field("run_id"), field("master_replid")),
            is_primary: field("role") == "master",
            is_cluster: field("cluster_enabled") == "1",
        })
    }
}
