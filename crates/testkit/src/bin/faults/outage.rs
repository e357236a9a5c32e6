//! The long outages: a minute without a store, five hundred requests a second over two hundred keys on two nodes.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::books;
use crate::kind::Kind;
use crate::load::{Addresses, Load, LoadOptions};
use crate::report::Figures;
use crate::run::{HEAL_MAX, Seen, invariant};
use crate::stage::Stage;

const KEYS: usize = 200;
const RATE: u32 = 500;
/// No answer may take longer.
const ANSWER_MAX: Duration = Duration::from_millis(150);
const LASTING: Duration = Duration::from_secs(60);
const LASTING_SHORT: Duration = Duration::from_secs(4);
/// What two nodes may grow by meanwhile: the notes of two hundred keys, and the allocator's room.
const GROWTH_MAX_KIB: u64 = 48 * 1024;

pub(crate) struct Outage {
    pub(crate) name: &'static str,
    kind: Kind,
}

pub(crate) const ALL: [Outage; 5] = [
    Outage { name: "outage: redis killed", kind: Kind::RedisKilled },
    Outage { name: "outage: postgres killed", kind: Kind::PostgresKilled },
    Outage { name: "outage: both killed", kind: Kind::BothKilled },
    Outage { name: "outage: redis frozen", kind: Kind::RedisFrozen },
    Outage { name: "outage: replies dropped", kind: Kind::LedgerRepliesDropped },
];

#[expect(clippy::print_stdout, reason = "the figures are the point")]
pub(crate) async fn run(outage: &Outage, is_short: bool) -> Result<Figures> {
    let mut stage = Stage::open().await?;
    let subjects = stage.issue(KEYS, "free").await?;
    let addresses: Addresses = Arc::new(Mutex::new(stage.addresses()));
    let options = LoadOptions { clients: 40, requests_per_second: RATE, seed: 1, hang_up: 0.0 };
    let load = Load::start(&addresses, &subjects, &options);
    // Long enough that each node has seen each key.
    sleep(Duration::from_secs(5)).await;
    let before_kib = stage.resident_kib()?;
    let struck = Instant::now();
    outage.kind.strike(&mut stage, &addresses, if is_short { LASTING_SHORT } else { LASTING }, 1).await?;
    let ended = Instant::now();
    sleep(HEAL_MAX).await;
    let growth_kib = stage.resident_kib()?.saturating_sub(before_kib);
    let asked = load.stop().await;
    let (healed, charged) = books::healed(&stage, &subjects, &[0; KEYS]).await?;
    let untold = stage.untold()?;
    let seen = Seen { subjects, asked, struck, ended, charged, untold };
    let figures = Figures::of(&seen, &healed);
    invariant(outage.kind, &seen)?;
    // A key is known to a node that has seen it: of others, nobody could say anything while both stores are away.
    let before = seen.asked.iter().filter(|asked| asked.is_admitted() && asked.sent < seen.struck);
    let known: HashSet<(usize, usize)> = before.map(|asked| (asked.node, asked.key)).collect();
    let of_known = seen.asked.iter().filter(|asked| known.contains(&(asked.node, asked.key)));
    let (failed, all) =
        of_known.fold((0, 0), |(failed, all), asked| (failed + usize::from(!asked.is_admitted()), all + 1));
    println!("      {}: {failed} of {all} requests with known keys were not answered with 200", outage.name);
    ensure!(failed * 1000 <= all, "{failed} of {all} requests with known keys were not answered with 200");
    // Within HEAL_MAX of the fault's end all verdicts must come from the counter store: the load went on for that long.
    ensure!(healed.verdicts < Duration::from_secs(1), "verdicts came back {:?} after {HEAL_MAX:?}", healed.verdicts);
    ensure!(is_short || figures.slowest <= ANSWER_MAX, "an answer took {:?}", figures.slowest);
    ensure!(growth_kib <= GROWTH_MAX_KIB, "the nodes grew by {growth_kib} KiB");
    Ok(figures)
}
