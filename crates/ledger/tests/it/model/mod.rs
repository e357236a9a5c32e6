//! A model-based test: random steps run against the real scripts and a small model of the specification. Both must
//! always agree.
//!
//! `IPSEITY_MODEL_STEPS` sets the number of steps. `IPSEITY_MODEL_SEED` repeats a run.

mod clock;
mod key;
mod walk;

use std::env;

use walk::RandomWalk;

const STEPS: u64 = 100_000;

#[tokio::test(flavor = "multi_thread")]
async fn script_and_model_never_differ() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("environment variable is a number"));
    let steps = number("IPSEITY_MODEL_STEPS").unwrap_or(STEPS);
    let seed = number("IPSEITY_MODEL_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut walk = RandomWalk::open(seed).await;
    while walk.steps < steps {
        walk.step().await;
    }
    walk.check_logs().await;
    walk.check_verdict_counts(steps);
}
