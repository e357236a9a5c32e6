//! Pebble, an ACME server for tests, and a DNS server that resolves every name to this machine. Debian package:
//! `pebble`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::net::TcpStream;

use crate::certificate::TestCertificate;
use crate::eventually;
use crate::ports::ReservedPort;
use crate::process::ChildProcess;
use crate::test_dir::TestDir;

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A running ACME server; killed when dropped.
#[derive(Debug)]
pub struct Pebble {
    directory_port: ReservedPort,
    _ports: [ReservedPort; 3],
    _acme_server: ChildProcess,
    _dns_server: ChildProcess,
    certificate: TestCertificate,
    dir: TestDir,
}

impl Pebble {
    /// Starts a server that validates challenges on these ports of this machine.
    pub async fn start(http_port: u16, tls_port: u16) -> Result<Self> {
        let dir = TestDir::create()?;
        let certificate = TestCertificate::generate_in(dir.path())?;
        let directory_port = ReservedPort::reserve_free()?;
        let ports = [ReservedPort::reserve_free()?, ReservedPort::reserve_free()?, ReservedPort::reserve_free()?];
        let [management, dns, dns_management] = ports.each_ref().map(|port| port.address().to_string());
        let config = json!({ "pebble": {
            "listenAddress": directory_port.address().to_string(),
            "managementListenAddress": management,
            "certificate": certificate.chain_file,
            "privateKey": certificate.private_key_file,
            "httpPort": http_port,
            "tlsPort": tls_port,
        }});
        let file = dir.path().join("pebble.json");
        fs::write(&file, config.to_string())?;
        let mut dns_server = Command::new("pebble-challtestsrv");
        dns_server.args([
            "-defaultIPv4",
            "127.0.0.1",
            "-defaultIPv6",
            "",
            "-dns01",
            &dns,
            "-management",
            &dns_management,
        ]);
        dns_server.args(["-http01", "", "-https01", "", "-tlsalpn01", ""]);
        let log = dir.path().join("pebble.log");
        let dns_server = ChildProcess::spawn(dns_server, &log)
            .context("failed to start pebble-challtestsrv; install Debian's package pebble")?;
        let mut acme_server = Command::new("pebble");
        acme_server.arg("-config").arg(&file).args(["-dnsserver", &dns]).env("PEBBLE_VA_NOSLEEP", "1");
        // By default Pebble rejects a larger share of valid nonces.
        acme_server.env("PEBBLE_WFE_NONCEREJECT", "5");
        let acme_server = ChildProcess::spawn(acme_server, &log)?;
        let address = directory_port.address();
        eventually("pebble listens", READY_TIMEOUT, async || TcpStream::connect(address).await.is_ok()).await?;
        Ok(Self { directory_port, _ports: ports, _acme_server: acme_server, _dns_server: dns_server, certificate, dir })
    }

    /// URL of the ACME directory.
    #[must_use]
    pub fn directory_url(&self) -> String {
        format!("https://localhost:{}/dir", self.directory_port.number())
    }

    /// Authority (PEM) of its HTTPS interface; not the one that signs issued certificates.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.certificate.ca_file.clone()
    }

    /// Log of the server.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.path().join("pebble.log"))?)
    }
}
