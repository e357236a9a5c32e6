//! Replies of Redis.

use ipseity_ledger::{Quota, Verdict};

/// The numbers of a verdict fit into the headers of a response.
pub(crate) fn check_redis_reply(bytes: &[u8]) {
    for verdict in ipseity_ledger::fuzzing::parse_reply(bytes) {
        if let Verdict::Admitted { quota, .. } | Verdict::QuotaExhausted { quota } = verdict {
            check_quota(&quota);
        }
    }
}

fn check_quota(quota: &Quota) {
    assert!(quota.remaining() <= quota.limit);
    assert!(quota.retry_after_s() <= quota.reset_s());
}
