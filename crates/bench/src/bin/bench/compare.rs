//! The comparison: warms up every subject, then measures each once per round, so that noise affects all equally.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use ipseity_domain::DEMO_DAILY_LIMIT;
use ipseity_testkit::deployment::node::Env;

use crate::comparison_server::{BenchPrograms, OtherServers};
use crate::fixture::BenchFixture;
use crate::instructions;
use crate::load;
use crate::load::paced::{self, PacedLoad};
use crate::measure::{BenchMeasurement, median};
use crate::process_stats::machine_info;
use crate::profile::profile;
use crate::progress::progress;
use crate::report::{CompareReport, SubjectRow};
use crate::subjects::{DEMO, FLOOR, FLOOR_HALF, FULL, FULL_H2, FULL_H3, FULL_HALF, LOOKUP_SUCCESS};
use crate::targets;

const GEO_DATABASES: [&str; 2] = ["data/GeoLite2-City.mmdb", "data/GeoLite2-ASN.mmdb"];
/// Rate of the demo. The number of requests stays below its daily quota.
const DEMO_PER_S: f64 = 300.0;
const DEMO_REQUESTS: usize = DEMO_DAILY_LIMIT as usize * 9 / 10;

pub(crate) const CONNECTIONS: usize = 64;

/// Size of a run.
struct CompareSize {
    keys: usize,
    rounds: usize,
    seconds: u64,
}

const FULL_RUN: CompareSize = CompareSize { keys: 100_000, rounds: 5, seconds: 7 };
const SHORT_RUN: CompareSize = CompareSize { keys: 10_000, rounds: 1, seconds: 2 };

pub(crate) async fn run_compare(is_short: bool) -> Result<ExitCode> {
    let size = if is_short { SHORT_RUN } else { FULL_RUN };
    let databases = geo_databases()?;
    let fixture =
        BenchFixture::open(size.keys, CONNECTIONS, databases.clone(), Env::new(), &BenchPrograms::find()?).await?;
    fixture.warm_up_all().await?;
    let others = OtherServers::start(&databases, &fixture.pools.full).await?;

    let mut rows = run_rounds(&fixture, &others, &size).await?;
    rows.push(SubjectRow { name: DEMO, measurement: measure_demo(&fixture).await? });
    rows.extend(measure_at_half_capacity(&fixture, &rows, &size).await?);

    let mut profiles = BTreeMap::new();
    for subject in fixture.all_subjects(&others) {
        if [FULL, FULL_H2, FULL_H3].contains(&subject.name) {
            profiles.insert(subject.name, profile(&subject, size.seconds, fixture.dir.path()).await?);
        }
    }

    // The short run skips this, because it takes as long as everything else.
    let instructions = if is_short { BTreeMap::new() } else { instructions::count_instructions().await? };
    let by_name: HashMap<_, _> = rows.iter().map(|row| (row.name, row.measurement)).collect();
    let (processor, cores) = machine_info();
    let report = CompareReport {
        date: fixture.deployment.postgres.psql("postgres", "select current_date").await?,
        processor,
        cores,
        keys: size.keys,
        rounds: size.rounds,
        seconds: size.seconds,
        targets: targets::evaluate_targets(&by_name, &instructions)?,
        instructions,
        rows,
        profiles,
    };
    report.print();
    if !is_short {
        report.write()?;
    }
    Ok(ExitCode::from(u8::from(report.failed_count() > 0)))
}

/// GeoLite2 City and ASN.
pub(crate) fn geo_databases() -> Result<Vec<PathBuf>> {
    let files = GEO_DATABASES.into_iter().map(std::fs::canonicalize).collect::<Result<_, _>>();
    files.context("no GeoLite2 databases; run `just geo-data` to download them")
}

async fn run_rounds(fixture: &BenchFixture, others: &OtherServers, size: &CompareSize) -> Result<Vec<SubjectRow>> {
    let subjects = fixture.all_subjects(others);
    for subject in &subjects {
        progress(&format!("warming up: {}", subject.name));
        subject.load.run(1, fixture.dir.path()).await?;
    }
    let mut measurements: HashMap<&str, Vec<BenchMeasurement>> = HashMap::new();
    for round in 1..=size.rounds {
        for subject in &subjects {
            let load = subject.load.run(size.seconds, fixture.dir.path());
            let figures = subject.processes.measure(&fixture.deployment, load).await.with_context(|| subject.name)?;
            log_round(round, size.rounds, subject.name, &figures);
            measurements.entry(subject.name).or_default().push(figures);
        }
    }
    Ok(subjects
        .iter()
        .map(|subject| SubjectRow { name: subject.name, measurement: median(&measurements[subject.name]) })
        .collect())
}

fn log_round(round: usize, rounds: usize, name: &str, figures: &BenchMeasurement) {
    let BenchMeasurement { per_s, p99_us, server_us, redis_us, unexpected, .. } = figures;
    progress(&format!(
        "round {round} of {rounds}: {name}: {per_s:.0}/s, p99 {:.1} ms, server {server_us:.1} µs, Redis {redis_us:.1} µs, unexpected {unexpected}",
        p99_us / 1e3
    ));
}

/// Only once, because the demo has a daily quota.
async fn measure_demo(fixture: &BenchFixture) -> Result<BenchMeasurement> {
    progress("measuring the demo");
    let load = PacedLoad {
        addresses: vec![fixture.deployment.nodes[0].http()],
        path: load::DEMO_PATH,
        pool: Arc::new(fixture.pools.no_key.clone()),
        requests: DEMO_REQUESTS,
        rate: Some(DEMO_PER_S),
        connections: paced::CONNECTIONS,
    };
    fixture.node_processes(("demo", "success")).measure(&fixture.deployment, load.run()).await
}

/// Floor and full at a constant rate: half of what the slower one can do.
async fn measure_at_half_capacity(
    fixture: &BenchFixture,
    rows: &[SubjectRow],
    size: &CompareSize,
) -> Result<Vec<SubjectRow>> {
    let capacity =
        |name| rows.iter().find(|row| row.name == name).map_or(0.0, |row: &SubjectRow| row.measurement.per_s);
    let rate = capacity(FLOOR).min(capacity(FULL)) / 2.0;
    let pool = Arc::new(fixture.pools.full.clone());
    let both = [
        (FLOOR_HALF, fixture.floor_server.http(), fixture.floor_processes()),
        (FULL_HALF, fixture.deployment.nodes[0].http(), fixture.node_processes(LOOKUP_SUCCESS)),
    ];
    let mut measurements = [Vec::new(), Vec::new()];
    for round in 1..=size.rounds {
        for (index, (name, address, processes)) in both.iter().enumerate() {
            let requests = (rate * size.seconds as f64) as usize;
            let load = PacedLoad {
                addresses: vec![*address],
                path: load::LOOKUP_PATH,
                pool: Arc::clone(&pool),
                requests,
                rate: Some(rate),
                connections: paced::CONNECTIONS,
            };
            let figures = processes.measure(&fixture.deployment, load.run()).await?;
            log_round(round, size.rounds, name, &figures);
            measurements[index].push(figures);
        }
    }
    Ok(both
        .iter()
        .zip(&measurements)
        .map(|((name, ..), rounds)| SubjectRow { name, measurement: median(rounds) })
        .collect())
}
