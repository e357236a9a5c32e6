//! One seeded run: load, a fault somewhere in it, and what must hold afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::books::{self, Charged, Healed};
use crate::kind::Kind;
use crate::load::{Addresses, Asked, Load, LoadOptions};
use crate::report::Figures;
use crate::stage::{NODES, Stage, Subject};

const KEYS: usize = 10;
const SMALL_LIMIT: u64 = 60;
/// What is not rolled up when a store is lost: one interval, and the time that a roll-up takes.
const INTERVAL: Duration = Duration::from_millis(3_000);
/// A node's patience for a verdict, and how long a request that missed its own is noted before it is settled.
const VERDICT_MAX: Duration = Duration::from_millis(50);
const NOTED_MAX: Duration = Duration::from_secs(5);
pub(crate) const HEAL_MAX: Duration = Duration::from_secs(5);

/// All that a run has seen.
pub(crate) struct Seen {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) struck: Instant,
    pub(crate) ended: Instant,
    pub(crate) charged: Charged,
    pub(crate) untold: u64,
}

pub(crate) async fn run(stage: &mut Stage, kind: Kind, seed: u64, is_short: bool) -> Result<Figures> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut subjects = stage.issue(KEYS, "free").await?;
    subjects.extend(stage.issue(1, "small").await?);
    let untold_before = stage.untold()?;
    let addresses: Addresses = Arc::new(Mutex::new(stage.addresses()));
    let hang_up = if kind == Kind::ClientsHangUp { 0.2 } else { 0.0 };
    let load =
        Load::start(&addresses, &subjects, &LoadOptions { clients: 12, requests_per_second: 120, seed, hang_up });
    let [before, during, after] =
        if is_short { [1_000..1_500, 800..1_600, 400..800] } else { [1_200..2_500, 1_000..3_500, 500..1_500] };
    sleep(Duration::from_millis(rng.u64(before))).await;
    let struck = Instant::now();
    let lasting = Duration::from_millis(rng.u64(during));
    let special = special(stage, kind, &addresses).await?;
    kind.strike(stage, &addresses, lasting, seed).await?;
    let ended = Instant::now();
    sleep(Duration::from_millis(rng.u64(after))).await;
    let mut asked = load.stop().await;
    if let Some(special) = special {
        let offset = subjects.len();
        subjects.push(special.subject);
        asked.extend(special.load.stop().await.into_iter().map(|asked| Asked { key: asked.key + offset, ..asked }));
    }
    let mut seen = Seen { subjects, asked, struck, ended, charged: Charged::new(), untold: 0 };
    let healed;
    (healed, seen.charged) = books::healed(stage, &seen.subjects, &lost_with_store(kind, &seen)).await?;
    seen.untold = stage.untold()? - untold_before;
    check(stage, kind, &seen, &healed).await?;
    Ok(Figures::of(&seen, &healed))
}

/// A key that is treated worse than the others.
struct Special {
    subject: Subject,
    load: Load,
}

/// Starts whatever a kind does beside the fault itself.
async fn special(stage: &Stage, kind: Kind, addresses: &Addresses) -> Result<Option<Special>> {
    if kind != Kind::PausedWhileRedisIsAway {
        return Ok(None);
    }
    // More than the burst limit on each node within the fault's time.
    let subject = stage.issue(1, "free").await?.remove(0);
    let options = LoadOptions { clients: 8, requests_per_second: 700, seed: 7, hang_up: 0.0 };
    let load = Load::start(addresses, std::slice::from_ref(&subject), &options);
    Ok(Some(Special { subject, load }))
}

async fn check(stage: &Stage, kind: Kind, seen: &Seen, healed: &Healed) -> Result<()> {
    ensure!(healed.verdicts <= HEAL_MAX, "verdicts came back after {:?}", healed.verdicts);
    invariant(kind, seen)?;
    limits(kind, seen)?;
    pauses(kind, seen)?;
    if kind.keeps_a_store() && !kind.misses_a_node() && kind != Kind::ClientsHangUp {
        let unanswered = seen.asked.iter().filter(|asked| asked.is_unanswered()).count();
        ensure!(unanswered * 1000 <= seen.asked.len(), "{unanswered} of {} were not answered", seen.asked.len());
    }
    if kind == Kind::RevokedWhileRedisIsAway {
        revoked(stage, seen).await?;
    }
    Ok(())
}

/// `admitted − lost ≤ charged ≤ admitted + unanswered`, for each key and day.
pub(crate) fn invariant(kind: Kind, seen: &Seen) -> Result<()> {
    let mut untold = seen.untold;
    for (number, subject) in seen.subjects.iter().enumerate() {
        let own = || seen.asked.iter().filter(|asked| asked.key == number);
        let unanswered = own().filter(|asked| asked.is_unanswered()).count() as u64;
        let mut admitted: BTreeMap<u64, u64> = BTreeMap::new();
        for day in own().filter(|asked| asked.is_admitted()).filter_map(Asked::day) {
            *admitted.entry(day).or_default() += 1;
        }
        for (day, admitted) in admitted {
            let charged = seen.charged.get(&(subject.id.clone(), day)).copied().unwrap_or(0);
            let lost = own().filter(|asked| asked.is_admitted() && may_be_lost(kind, seen, asked)).count() as u64;
            let missing = admitted.saturating_sub(charged + lost);
            ensure!(missing <= untold, "{admitted} admitted, {charged} charged, at most {lost} may be lost");
            untold -= missing;
            ensure!(
                charged <= admitted + unanswered,
                "{admitted} admitted, {unanswered} unanswered, {charged} charged"
            );
        }
    }
    Ok(())
}

