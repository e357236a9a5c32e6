//! The usage flush: sweeps, and confirmations that come later.

use ipseity_domain::KeyPause;

use super::calls::StoredKey;
use super::days::{Counts, raise_count};
use super::key::KeyModel;
use super::walk::RandomWalk;

impl KeyModel {
    /// What PostgreSQL must have after a flush.
    fn expected_flush(&self) -> Counts {
        let mut counts = self.flushed.clone();
        let columns = self.record.iter().flat_map(|record| record.days);
        let moved = self.unflushed.iter().map(|(&day, &count)| ipseity_domain::DailyUsage { day, count });
        for usage in columns.chain(moved).filter(|usage| usage.count > 0) {
            raise_count(&mut counts, usage);
        }
        counts
    }
}

impl RandomWalk {
    /// Records the pauses and flushes the counts that a sweep finds. The confirmation may come later, or get lost.
    pub async fn sweep(&mut self) {
        if !self.unconfirmed_sweeps.is_empty() {
            // Counts that have changed since an earlier sweep must be found again.
            self.confirm_sweep().await;
        }
        let ledger = self.any_ledger();
        let owner = ledger.owners().remove(0);
        let swept = ledger.sweep(&ledger.all_parts(&owner)).await.expect("Redis answers");
        // Without the evidence: it is lost with the log.
        let sorted = |pauses: Vec<&KeyPause>| {
            let mut pauses: Vec<_> = pauses.iter().map(|pause| (pause.key, pause.burst_epoch, pause.at_ms)).collect();
            pauses.sort_unstable();
            pauses
        };
        let actual = sorted(swept.pauses.iter().collect());
        let expected = sorted(self.keys.iter().flat_map(|key| &key.unrecorded_pauses).collect());
        if actual != expected {
            self.fail(&format!("the model expects {expected:?}\nthe ledger returned {actual:?}"));
        }
        let expected: Vec<Counts> = self.keys.iter().map(KeyModel::expected_flush).collect();
        for swept in &swept.usage {
            if let Some(key) = self.keys.iter_mut().find(|key| key.key.id == swept.key && !key.deleted) {
                swept.days.iter().for_each(|usage| raise_count(&mut key.flushed, *usage));
            }
        }
        for (index, expected) in expected.iter().enumerate() {
            let key = &self.keys[index];
            if !key.deleted && key.flushed != *expected {
                self.fail(&format!("key {index}: PostgreSQL must have {expected:?}\nbut has {:?}", key.flushed));
            }
        }
        self.log_step(|| format!("{} counts swept", swept.usage.len()));
        self.unconfirmed_sweeps.push(swept.usage);
        for pause in swept.pauses {
            let owner = self.keys.iter().position(|key| key.key.id == pause.key).expect("known key");
            self.record_pause(owner, &pause).await;
        }
        self.confirm_sweep().await;
        self.count_event("sweep");
    }

    /// Redis may keep more counts than the model, which knows what PostgreSQL has, but not fewer.
    pub async fn adopt_unflushed(&mut self, index: usize) {
        let stored = StoredKey::read(&mut self.connection, self.keys[index].key.id).await;
        let key = &mut self.keys[index];
        let is_kept = |(day, count): (_, &u64)| {
            [&stored.unflushed, &key.flushed].iter().any(|counts| counts.get(day).is_some_and(|kept| kept >= count))
        };
        if !key.unflushed.iter().all(is_kept) {
            let difference = format!("key {index}: {:?} were lost from {:?}", key.unflushed, stored.unflushed);
            self.fail(&difference);
        }
        key.unflushed = stored.unflushed;
    }

    /// Confirms one of the last sweeps.
    pub async fn confirm_sweep(&mut self) {
        if self.unconfirmed_sweeps.len() > 3 || self.rng.bool() {
            let chosen = self.rng.usize(..self.unconfirmed_sweeps.len());
            let swept = self.unconfirmed_sweeps.swap_remove(chosen);
            self.log_step(|| "counts confirmed".to_owned());
            self.any_ledger().confirm_flush(&swept).await.expect("Redis answers");
        }
    }
}
