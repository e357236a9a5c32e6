//! Checks the geo databases.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ipseity_geo::{Atlas, AtlasSources, GeoError};

use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings, to_sentence};
use crate::config::{Config, GeoSourceConfig};
use crate::geo::update;

/// All providers publish at least monthly.
const AGE_DAYS_MAX: u64 = 45;

pub(super) fn check_geo_databases(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("geo data");
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut summary = Vec::new();
    for file in &config.geo.files {
        let (path, source) = (file.display(), config.geo.source_of(file));
        match (database_age_days(file, now_s), source) {
            (Err(_), Some(source)) if !file.exists() => report_missing(&mut findings, source),
            (Err(error), source) => {
                let error = to_sentence(&error.to_string());
                let fix =
                    if source.is_some() { "Download it again with `ipseity geo update`" } else { "Replace the file" };
                findings.error(format!("{error} {fix}, or correct [geo] files."));
            }
            (Ok((database, days)), Some(_)) if days > AGE_DAYS_MAX => findings.warning(format!(
                "{database} in {path} is {days} days old. Run `ipseity geo update`, or set [geo] update_interval_h."
            )),
            (Ok((database, days)), None) if days > AGE_DAYS_MAX => findings.warning(format!(
                "{database} in {path} is {days} days old. Replace the file, or name a source for it in [[geo.sources]]."
            )),
            (Ok((database, days)), _) => summary.push(format!("{database} is {days} days old")),
        }
    }
    let (hosting_lists, proxy_lists) = (config.geo.hosting_asn_lists.clone(), config.geo.proxy_asn_lists.clone());
    if let Err(error) = Atlas::open(&AtlasSources { hosting_lists, proxy_lists, ..AtlasSources::default() }) {
        findings.error(format!(
            "{} Correct the list, or its path in [geo] hosting_asn_lists or proxy_asn_lists.",
            to_sentence(&error.to_string())
        ));
    }
    if config.geo.files.is_empty() {
        findings.warning(
            "There is no geo database, so locations and networks in responses are null. Add databases to [geo] files.",
        );
    }
    if summary.is_empty() {
        return findings.into_findings();
    }
    findings.ok_unless_error(to_sentence(&summary.join(", ")))
}

/// Reports a file that is still to be downloaded. Its facts are null until then.
fn report_missing(findings: &mut DoctorFindings, source: &GeoSourceConfig) {
    let (path, host) = (source.file.display(), source.host());
    match update::last_error(source) {
        Some(error) => findings.error(format!(
            "No database {path} yet, source {host}: {error}. Correct [[geo.sources]], and run `ipseity geo update`."
        )),
        None => findings.warning(format!(
            "No database {path} yet, source {host}. A running node downloads it, or run `ipseity geo update`."
        )),
    }
}

/// The type of a database and its age in days.
fn database_age_days(file: &Path, now_s: u64) -> Result<(String, u64), GeoError> {
    let atlas = Atlas::open(&AtlasSources { files: vec![file.into()], ..AtlasSources::default() })?;
    let edition = atlas.editions().first();
    Ok(edition.map_or_else(Default::default, |edition| (edition.database_type.clone(), edition.age_days(now_s))))
}
