//! `ipseity doctor`: checks every dependency of a node and reports problems with suggested fixes.
//!
//! It changes nothing and can run while the node serves.

mod backend_report;
mod clocks;
mod deployment;
mod finding;
mod geo;
mod home;
mod machine;
mod pairing;
mod postgres;
mod redis;
mod settings;

use anyhow::{Result, ensure};
use serde_json::json;

use self::finding::{DoctorFinding, Severity};
use crate::cli::output;
use crate::config::Config;

/// Prints each finding. In JSON it has `check`, `severity` (ok, warning or error) and `message`.
pub(super) async fn run(config: &Config, json: bool) -> Result<()> {
    let (backends, ports, pairing) =
        tokio::join!(check_backends(config), machine::check_ports(config), pairing::check_pairing(config));
    let findings: Vec<DoctorFinding> = [
        settings::check_settings(config),
        backends,
        settings::check_certificates(config),
        pairing,
        geo::check_geo_databases(config),
        machine::check_open_files(config),
        ports,
        settings::check_proxies(config),
        settings::check_exposure(config),
    ]
    .into_iter()
    .flatten()
    .collect();
    findings.iter().try_for_each(|finding| print_finding(finding, json))?;
    let error_count = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
    let noun = if error_count == 1 { "error" } else { "errors" };
    ensure!(error_count == 0, "found {error_count} {noun}. Each message ends with a suggested fix.");
    Ok(())
}

fn print_finding(DoctorFinding { check, severity, message }: &DoctorFinding, json: bool) -> Result<()> {
    let value = json!({ "check": check, "severity": severity.name(), "message": message });
    output::print_result(json, &value, &format!("{:<7}  {check:<12}  {message}", severity.name()))
}

/// Checks the stores, or home for a remote node.
async fn check_backends(config: &Config) -> Vec<DoctorFinding> {
    if config.home.is_remote_node() {
        return home::check_home(config).await;
    }
    let (redis, postgres, deployment) = tokio::join!(
        redis::check_redis(config),
        postgres::check_postgres(config),
        deployment::check_deployment(config)
    );
    let clocks = clocks::check_clocks(&[redis.clocks, postgres.clocks].concat());
    [redis.findings, postgres.findings, deployment, clocks].into_iter().flatten().collect()
}
