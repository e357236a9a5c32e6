//! `ipseity check`

use anyhow::Result;

use super::explain::Explain;
use super::{Desk, show};
use crate::assemble::Ground;
use crate::config::Config;
use crate::renewal;
use crate::telemetry;
use crate::update::Updater;

/// Builds all that can be built without reaching a store, and prints the settings; or explains one connection.
pub(super) fn run(config: &Config, explain: &Explain) -> Result<()> {
    if explain.is_asked() {
        return explain.run(config);
    }
    for setting in config.redacted()? {
        show::line(&setting)?;
    }
    telemetry::level(&config.log)?;
    Desk::open(config)?;
    let ground = Ground::open(config)?;
    Updater::open(&config.geo)?;
    ground.check_pages(config)?;
    renewal::options(&config.acme)?;
    show::line("The configuration is valid.")
}
