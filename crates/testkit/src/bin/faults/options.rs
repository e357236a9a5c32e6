//! Arguments of the program.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::fault_kind::FaultKind;

const USAGE: &str =
    "faults [--short] [--seeds N] [--seed N] [--only NAME] [--parallel N] [--logs DIR] [--runs | --outages]";
const SEEDS: u64 = 390;
const PARALLEL: usize = 3;
/// The black-box suite runs at the same time and takes longer.
const SHORT_PARALLEL: usize = 1;

pub(crate) struct FaultsOptions {
    pub(crate) is_short: bool,
    pub(crate) seeds: u64,
    /// First seed.
    pub(crate) seed: u64,
    /// Only the kind with this name, or kinds and outages whose name contains it.
    pub(crate) only: Option<String>,
    /// Deployments at the same time.
    pub(crate) parallel: usize,
    /// Where to write histories and logs of failed runs.
    pub(crate) logs: Option<PathBuf>,
    pub(crate) runs_seeds: bool,
    pub(crate) runs_outages: bool,
}

impl FaultsOptions {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            is_short: false,
            seeds: SEEDS,
            seed: 1,
            only: None,
            parallel: PARALLEL,
            logs: None,
            runs_seeds: true,
            runs_outages: true,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--short" => {
                    (options.is_short, options.seeds, options.parallel) =
                        (true, FaultKind::SHORT.len() as u64, SHORT_PARALLEL)
                }
                "--seeds" => options.seeds = value()?.parse().context("--seeds must be a number")?,
                "--seed" => options.seed = value()?.parse().context("--seed must be a number")?,
                "--only" => options.only = Some(value()?),
                "--parallel" => options.parallel = value()?.parse().context("--parallel must be a number")?,
                "--logs" => options.logs = Some(value()?.into()),
                "--runs" => options.runs_outages = false,
                "--outages" => options.runs_seeds = false,
                other => bail!("unknown argument {other}; usage: {USAGE}"),
            }
        }
        Ok(options)
    }

    /// The selected kinds.
    pub(crate) fn kinds(&self) -> Vec<FaultKind> {
        let all = || FaultKind::ALL.iter().copied();
        let exact = all().find(|kind| self.only.as_deref() == Some(kind.name()));
        let is_wanted = |kind: &FaultKind| match &self.only {
            Some(_) => self.wants(kind.name()),
            None => !self.is_short || FaultKind::SHORT.contains(kind),
        };
        exact.map_or_else(|| all().filter(is_wanted).collect(), |kind| vec![kind])
    }

    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }
}
