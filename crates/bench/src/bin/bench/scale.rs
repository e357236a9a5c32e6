//! How the costs of a full answer grow: with the number of keys, of counter stores and of nodes, all at one constant rate.

mod houses;
mod memory;
mod plan;
mod report;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use testkit::node::Env;
use testkit::{Folder, Node};

use crate::bars::{Bar, Bound};
use crate::compare::CONNECTIONS;
use crate::cpu::{machine, resident_bytes};
use crate::load::pace::Pace;
use crate::load::{Load, PATH};
use crate::measure::{Accounts, Figures, median};
use crate::progress::progress;
use crate::subjects::ADMITTED;
use houses::{Inhabited, Stores};
use plan::Plan;
use report::{Report, Row};

/// What a thousand keys may do without a pause is 5,000 a second, for a minute.
const PER_S: f64 = 3_000.0;
const NODES_MAX: usize = 4;
/// The row, after those of the four houses, by which a great load is computed.
const HURRIED: usize = 4;

/// How much is measured.
struct Extent {
    /// Keys of each house; the one in the middle also has a cluster, and more nodes.
    keys: [usize; 3],
    rounds: usize,
    seconds: usize,
}

const WHOLE: Extent = Extent { keys: [1_000, 100_000, 1_000_000], rounds: 3, seconds: 20 };
const SHORT: Extent = Extent { keys: [1_000, 5_000, 20_000], rounds: 1, seconds: 5 };

const CPU_MOST_TO_FEWEST: f64 = 1.1;
const IDLE_BYTES_MAX: f64 = 600.0;
const BURST_BYTES_MAX: f64 = 3_500.0;

pub(crate) async fn run(is_short: bool) -> Result<ExitCode> {
    let extent = if is_short { SHORT } else { WHOLE };
    let mut rows = Vec::new();
    let mut houses = Vec::new();
    for keys in extent.keys {
        houses.push(Inhabited::open(keys, Stores::One).await?);
    }
    houses.push(Inhabited::open(extent.keys[1], Stores::Cluster).await?);
    let mut seen = vec![Vec::new(); houses.len()];
    for round in 1..=extent.rounds {
        for (house, seen) in houses.iter().zip(&mut seen) {
            let figures = house.measure(extent.seconds).await?;
            let Figures { server_us, redis_us, postgres_us, .. } = figures;
            progress(&format!(
                "round {round} of {}: {}: server {server_us:.1} µs, Redis {redis_us:.1} µs, PostgreSQL {postgres_us:.1} µs",
                extent.rounds,
                house.name()
            ));
            seen.push(figures);
        }
    }
    for (house, rounds) in houses.iter().zip(&seen) {
        rows.push(house.row(&house.name(), &median(rounds)).await?);
    }

    rows.push(houses[2].hurry(extent.seconds).await?);
    let memory = memory::measure(&houses).await?;
    // The one in the middle gets more nodes.
    let mut shared = houses.swap_remove(1);
    drop(houses);
    for nodes in 2..=NODES_MAX {
        let node = shared.house.start_node(&Env::new()).await?;
        shared.house.nodes.push(node);
        progress(&format!("{nodes} nodes"));
        let figures = shared.measure(extent.seconds).await?;
        rows.push(shared.row(&format!("{nodes} nodes"), &figures).await?);
    }

    let cpu = |row: &Row| row.figures.server_us + row.figures.redis_us;
    let most = |bound| Some(Bound::AtMost(bound));
    let bars = vec![
        Bar::new(
            "server and Redis CPU (µs), the most keys : the fewest",
            [cpu(&rows[2]), cpu(&rows[0])],
            most(CPU_MOST_TO_FEWEST),
        ),
        Bar::new("bytes in Redis of a key that is idle : bound", [memory.idle_bytes, IDLE_BYTES_MAX], most(1.0)),
        Bar::new(
            "bytes in Redis of a key at its burst limit : bound",
            [memory.burst_bytes, BURST_BYTES_MAX],
            most(1.0),
        ),
    ];
    let (processor, cores) = machine();
    let date = shared.house.postgres.psql("postgres", "select current_date").await?;
    let plan = Plan::new(&rows[HURRIED], &memory);
    let report = Report {
        plan,
        date,
        processor,
        cores,
        per_s: PER_S,
        seconds: extent.seconds,
        rounds: extent.rounds,
        rows,
        memory,
        bars,
    };
    report.print();
    if !is_short {
        report.write()?;
    }
    let failed = report.rows.iter().any(|row| row.figures.unexpected > 0);
    Ok(ExitCode::from(u8::from(failed)))
}

impl Inhabited {
    /// A run at the constant rate, on all nodes alike.
    async fn measure(&self, seconds: usize) -> Result<Figures> {
        let pace = Pace {
            addresses: self.house.nodes.iter().map(Node::http).collect(),
            path: PATH,
            crowd: Arc::clone(&self.crowd),
            requests: PER_S as usize * seconds,
            rate: Some(PER_S),
        };
        let mut accounts = Accounts::of_nodes(&self.house, ADMITTED);
        if let Some(cluster) = &self.cluster {
            accounts.redis = cluster.servers.iter().filter_map(testkit::Redis::pid).collect();
        }
        accounts.measure(&self.house, pace.run()).await
    }

    /// A run as fast as it goes: what a request costs a node that has much to do.
    async fn hurry(&self, seconds: usize) -> Result<Row> {
        let name = format!("{}, as fast as it goes", self.name());
        progress(&name);
        let (url, crowd) = (format!("http://{}", self.house.nodes[0].http()), (*self.crowd).clone());
        let load = Load::Wrk { url, connections: CONNECTIONS, crowd };
        let folder = Folder::open()?;
        let accounts = Accounts::of_nodes(&self.house, ADMITTED);
        let figures = accounts.measure(&self.house, load.run(seconds as u64, folder.path())).await?;
        self.row(&name, &figures).await
    }

    async fn row(&self, name: &str, figures: &Figures) -> Result<Row> {
        let nodes = self.house.nodes.len();
        let node_bytes = self.house.nodes.iter().map(|node| resident_bytes(node.pid())).sum::<u64>() / nodes as u64;
        Ok(Row { name: name.to_owned(), figures: *figures, node_bytes, redis_bytes: self.redis_bytes().await? })
    }
}
