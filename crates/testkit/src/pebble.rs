//! Pebble, a small ACME authority made for tests, and the name server that leads every name to this machine. Debian: `pebble`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::net::TcpStream;

use crate::certificate::Certificate;
use crate::eventually;
use crate::folder::Folder;
use crate::ports::Port;
use crate::process::Process;

const READY_MAX: Duration = Duration::from_secs(30);

/// A running authority; ended when dropped.
#[derive(Debug)]
pub struct Pebble {
    directory: Port,
    _ports: [Port; 3],
    _authority: Process,
    _names: Process,
    certificate: Certificate,
    folder: Folder,
}

impl Pebble {
    /// Starts an authority that looks for proofs on these ports of this machine.
    pub async fn start(http_port: u16, tls_port: u16) -> Result<Self> {
        let folder = Folder::open()?;
        let certificate = Certificate::write(folder.path())?;
        let directory = Port::open()?;
        let ports = [Port::open()?, Port::open()?, Port::open()?];
        let [management, dns, dns_management] = ports.each_ref().map(|port| port.address().to_string());
        let config = json!({ "pebble": {
            "listenAddress": directory.address().to_string(),
            "managementListenAddress": management,
            "certificate": certificate.chain,
            "privateKey": certificate.private_key,
            "httpPort": http_port,
            "tlsPort": tls_port,
        }});
        let file = folder.path().join("pebble.json");
        fs::write(&file, config.to_string())?;
        let mut names = Command::new("pebble-challtestsrv");
        names.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-dns01", &dns, "-management", &dns_management]);
        names.args(["-http01", "", "-https01", "", "-tlsalpn01", ""]);
        let log = folder.path().join("pebble.log");
        let names = Process::spawn(names, &log).context("pebble-challtestsrv is in Debian's package pebble")?;
        let mut authority = Command::new("pebble");
        authority.arg("-config").arg(&file).args(["-dnsserver", &dns]).env("PEBBLE_VA_NOSLEEP", "1");
        // A share of good nonces is refused on purpose otherwise; a client has to cope, but not in every test.
        authority.env("PEBBLE_WFE_NONCEREJECT", "5");
        let authority = Process::spawn(authority, &log)?;
        let address = directory.address();
        eventually("pebble listens", READY_MAX, async || TcpStream::connect(address).await.is_ok()).await?;
        Ok(Self { directory, _ports: ports, _authority: authority, _names: names, certificate, folder })
    }

    /// The address of its directory.
    #[must_use]
    pub fn directory_url(&self) -> String {
        format!("https://localhost:{}/dir", self.directory.number())
    }

    /// The authority (PEM) of its own interface, which is not the one that it issues with.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificate.authority.clone()
    }

    /// What it has said.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("pebble.log"))?)
    }
}
