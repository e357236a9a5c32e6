//! Restarts of Redis and failovers of PostgreSQL.

use std::time::Duration;

use ipseity_testkit::eventually;

use super::calls::RawCalls;
use super::walk::RandomWalk;
use crate::fixture::lost_charge;

/// A Redis data set, and the database that records are filled from, if the nodes know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelIncarnation {
    pub data_set: u64,
    pub database: Option<[u8; 8]>,
}

impl ModelIncarnation {
    /// Whether a node trusts a record that was written from there.
    pub fn trusts(self, written: Option<Self>) -> bool {
        written.is_some_and(|written| {
            written.data_set == self.data_set && (self.database.is_none() || written.database == self.database)
        })
    }
}

impl RandomWalk {
    /// PostgreSQL fails over. Sometimes it is down, and the nodes do not know the database.
    pub fn replace_database(&mut self) {
        let letters = [(); 8].map(|()| self.rng.lowercase() as u8);
        let database = Some(letters).filter(|_| self.rng.u32(..4) > 0);
        self.log_step(|| format!("database {database:?}"));
        self.store.set_database(database);
        self.incarnation.database = database;
        self.count_event("failover");
    }

    /// Redis restarts with its data or, like after a crash without persistence, without.
    pub async fn restart_redis(&mut self) {
        let keeps_data = self.rng.bool();
        self.log_step(|| format!("Redis restarts, keeps its data: {keeps_data}"));
        if keeps_data {
            self.redis.save_snapshot().await.expect("snapshot is saved");
            self.redis.restore_snapshot().await.expect("Redis restarts");
        } else {
            self.drop_everything().await;
            self.redis.restart().await.expect("Redis restarts");
            self.drop_everything_on_new_connection().await;
        }
        self.connection = self.redis.connect().await.expect("Redis accepts a connection");
        for node in &self.nodes {
            let responds = async || node.ledger.ping().await.is_ok();
            eventually("the ledger reconnects", Duration::from_secs(10), responds).await.expect("Redis answers");
        }
        self.incarnation.data_set += 1;
        self.calls = RawCalls::capture(&self.redis, &self.nodes[0].ledger).await;
        self.lost_charge = lost_charge(&self.redis, self.lost_charge.at).await;
        // Their connections are gone.
        self.held.clear();
        self.count_event("restart");
    }

    /// A snapshot of an earlier restart may have been loaded.
    async fn drop_everything_on_new_connection(&mut self) {
        self.redis.flushall().await.expect("data is deleted");
    }

    /// The next charge reads PostgreSQL.
    pub async fn invalidate(&mut self, index: usize) {
        self.log_step(|| format!("record of key {index} invalidated"));
        let id = self.keys[index].key.id;
        self.nodes[0].ledger.invalidate_key_record(id).await.expect("Redis answers");
        if let Some(record) = &mut self.keys[index].record {
            record.incarnation = None;
        }
    }
}
