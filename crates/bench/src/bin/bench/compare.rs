//! The comparison: every subject warmed, then in rounds, each of them once in each, so that noise hits all alike.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use domain::DEMO_DAILY_MAX;
use testkit::node::Env;
use testkit::{Redis, RedisOptions};

use crate::bars;
use crate::callgrind;
use crate::cpu::machine;
use crate::load::pace::Pace;
use crate::load::{self, SEEDED};
use crate::measure::{Figures, median};
use crate::progress::progress;
use crate::report::{Report, Row};
use crate::server::{Programs, Server};
use crate::stage::{Stage, seed};
use crate::subjects::{ADMITTED, DEMO, FLOOR, FLOOR_HALF, FULL, FULL_HALF};

const DATABASES: [&str; 2] = ["data/GeoLite2-City.mmdb", "data/GeoLite2-ASN.mmdb"];
/// The demo is asked at this rate, and less often than it answers in a day.
const DEMO_PER_S: f64 = 300.0;
const DEMO_REQUESTS: usize = DEMO_DAILY_MAX as usize * 9 / 10;

pub(crate) const CONNECTIONS: usize = 64;

/// How much is measured.
struct Extent {
    keys: usize,
    rounds: usize,
    seconds: u64,
}

const WHOLE: Extent = Extent { keys: 100_000, rounds: 5, seconds: 7 };
const SHORT: Extent = Extent { keys: 10_000, rounds: 1, seconds: 2 };

pub(crate) async fn run(is_short: bool) -> Result<ExitCode> {
    let extent = if is_short { SHORT } else { WHOLE };
    let databases = databases()?;
    let stage = Stage::open(extent.keys, CONNECTIONS, databases.clone(), Env::new(), &Programs::find()?).await?;
    stage.meet_all().await?;
    let nginx = Server::open_nginx(&databases).await?;
    let engine = Redis::start(RedisOptions::default()).await?;
    seed(&engine, (0..SEEDED).map(|number| format!("key{number:012}"))).await?;

    let mut rows = rounds(&stage, &nginx, &engine, &extent).await?;
    rows.push(Row { name: DEMO, figures: demo(&stage).await? });
    rows.extend(at_half(&stage, &rows, &extent).await?);

    // The short form does without: it takes as long as the rest of it.
    let instructions = if is_short { BTreeMap::new() } else { callgrind::count().await? };
    let by_name: HashMap<_, _> = rows.iter().map(|row| (row.name, row.figures)).collect();
    let (processor, cores) = machine();
    let report = Report {
        date: stage.house.postgres.psql("postgres", "select current_date").await?,
        processor,
        cores,
        keys: extent.keys,
        rounds: extent.rounds,
        seconds: extent.seconds,
        bars: bars::judge(&by_name)?,
        instructions,
        rows,
    };
    report.print();
    if !is_short {
        report.write()?;
    }
    Ok(ExitCode::from(u8::from(report.failed() > 0)))
}

/// GeoLite2 City and ASN.
pub(crate) fn databases() -> Result<Vec<PathBuf>> {
    let files = DATABASES.into_iter().map(std::fs::canonicalize).collect::<Result<_, _>>();
    files.context("no GeoLite2 databases: `just geo-data` fetches them")
}

async fn rounds(stage: &Stage, nginx: &Server, engine: &Redis, extent: &Extent) -> Result<Vec<Row>> {
    let subjects = stage.subjects(nginx, engine);
    for subject in &subjects {
        progress(&format!("warming: {}", subject.name));
        subject.load.run(1, stage.folder.path()).await?;
    }
    let mut seen: HashMap<&str, Vec<Figures>> = HashMap::new();
    for round in 1..=extent.rounds {
        for subject in &subjects {
            let load = subject.load.run(extent.seconds, stage.folder.path());
            let figures = subject.accounts.measure(&stage.house, load).await.with_context(|| subject.name)?;
            told(round, extent.rounds, subject.name, &figures);
            seen.entry(subject.name).or_default().push(figures);
        }
    }
    Ok(subjects.iter().map(|subject| Row { name: subject.name, figures: median(&seen[subject.name]) }).collect())
}

fn told(round: usize, rounds: usize, name: &str, figures: &Figures) {
    let Figures { per_s, p99_us, server_us, redis_us, unexpected, .. } = figures;
    progress(&format!(
        "round {round} of {rounds}: {name}: {per_s:.0}/s, p99 {:.1} ms, server {server_us:.1} µs, Redis {redis_us:.1} µs, unexpected {unexpected}",
        p99_us / 1e3
    ));
}

/// Once, since it is limited to so many answers a day.
async fn demo(stage: &Stage) -> Result<Figures> {
    progress("asking the demo");
    let pace = Pace {
        addresses: vec![stage.house.nodes[0].http()],
        path: load::DEMO,
        crowd: Arc::new(stage.crowds.missing.clone()),
        requests: DEMO_REQUESTS,
        rate: Some(DEMO_PER_S),
    };
    stage.node_accounts(("demo", "success")).measure(&stage.house, pace.run()).await
}

/// Floor and full at a constant rate: half of what the slower of them can do.
async fn at_half(stage: &Stage, rows: &[Row], extent: &Extent) -> Result<Vec<Row>> {
    let capacity = |name| rows.iter().find(|row| row.name == name).map_or(0.0, |row: &Row| row.figures.per_s);
    let rate = capacity(FLOOR).min(capacity(FULL)) / 2.0;
    let crowd = Arc::new(stage.crowds.full.clone());
    let both = [
        (FLOOR_HALF, stage.floor.http(), stage.floor_accounts()),
        (FULL_HALF, stage.house.nodes[0].http(), stage.node_accounts(ADMITTED)),
    ];
    let mut seen = [Vec::new(), Vec::new()];
    for round in 1..=extent.rounds {
        for (place, (name, address, accounts)) in both.iter().enumerate() {
            let requests = (rate * extent.seconds as f64) as usize;
            let pace = Pace {
                addresses: vec![*address],
                path: load::PATH,
                crowd: Arc::clone(&crowd),
                requests,
                rate: Some(rate),
            };
            let figures = accounts.measure(&stage.house, pace.run()).await?;
            told(round, extent.rounds, name, &figures);
            seen[place].push(figures);
        }
    }
    Ok(both.iter().zip(&seen).map(|((name, ..), rounds)| Row { name, figures: median(rounds) }).collect())
}
