//! The budget: how many instructions a request may need relative to bare servers of the same build.
//!
//! callgrind counts the same on any machine and under any other load, so a small margin suffices. Requests come one after the other,
//! counts are not flushed meanwhile, and what the idle process needs is subtracted: otherwise the share of each request in batches and
//! background tasks would depend on the rate. The build is a debug build, in which dependencies are optimized and our own code is
//! not, so the ratios are higher than those of a release build. Redis is measured by CPU time.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ipseity_testkit::TestDir;
use ipseity_testkit::deployment::node::Env;
use tokio::time::sleep;

use crate::caller_pool::CallerPool;
use crate::comparison_server::{BenchPrograms, ComparisonServer};
use crate::fixture::BenchFixture;
use crate::instructions::{dump_counts, under_callgrind};
use crate::load::LOOKUP_PATH;
use crate::load::paced::PacedLoad;
use crate::measure::median;
use crate::progress::progress;
use crate::report::print_targets;
use crate::subjects::{FLOOR, FULL, NO_KEY, STATIC};
use crate::targets::{PerformanceTarget, TargetBound};

/// The ratios of the last commit that changed them. If a change lowers one, lower it here too.
const FULL_TO_FLOOR: f64 = 2.72;
const REFUSAL_TO_STATIC: f64 = 1.755;
/// Ratios of the same build differ by less, also on a busy machine. They were measured on x86-64; elsewhere, only large changes are found.
const MARGIN: f64 = if cfg!(target_arch = "x86_64") { 0.03 } else { 0.5 };
/// About twice the figure. CPU time depends on other load.
const REDIS_FULL_TO_FLOOR: f64 = 2.5;

const KEYS: usize = 1_000;
const WARM_UP_REQUESTS: usize = 500;
const COUNTED_REQUESTS: usize = 1_500;
const IDLE: Duration = Duration::from_secs(3);
const REDIS_CONNECTIONS: usize = 8;
const REDIS_ROUNDS: usize = 3;
/// The interval of the usage flush, so that every round contains one.
const REDIS_SECONDS: u64 = 2;

pub(crate) async fn run_budget() -> Result<ExitCode> {
    let mut targets = instruction_targets().await?;
    targets.push(redis_target().await?);
    print_targets(&targets);
    Ok(ExitCode::from(u8::from(targets.iter().any(|target| !target.is_met))))
}

/// A server under callgrind, and its callers.
struct CountedSubject<'a> {
    name: &'static str,
    address: SocketAddr,
    pid: u32,
    pool: &'a CallerPool,
}

async fn instruction_targets() -> Result<Vec<PerformanceTarget>> {
    let dir = TestDir::create()?;
    // callgrind makes everything about fifty times slower.
    let env = Env::from([
        ("IPSEITY__LEDGER__TIMEOUT_MS".to_owned(), "20000".to_owned()),
        ("IPSEITY__LEDGER__USAGE_FLUSH_INTERVAL_MS".to_owned(), "3600000".to_owned()),
    ]);
    let programs = under_callgrind(&BenchPrograms::find()?, dir.path())?;
    let fixture = BenchFixture::open(KEYS, 1, Vec::new(), env, &programs).await?;
    fixture.warm_up(&fixture.pools.full).await?;
    let BenchFixture { deployment, static_server, floor_server, pools, .. } = &fixture;
    let bare = |name, server: &ComparisonServer| CountedSubject {
        name,
        address: server.http(),
        pid: server.pid(),
        pool: &pools.full,
    };
    let node =
        |name, pool| CountedSubject { name, address: deployment.nodes[0].http(), pid: deployment.nodes[0].pid(), pool };
    let subjects =
        [bare(STATIC, static_server), bare(FLOOR, floor_server), node(FULL, &pools.full), node(NO_KEY, &pools.no_key)];
    let mut counts = [0.0; 4];
    for (subject, count) in subjects.iter().zip(&mut counts) {
        progress(&format!("counting instructions: {}", subject.name));
        *count = subject.instructions_per_request(dir.path()).await?;
        progress(&format!("{}: {count:.0} instructions per request", subject.name));
    }
    let [plain, floor, full, refusal] = counts;
    let target =
        |name: &str, figures, ratio| PerformanceTarget::new(name, figures, TargetBound::AtMost(ratio * (1.0 + MARGIN)));
    Ok(vec![
        target("instructions, full : floor", [full, floor], FULL_TO_FLOOR),
        target("instructions, no key : static", [refusal, plain], REFUSAL_TO_STATIC),
    ])
}

impl CountedSubject<'_> {
    async fn instructions_per_request(&self, dir: &Path) -> Result<f64> {
        self.send_requests(WARM_UP_REQUESTS).await?;
        sleep(IDLE).await;
        dump_counts(self.pid, dir).await?;
        let idle_begin = Instant::now();
        sleep(IDLE).await;
        let idle_per_s = dump_counts(self.pid, dir).await? as f64 / idle_begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        self.send_requests(COUNTED_REQUESTS).await?;
        let instructions = dump_counts(self.pid, dir).await? as f64;
        Ok((instructions - idle_per_s * begin.elapsed().as_secs_f64()) / COUNTED_REQUESTS as f64)
    }

    /// Sends requests one after the other.
    async fn send_requests(&self, requests: usize) -> Result<()> {
        let Self { name, address, pool, .. } = self;
        let (addresses, pool) = (vec![*address], Arc::new((*pool).clone()));
        let load = PacedLoad { addresses, path: LOOKUP_PATH, pool, requests, rate: None, connections: 1 };
        let result = load.run().await?;
        let expected = if *name == NO_KEY { result.requests } else { 0 };
        ensure!(result.refused == expected, "{name}: {} of {requests} requests were rejected", result.refused);
        Ok(())
    }
}

async fn redis_target() -> Result<PerformanceTarget> {
    // A debug build on a busy machine may exceed the timeout of Redis, and a local decision would look cheaper.
    let env = Env::from([("IPSEITY__LEDGER__TIMEOUT_MS".to_owned(), "2000".to_owned())]);
    let fixture = BenchFixture::open(KEYS, REDIS_CONNECTIONS, Vec::new(), env, &BenchPrograms::find()?).await?;
    fixture.warm_up(&fixture.pools.full).await?;
    let subjects = [fixture.http1_subject(FULL, &fixture.pools.full, "success"), fixture.floor_subject()];
    let mut measurements = [const { Vec::new() }; 2];
    for round in 1..=REDIS_ROUNDS {
        for (subject, measurements) in subjects.iter().zip(&mut measurements) {
            progress(&format!("round {round} of {REDIS_ROUNDS}: {}", subject.name));
            let load = subject.load.run(REDIS_SECONDS, fixture.dir.path());
            measurements.push(subject.processes.measure(&fixture.deployment, load).await?);
        }
    }
    let [full, floor] = measurements.map(|rounds| median(&rounds));
    let unexpected = full.unexpected + floor.unexpected;
    ensure!(unexpected == 0, "{unexpected} unexpected responses");
    let bound = TargetBound::AtMost(REDIS_FULL_TO_FLOOR);
    Ok(PerformanceTarget::new("Redis CPU (µs), full : floor", [full.redis_us, floor.redis_us], bound))
}
