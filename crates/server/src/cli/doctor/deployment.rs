//! Checks that PostgreSQL and Redis belong together.

use ipseity_keys::DeploymentStatus;

use crate::cli::admin_context::AdminContext;
use crate::cli::contract;
use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, to_sentence};
use crate::config::Config;

const CHECK_NAME: &str = "deployment";

/// No finding if a server cannot be used, which other checks report.
pub(super) async fn check_deployment(config: &Config) -> Vec<DoctorFinding> {
    let Ok(admin) = AdminContext::open(config) else { return Vec::new() };
    let mut findings = DoctorFindings::new(CHECK_NAME);
    match admin.key_service.compare_deployment().await {
        Ok(DeploymentStatus::Unchecked | DeploymentStatus::Matching) => {}
        Ok(status @ (DeploymentStatus::ForeignRedis | DeploymentStatus::SplitRedis)) => {
            findings.error(to_sentence(&status.to_string()));
        }
        Ok(status @ DeploymentStatus::UnclaimedRedis) => findings.warning(to_sentence(&status.to_string())),
        Err(_) => return Vec::new(),
    }
    for deviation in contract::limit_deviations(&admin.store).await.unwrap_or_default() {
        findings.warning(deviation);
    }
    findings.ok_unless_error("PostgreSQL and Redis belong together.")
}
