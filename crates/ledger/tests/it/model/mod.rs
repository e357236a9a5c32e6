//! A model-based test: random steps run against the real scripts and a small model of the specification. Both must
//! always agree.
//!
//! Several nodes charge the same keys. Replies and requests are lost, delivered late and reconciled. Redis restarts or
//! loses data, PostgreSQL fails over, clocks are stepped. A reconciled batch is compared with what was really charged:
//! nothing is charged twice, and what is missing is reported as unverifiable.
//!
//! `IPSEITY_MODEL_STEPS` sets the number of steps. `IPSEITY_MODEL_SEED` repeats a run.

mod batched;
mod calls;
mod clock;
mod days;
mod incarnation;
mod key;
mod lost;
mod reconcile;
mod usage;
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
    walk.check_event_counts(steps);
    #[expect(clippy::print_stdout, reason = "`just model` shows it")]
    let () = println!("{} steps, differences = 0, seed {seed}: {:?}", walk.steps, walk.event_counts);
}
