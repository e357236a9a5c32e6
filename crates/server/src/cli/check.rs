//! `ipseity check`

use anyhow::Result;
use serde_json::json;

use crate::cli::admin_context::AdminContext;
use crate::cli::contract;
use crate::cli::explain_client::ExplainClient;
use crate::cli::output;
use crate::config::Config;
use crate::geo::update::GeoUpdater;
use crate::node::sign_in_providers::operator_providers;
use crate::node::{self, PreparedNode};
use crate::tasks::acme;
use crate::telemetry::log;

/// Prints the settings and validates them without connecting to PostgreSQL or Redis, or explains one connection.
pub(super) fn run(config: &Config, explain: &ExplainClient, json: bool) -> Result<()> {
    if explain.is_requested() {
        return explain.run(config, json);
    }
    for (setting, value) in config.redacted_settings()? {
        output::print_result(json, &json!({ "setting": setting, "value": value }), &format!("{setting} = {value}"))?;
    }
    log::configured_level(&config.log)?;
    AdminContext::open(config)?;
    let prepared = PreparedNode::open(config)?;
    GeoUpdater::open(&config.geo)?;
    prepared.check_portal(config)?;
    operator_providers(config)?;
    node::check_home(config)?;
    acme::acme_options(&config.acme)?;
    if let Some(deviation) = contract::demo_deviation(config) {
        output::print_warning(&deviation)?;
    }
    warn_about_missing_files(config)?;
    output::print_result(json, &json!({ "valid": true }), "The configuration is valid.")
}

fn warn_about_missing_files(config: &Config) -> Result<()> {
    config.geo.sources_of_missing_files().try_for_each(|source| {
        let (file, host) = (source.file.display(), source.host());
        output::print_warning(&format!("{file} does not exist yet. A node downloads it from {host} when it starts."))
    })
}
