//! Whether a remote node reaches its home nodes.

use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings};
use crate::config::Config;
use crate::node::remote::open_client;

pub(super) async fn check_home(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("home");
    let client = match open_client(config) {
        Ok(client) => client,
        Err(error) => {
            findings.error(format!("{error:#}. Use the files that `ipseity site add` wrote."));
            return findings.ok_unless_error("");
        }
    };
    let mut answers = Vec::new();
    for (url, check) in client.check_all().await {
        match check {
            Ok(elapsed) => answers.push(format!("{url} answers ({} ms to connect)", elapsed.as_millis())),
            Err(error) => findings.error(format!(
                "{url} does not answer: {error}. Check its [home] listen, the firewall, and whether `ipseity site list` \
                 shows this site."
            )),
        }
    }
    findings.ok_unless_error(answers.join(", "))
}
