//! Parses arbitrary bytes like replies of Redis, for a fuzz target.

use redis::Value;

use crate::pauses::PendingPause;
use crate::redis::identity::{DataSet, Incarnation, TrustedStores};
use crate::redis::redirect::ClusterRedirect;
use crate::redis::slot_map;
use crate::verdict::{ScriptReply, Verdict};
use crate::{sweep, usage};

/// Parses one value of the Redis protocol with every parser of replies. Returns the verdicts in it.
#[must_use]
pub fn parse_reply(bytes: &[u8]) -> Vec<Verdict> {
    let value = match redis::parse_redis_value(bytes) {
        Ok(Value::ServerError(error)) => {
            let _ = ClusterRedirect::from_error(&redis::RedisError::from(error).into());
            return Vec::new();
        }
        Ok(value) => value,
        Err(_) => return Vec::new(),
    };
    let _ = slot_map::parse_slot_range(&value);
    let values = if let Value::Array(values) = &value { &values[..] } else { std::slice::from_ref(&value) };
    let texts: Vec<_> = values.iter().filter_map(|value| redis::from_redis_value_ref::<String>(value).ok()).collect();
    for pair in texts.windows(2) {
        let _ = (PendingPause::parse(&pair[0], &pair[1]), sweep::parse_count_field(&pair[0], &pair[1]));
    }
    values.iter().filter_map(parse_script_reply).collect()
}

fn parse_script_reply(value: &Value) -> Option<Verdict> {
    let reply = ScriptReply::from_value(value).ok()?;
    let _ =
        (reply.now(), reply.clock(), reply.quota(), reply.exhausted_quota(), reply.yesterday(), reply.unverifiable());
    let _ = (usage::parse_usage(reply.0), sweep::parse_days(reply.0), reply.is_incarnation_mismatch());
    Verdict::parse(Incarnation::new(DataSet::default(), &TrustedStores::default()), reply).ok()
}
