//! Random clock steps: mostly small, often to a boundary, sometimes back.

use std::ops::RangeBounds;

use redis::cmd;

use super::calls::redis_key;
use super::walk::RandomWalk;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

impl RandomWalk {
    pub async fn advance_clock(&mut self) {
        let target_ms = match self.rng.u32(..100) {
            0..40 => self.now_ms + self.rng.u64(..10),
            40..60 => self.now_ms + self.rng.u64(..SECOND_MS),
            60..72 => self.now_ms + self.rng.u64(..MINUTE_MS),
            72..88 => self.boundary_ms(),
            88..92 => self.now_ms + self.rng.u64(..10 * MINUTE_MS),
            92..94 => self.now_ms + self.rng.u64(..23 * HOUR_MS),
            94 => self.now_ms + self.rng.u64(1..5) * DAY_MS,
            _ => (self.now_ms / DAY_MS + 1) * DAY_MS + self.rng.u64(..4) - 2,
        };
        self.set_clock(target_ms.max(self.now_ms));
        self.drop_idle_records().await;
    }

    /// A time within 1 ms of the end of a request's burst window, or of the expiry of a previous secret.
    fn boundary_ms(&mut self) -> u64 {
        let index = self.pick_key();
        let Some(record) = &self.keys[index].record else { return self.now_ms };
        let live: Vec<u64> = record.requests.iter().copied().filter(|at| self.now_ms < at + MINUTE_MS).collect();
        let boundary_ms = match &record.key_record.previous {
            Some(previous) if live.is_empty() || self.rng.bool() => previous.expires_at_s * SECOND_MS,
            _ if live.is_empty() => return self.now_ms,
            _ => live[self.rng.usize(..live.len())] + MINUTE_MS,
        };
        boundary_ms + self.rng.u64(..3) - 1
    }

    pub async fn set_clock_back(&mut self, by_ms: u64) {
        self.delete_expired_logs().await;
        // A call that is delayed while the clock goes forward and back by the same time is not covered: it is valid again.
        self.held.clear();
        self.log_step(|| format!("clock back by {by_ms} ms"));
        self.set_clock(self.now_ms - by_ms);
        for index in 0..self.keys.len() {
            if self.keys[index].record.is_none() {
                self.nodes.iter_mut().for_each(|node| node.pending[index].drop_future(self.now_ms));
            }
        }
    }

    pub async fn set_clock_back_slightly(&mut self) {
        let by_ms = [1, 999, SECOND_MS, self.rng.u64(..SECOND_MS)][self.rng.usize(..4)];
        self.set_clock_back(by_ms).await;
    }

    pub async fn set_clock_back_far(&mut self) {
        let by_ms = [SECOND_MS + 1, self.rng.u64(SECOND_MS..MINUTE_MS), self.rng.u64(..DAY_MS)][self.rng.usize(..3)];
        self.set_clock_back(by_ms).await;
    }

    /// The clock runs ahead for some requests, then returns.
    pub async fn run_clock_ahead(&mut self, index: usize) {
        let before_ms = self.now_ms;
        let days = [2, 3, 400][self.rng.usize(..3)];
        self.log_step(|| format!("clock {days} days ahead"));
        self.set_clock(before_ms + days * DAY_MS);
        self.drop_idle_records().await;
        for _ in 0..self.rng.usize(1..4) {
            let digest = self.keys[index].key.digest;
            self.charge(index, digest, 1).await;
        }
        let by_ms = self.now_ms - before_ms - self.rng.u64(..SECOND_MS);
        self.set_clock_back(by_ms).await;
        self.count_event("clock ahead");
    }

    /// Advances the clock by a random time.
    pub fn wait(&mut self, range_ms: impl RangeBounds<u64>) {
        let by_ms = self.rng.u64(range_ms);
        self.set_clock(self.now_ms + by_ms);
    }

    pub fn set_clock(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.clock.freeze_at_ms(i64::try_from(now_ms).expect("time fits into i64"));
    }

    /// Redis expires keys at no exact time. Records that are about to expire are deleted here, so that the model knows
    /// it.
    async fn drop_idle_records(&mut self) {
        for index in 0..self.keys.len() {
            if self.keys[index].record.as_ref().is_some_and(|record| self.now_ms >= record.written_ms + 2 * DAY_MS) {
                self.drop_record(index).await;
            }
        }
    }

    /// A log outside the burst window may have expired or not. That matters only if the clock goes back into the
    /// window.
    async fn delete_expired_logs(&mut self) {
        for key in &mut self.keys {
            let Some(record) = &mut key.record else { continue };
            if record.newest_ms > 0 && record.requests.iter().all(|at| self.now_ms >= at + MINUTE_MS) {
                record.requests.clear();
                record.is_log_deleted = true;
                let log_key = redis_key(key.key.id, "log");
                cmd("DEL").arg(log_key).exec_async(&mut self.connection).await.expect("log is deleted");
            }
        }
    }
}
