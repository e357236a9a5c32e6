//! `ipseity check`

use anyhow::Result;

use crate::cli::admin_context::AdminContext;
use crate::cli::explain_client::ExplainClient;
use crate::cli::output;
use crate::config::Config;
use crate::geo::update::GeoUpdater;
use crate::node::{self, PreparedNode};
use crate::tasks::acme;
use crate::telemetry::log;

/// Prints the settings and validates them without connecting to PostgreSQL or Redis, or explains one connection.
pub(super) fn run(config: &Config, explain: &ExplainClient) -> Result<()> {
    if explain.is_requested() {
        return explain.run(config);
    }
    for setting in config.redacted_lines()? {
        output::print_line(&setting)?;
    }
    log::configured_level(&config.log)?;
    AdminContext::open(config)?;
    let prepared = PreparedNode::open(config)?;
    GeoUpdater::open(&config.geo)?;
    prepared.check_portal(config)?;
    node::check_home(config)?;
    acme::acme_options(&config.acme)?;
    output::print_line("The configuration is valid.")
}
