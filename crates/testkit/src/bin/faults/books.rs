//! The books: what clients were told against what the stores hold.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use redis::cmd;
use testkit::eventually;

use crate::stage::{Stage, Subject};

/// Charged requests by key and day.
pub(crate) type Charged = BTreeMap<(String, u64), u64>;

/// How long the books may take to be right after everything is back.
const BOOKS_MAX: Duration = Duration::from_secs(30);

/// How long after the end of a fault verdicts came from the counter store again, and the books were right.
#[derive(Clone, Copy)]
pub(crate) struct Healed {
    pub(crate) verdicts: Duration,
    pub(crate) books: Duration,
}

/// Waits until no node goes on from memory, nothing is unsettled, and both stores say the same; where the counter store has lost counts, the
/// history may know that many more of a key.
pub(crate) async fn healed(stage: &Stage, subjects: &[Subject], lost: &[u64]) -> Result<(Healed, Charged)> {
    let start = Instant::now();
    let is_zero = async |name: &str| stage.metric(name).await.is_ok_and(|value| value == 0);
    eventually("verdicts come from the counter store", BOOKS_MAX, async || is_zero("ipseity_recalling").await).await?;
    let verdicts = start.elapsed();
    eventually("everything is settled", BOOKS_MAX, async || is_zero("ipseity_unsettled").await).await?;
    let mut seen = (Charged::new(), Charged::new());
    let lost: BTreeMap<&str, u64> =
        subjects.iter().map(|subject| subject.id.as_str()).zip(lost.iter().copied()).collect();
    let agree = |of: &(String, u64), count: u64, history: &Charged| {
        let ahead = history.get(of).and_then(|history| history.checked_sub(count));
        ahead.is_some_and(|ahead| ahead <= lost[of.0.as_str()])
    };
    let equal = eventually("both stores say the same", BOOKS_MAX, async || {
        let both = async || Ok::<_, anyhow::Error>((ledger(stage, subjects).await?, store(stage, subjects).await?));
        let Ok(read) = both().await else { return false };
        seen = read;
        // A record that nobody has asked for since its store was lost is not there; its history is.
        seen.0.iter().all(|(of, count)| agree(of, *count, &seen.1))
    });
    if equal.await.is_err() {
        let differing: Vec<_> = seen.0.iter().filter(|(of, count)| !agree(of, **count, &seen.1)).take(3).collect();
        let history: Vec<_> = differing.iter().map(|(of, _)| seen.1.get(*of)).collect();
        bail!("the ledger's counts {differing:?} are not the history's {history:?}");
    }
    Ok((Healed { verdicts, books: start.elapsed() }, seen.1))
}

/// Counts that the counter store holds.
async fn ledger(stage: &Stage, subjects: &[Subject]) -> Result<Charged> {
    let mut connection = stage.house.redis.connection().await?;
    let names: Vec<String> = cmd("KEYS").arg("i2:*:k:*").query_async(&mut connection).await?;
    let mut charged = Charged::new();
    for subject in subjects {
        let Some(name) = names.iter().find(|name| name.ends_with(&subject.id)) else { continue };
        let record: Vec<u8> = cmd("GET").arg(name).query_async(&mut connection).await?;
        let number = |columns: Range<usize>| -> Result<u64> {
            let digits = record.get(columns).context("a record of another layout")?;
            Ok(std::str::from_utf8(digits)?.parse()?)
        };
        // Today and yesterday, each a day's number and its count.
        for (day, count) in [(number(62..68)?, number(68..80)?), (number(80..86)?, number(86..98)?)] {
            if count == 0 {
                continue;
            }
            charged.insert((subject.id.clone(), day), count);
        }
    }
    Ok(charged)
}

/// Counts that the durable store holds.
async fn store(stage: &Stage, subjects: &[Subject]) -> Result<Charged> {
    let ids: Vec<String> = subjects.iter().map(|subject| format!("'{}'", subject.id)).collect();
    let sql =
        format!("select key_id, day - date '1970-01-01', admitted from usage where key_id in ({})", ids.join(","));
    let mut charged = Charged::new();
    for row in stage.house.postgres.psql("ipseity", &sql).await?.lines() {
        let fields: Vec<&str> = row.split('|').collect();
        ensure!(fields.len() == 3, "a row of three, not {row:?}");
        charged.insert((fields[0].to_owned(), fields[1].parse()?), fields[2].parse()?);
    }
    Ok(charged)
}
