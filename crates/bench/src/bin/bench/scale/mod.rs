//! How the cost of a full response grows with the number of keys, Redis servers and nodes, at a constant rate.

mod capacity_plan;
mod key_memory;
mod report;
mod seeded_deployment;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Node, TestDir};

use crate::compare::CONNECTIONS;
use crate::load::paced::{self, PacedLoad};
use crate::load::{BenchLoad, LOOKUP_PATH};
use crate::measure::{BenchMeasurement, MeasuredProcesses, median};
use crate::process_stats::{machine_info, resident_bytes};
use crate::progress::progress;
use crate::subjects::LOOKUP_SUCCESS;
use crate::targets::{PerformanceTarget, TargetBound};
use capacity_plan::CapacityPlan;
use report::{ScaleReport, ScaleRow};
use seeded_deployment::{RedisTopology, SeededDeployment};

/// A thousand keys can make 5,000 requests per second for 60 seconds without a pause.
const REQUESTS_PER_SECOND: f64 = 3_000.0;
const NODES_MAX: usize = 4;
/// Index of the row for the capacity plan, after those of the four deployments.
const FULL_SPEED_ROW: usize = 4;

/// Size of a run.
struct ScaleSize {
    /// Keys of each deployment. The second one is also measured with a cluster and with more nodes.
    keys: [usize; 3],
    rounds: usize,
    seconds: usize,
}

const FULL_RUN: ScaleSize = ScaleSize { keys: [1_000, 100_000, 1_000_000], rounds: 3, seconds: 20 };
const SHORT_RUN: ScaleSize = ScaleSize { keys: [1_000, 5_000, 20_000], rounds: 1, seconds: 5 };

const CPU_MOST_TO_FEWEST: f64 = 1.1;
const IDLE_BYTES_MAX: f64 = 600.0;
const BURST_BYTES_MAX: f64 = 3_500.0;

pub(crate) async fn run_scale(is_short: bool) -> Result<ExitCode> {
    let size = if is_short { SHORT_RUN } else { FULL_RUN };
    let mut rows = Vec::new();
    let mut deployments = Vec::new();
    for keys in size.keys {
        deployments.push(SeededDeployment::open(keys, RedisTopology::Single).await?);
    }
    deployments.push(SeededDeployment::open(size.keys[1], RedisTopology::Cluster).await?);
    let mut measurements = vec![Vec::new(); deployments.len()];
    for round in 1..=size.rounds {
        for (deployment, measurements) in deployments.iter().zip(&mut measurements) {
            let figures = deployment.measure_at_constant_rate(size.seconds).await?;
            let BenchMeasurement { server_us, redis_us, postgres_us, .. } = figures;
            progress(&format!(
                "round {round} of {}: {}: server {server_us:.1} µs, Redis {redis_us:.1} µs, PostgreSQL {postgres_us:.1} µs",
                size.rounds,
                deployment.name()
            ));
            measurements.push(figures);
        }
    }
    for (deployment, rounds) in deployments.iter().zip(&measurements) {
        rows.push(deployment.scale_row(&deployment.name(), &median(rounds)).await?);
    }

    rows.push(deployments[2].measure_at_full_speed(size.seconds).await?);
    let memory = key_memory::measure_key_memory(&deployments).await?;
    // The second deployment gets more nodes.
    let mut shared = deployments.swap_remove(1);
    drop(deployments);
    for nodes in 2..=NODES_MAX {
        let node = shared.deployment.start_node(&Env::new()).await?;
        shared.deployment.nodes.push(node);
        progress(&format!("{nodes} nodes"));
        let figures = shared.measure_at_constant_rate(size.seconds).await?;
        rows.push(shared.scale_row(&format!("{nodes} nodes"), &figures).await?);
    }

    let total_cpu_us = |row: &ScaleRow| row.measurement.server_us + row.measurement.redis_us;
    let most = TargetBound::AtMost;
    let targets = vec![
        PerformanceTarget::new(
            "server and Redis CPU (µs), most keys : fewest keys",
            [total_cpu_us(&rows[2]), total_cpu_us(&rows[0])],
            most(CPU_MOST_TO_FEWEST),
        ),
        PerformanceTarget::new("Redis bytes of an idle key : limit", [memory.idle_bytes, IDLE_BYTES_MAX], most(1.0)),
        PerformanceTarget::new(
            "Redis bytes of a key at its burst limit : limit",
            [memory.burst_bytes, BURST_BYTES_MAX],
            most(1.0),
        ),
    ];
    let (processor, cores) = machine_info();
    let date = shared.deployment.postgres.psql("postgres", "select current_date").await?;
    let plan = CapacityPlan::new(&rows[FULL_SPEED_ROW], &memory);
    let report = ScaleReport {
        capacity_plan: plan,
        date,
        processor,
        cores,
        per_s: REQUESTS_PER_SECOND,
        seconds: size.seconds,
        rounds: size.rounds,
        rows,
        key_memory: memory,
        targets,
    };
    report.print();
    if !is_short {
        report.write()?;
    }
    let failed = report.rows.iter().any(|row| row.measurement.unexpected > 0);
    Ok(ExitCode::from(u8::from(failed)))
}

impl SeededDeployment {
    /// Runs at the constant rate, spread over all nodes.
    async fn measure_at_constant_rate(&self, seconds: usize) -> Result<BenchMeasurement> {
        let load = PacedLoad {
            addresses: self.deployment.nodes.iter().map(Node::http).collect(),
            path: LOOKUP_PATH,
            pool: Arc::clone(&self.pool),
            requests: REQUESTS_PER_SECOND as usize * seconds,
            rate: Some(REQUESTS_PER_SECOND),
            connections: paced::CONNECTIONS,
        };
        let mut processes = MeasuredProcesses::for_nodes(&self.deployment, LOOKUP_SUCCESS);
        if let Some(cluster) = &self.cluster {
            processes.redis = cluster.servers.iter().filter_map(ipseity_testkit::Redis::pid).collect();
        }
        processes.measure(&self.deployment, load.run()).await
    }

    /// Runs at the maximum rate, which shows the cost on a busy node.
    async fn measure_at_full_speed(&self, seconds: usize) -> Result<ScaleRow> {
        let name = format!("{}, maximum rate", self.name());
        progress(&name);
        let (url, pool) = (format!("http://{}", self.deployment.nodes[0].http()), (*self.pool).clone());
        let load = BenchLoad::Wrk { url, connections: CONNECTIONS, pool };
        let dir = TestDir::create()?;
        let processes = MeasuredProcesses::for_nodes(&self.deployment, LOOKUP_SUCCESS);
        let figures = processes.measure(&self.deployment, load.run(seconds as u64, dir.path())).await?;
        self.scale_row(&name, &figures).await
    }

    async fn scale_row(&self, name: &str, figures: &BenchMeasurement) -> Result<ScaleRow> {
        let nodes = self.deployment.nodes.len();
        let node_bytes =
            self.deployment.nodes.iter().map(|node| resident_bytes(node.pid())).sum::<u64>() / nodes as u64;
        Ok(ScaleRow {
            name: name.to_owned(),
            measurement: *figures,
            node_bytes,
            redis_bytes: self.redis_bytes().await?,
        })
    }
}
