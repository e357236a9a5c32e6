//! Real nginx and haproxy processes in front of a node, with the configuration that a test gives them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;

use crate::eventually;
use crate::ports::ReservedPort;
use crate::process::ChildProcess;
use crate::test_dir::TestDir;

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Which proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReverseProxyKind {
    /// nginx; the configuration stands within `http { … }`.
    Nginx,
    /// haproxy; the configuration stands behind `defaults`.
    Haproxy,
}

/// A running proxy; killed when dropped.
#[derive(Debug)]
pub struct ReverseProxy {
    process: ChildProcess,
    ports: Vec<ReservedPort>,
    dir: TestDir,
}

impl ReverseProxy {
    /// Starts a proxy with a configuration made for so many free ports, and waits until the first of them takes connections.
    pub async fn start(kind: ReverseProxyKind, ports: usize, configure: impl FnOnce(&[u16]) -> String) -> Result<Self> {
        let folder = TestDir::create()?;
        let ports = (0..ports).map(|_| ReservedPort::reserve_free()).collect::<Result<Vec<_>>>()?;
        let numbers: Vec<_> = ports.iter().map(ReservedPort::number).collect();
        let file = folder.path().join("proxy.conf");
        fs::write(&file, full_config(kind, folder.path(), &configure(&numbers)))?;
        let log = folder.path().join("proxy.log");
        let process = ChildProcess::spawn(proxy_command(kind, &file, folder.path()), &log)?;
        let mut proxy = Self { process, ports, dir: folder };
        let first = proxy.ports.first().context("a proxy needs a port")?.address();
        let ready = eventually("the proxy takes connections", READY_TIMEOUT, async || {
            !proxy.process.is_running() || TcpStream::connect(first).await.is_ok()
        });
        ready.await.with_context(|| proxy.log())?;
        ensure!(proxy.process.is_running(), "the proxy ended; it says:\n{}", proxy.log());
        Ok(proxy)
    }

    /// Its ports on 127.0.0.1, in the order in which the configuration was given them.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(ReservedPort::address).collect()
    }

    /// Everything that it has said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("proxy.log")).unwrap_or_default()
    }
}

/// What a test's configuration needs around it to run without rights and without traces.
fn full_config(kind: ReverseProxyKind, folder: &Path, configuration: &str) -> String {
    let folder = folder.display();
    match kind {
        ReverseProxyKind::Nginx => format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid {folder}/pid;\nerror_log stderr;\nevents {{ worker_connections 512; }}\nhttp {{\n\
             access_log off;\nclient_body_temp_path {folder}/body;\nproxy_temp_path {folder}/proxy;\nfastcgi_temp_path {folder}/fastcgi;\n\
             uwsgi_temp_path {folder}/uwsgi;\nscgi_temp_path {folder}/scgi;\n{configuration}\n}}\n"
        ),
        ReverseProxyKind::Haproxy => format!(
            "global\n    maxconn 500\ndefaults\n    timeout connect 10s\n    timeout client 30s\n    timeout server 30s\n\n{configuration}\n"
        ),
    }
}

fn proxy_command(kind: ReverseProxyKind, file: &Path, folder: &Path) -> Command {
    let mut command = Command::new(match kind {
        ReverseProxyKind::Nginx => "/usr/sbin/nginx",
        ReverseProxyKind::Haproxy => "/usr/sbin/haproxy",
    });
    match kind {
        ReverseProxyKind::Nginx => command.arg("-p").arg(folder).arg("-c").arg(file),
        ReverseProxyKind::Haproxy => command.arg("-db").arg("-f").arg(file),
    };
    command
}
