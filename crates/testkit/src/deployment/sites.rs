//! Home nodes, and remote nodes of other sites.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use crate::command::CommandOutput;
use crate::deployment::node::Env;
use crate::deployment::{Deployment, LEDGER_URL_ENV, STORE_URL_ENV};

/// Where remote nodes redirect account pages to.
pub const PORTAL_URL: &str = "https://portal.example";
/// Addresses where nothing listens: a remote node has no store.
const NO_STORE_URLS: [(&str, &str); 2] =
    [(STORE_URL_ENV, "postgres://127.0.0.1:1/none"), (LEDGER_URL_ENV, "redis://127.0.0.1:1")];

impl Deployment {
    /// Settings of a node that listens for remote nodes on this address.
    #[must_use]
    pub fn home_env(&self, listen: SocketAddr) -> Env {
        let certificate = &self.certificate;
        Env::from([
            ("IPSEITY__HOME__LISTEN".to_owned(), listen.to_string()),
            ("IPSEITY__HOME__CERTIFICATE_FILE".to_owned(), certificate.chain_file.display().to_string()),
            ("IPSEITY__HOME__PRIVATE_KEY_FILE".to_owned(), certificate.private_key_file.display().to_string()),
        ])
    }

    /// Adds a site with the command that an operator uses, as the owner of the database. It writes the files of the site
    /// to `dir`.
    pub async fn add_site(&self, name: &str, dir: &Path, owner_url: &str) -> Result<()> {
        let (dir, ca_file) = (dir.display().to_string(), self.certificate.ca_file.display().to_string());
        let settings = [("IPSEITY__HOME__CA_FILE", &*ca_file), (STORE_URL_ENV, owner_url)];
        self.cli_with_env(&settings, &["site", "add", name, "--dir", &dir])
            .await
            .and_then(CommandOutput::ensure_success)?;
        Ok(())
    }
}

/// Settings of a remote node with the files in `dir`, for these addresses of home nodes.
#[must_use]
pub fn remote_env(dir: &Path, home: &[SocketAddr]) -> Env {
    let urls: Vec<_> = home.iter().map(|address| format!("https://{address}")).collect();
    let file = |name: &str| dir.join(name).display().to_string();
    let mut env = Env::from([
        ("IPSEITY__HOME__URLS".to_owned(), urls.join(",")),
        ("IPSEITY__HOME__CERTIFICATE_FILE".to_owned(), file("site.pem")),
        ("IPSEITY__HOME__PRIVATE_KEY_FILE".to_owned(), file("site.key")),
        ("IPSEITY__HOME__CA_FILE".to_owned(), file("home-ca.pem")),
        ("IPSEITY__HOME__PORTAL_URL".to_owned(), PORTAL_URL.to_owned()),
    ]);
    env.extend(NO_STORE_URLS.map(|(name, value)| (name.to_owned(), value.to_owned())));
    env
}