/// How much of each key the counter store may have lost: one node fills a record from what was rolled up and what it was told itself, while
/// another has yet to roll up what it was told.
fn lost_with_store(kind: Kind, seen: &Seen) -> Vec<u64> {
    let lost = |number| {
        let own = seen.asked.iter().filter(|asked| asked.key == number && asked.is_admitted());
        own.filter(|asked| may_be_lost_with_store(kind, seen, asked)).count() as u64
    };
    (0..seen.subjects.len()).map(lost).collect()
}

fn may_be_lost_with_store(kind: Kind, seen: &Seen, asked: &Asked) -> bool {
    kind.loses_counts() && asked.sent + INTERVAL >= seen.struck && asked.sent <= seen.ended
}

fn may_be_lost(kind: Kind, seen: &Seen, asked: &Asked) -> bool {
    let with_store = may_be_lost_with_store(kind, seen, asked);
    // A request that was on its way when the fault struck is one of those that the node admitted alone.
    let with_node = kind.loses_a_node() && asked.node == 1 && asked.ended() >= seen.struck && asked.sent <= seen.ended;
    // On a busy machine a verdict may be late without any fault; its request waits in the node's memory to be settled.
    let was_late = asked.outcome.is_some_and(|outcome| outcome.took >= VERDICT_MAX);
    let kills_a_node = kind.loses_a_node() || kind == Kind::NodeKilled;
    let with_its_notes = kills_a_node && asked.node == 1 && was_late && asked.sent + NOTED_MAX >= seen.struck;
    with_store || with_node || with_its_notes
}

/// Never above the limit without a fault; with one, by no more than was admitted while it lasted.
fn limits(kind: Kind, seen: &Seen) -> Result<()> {
    let small = KEYS;
    let admitted = || seen.asked.iter().filter(|asked| asked.key == small && asked.is_admitted());
    let over = (admitted().count() as u64).saturating_sub(SMALL_LIMIT);
    let is_faultless = matches!(kind, Kind::Nothing | Kind::ClientsHangUp | Kind::ScriptsFlushed);
    let around = admitted().filter(|asked| asked.sent + INTERVAL >= seen.struck).count() as u64;
    // A verdict that missed its bound is a fault of its own: the node goes on by what it knows.
    let late =
        admitted().filter(|asked| asked.outcome.is_some_and(|outcome| outcome.took >= VERDICT_MAX)).count() as u64;
    let room = if is_faultless { late } else { around };
    ensure!(over <= room, "{over} requests above the limit, and only {room} were admitted around the fault");
    Ok(())
}

/// No false pause; and no 200 after a pause was told, as long as a store could be asked.
fn pauses(kind: Kind, seen: &Seen) -> Result<()> {
    for number in 0..seen.subjects.len() {
        let own = || seen.asked.iter().filter(|asked| asked.key == number);
        let told = own().filter(|asked| asked.outcome.is_some_and(|outcome| outcome.is_burst));
        let Some(first) = told.filter_map(|asked| Some(asked.sent + asked.outcome?.took)).min() else { continue };
        let sent = own().count();
        ensure!(sent > domain::BURST_MAX, "a key was paused after {sent} requests");
        let late = own().filter(|asked| asked.is_admitted() && asked.sent > first).count();
        // The notice that PostgreSQL sends of a pause takes a moment to the other node.
        let soon = own().filter(|asked| asked.is_admitted() && asked.sent > first + NOTICE_MAX).count();
        ensure!(
            !kind.keeps_a_store() || soon == 0,
            "{soon} (of {late}) requests were admitted after the pause was told"
        );
        let total = own().filter(|asked| asked.is_admitted()).count();
        ensure!(total <= domain::BURST_MAX * NODES, "{total} requests were admitted within the minute");
    }
    Ok(())
}

/// How long a notice may take from one node over PostgreSQL to the other.
const NOTICE_MAX: Duration = Duration::from_millis(100);

/// A key that was revoked while Redis was away stays so.
async fn revoked(stage: &Stage, seen: &Seen) -> Result<()> {
    let Some(subject) = seen.subjects.first() else { return Ok(()) };
    stage.house.cli(&["key", "deactivate", &subject.id]).await?.success()?;
    for address in stage.addresses() {
        let reply = testkit::Caller::new(address).get("/api/v1/ip", &[("authorization", &subject.bearer)]).await?;
        ensure!(reply.status == 403, "a revoked key is answered {}", reply.status);
    }
    Ok(())
}
