//! Real nginx and haproxy processes in front of a node, with a test's configuration.

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

/// Kind of proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReverseProxyKind {
    /// nginx; the configuration goes into `http { … }`.
    Nginx,
    /// haproxy; the configuration follows `defaults`.
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
    /// Starts a proxy with a configuration for this many free ports, and waits until the first accepts connections.
    pub async fn start(kind: ReverseProxyKind, ports: usize, configure: impl FnOnce(&[u16]) -> String) -> Result<Self> {
        let dir = TestDir::create()?;
        let ports = (0..ports).map(|_| ReservedPort::reserve_free()).collect::<Result<Vec<_>>>()?;
        let numbers: Vec<_> = ports.iter().map(ReservedPort::number).collect();
        let file = dir.path().join("proxy.conf");
        fs::write(&file, full_config(kind, dir.path(), &configure(&numbers)))?;
        let log = dir.path().join("proxy.log");
        let process = ChildProcess::spawn(proxy_command(kind, &file, dir.path()), &log)?;
        let mut proxy = Self { process, ports, dir };
        let first = proxy.ports.first().context("a proxy needs a port")?.address();
        let ready = eventually("the proxy accepts connections", READY_TIMEOUT, async || {
            !proxy.process.is_running() || TcpStream::connect(first).await.is_ok()
        });
        ready.await.with_context(|| proxy.log())?;
        ensure!(proxy.process.is_running(), "the proxy exited:\n{}", proxy.log());
        Ok(proxy)
    }

    /// Addresses of its ports, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(ReservedPort::address).collect()
    }

    /// Logs of the proxy: errors, and nginx's access log unless the configuration changes it.
    #[must_use]
    pub fn log(&self) -> String {
        let read_log = |name| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        ["proxy.log", "access.log"].map(read_log).concat()
    }
}

/// Completes a test's configuration so that the proxy needs no privileges and leaves no files.
fn full_config(kind: ReverseProxyKind, dir: &Path, configuration: &str) -> String {
    let dir = dir.display();
    match kind {
        ReverseProxyKind::Nginx => format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid {dir}/pid;\nerror_log stderr;\nevents {{ worker_connections 512; }}\nhttp {{\n\
             access_log {dir}/access.log;\nclient_body_temp_path {dir}/body;\nproxy_temp_path {dir}/proxy;\nfastcgi_temp_path {dir}/fastcgi;\n\
             uwsgi_temp_path {dir}/uwsgi;\nscgi_temp_path {dir}/scgi;\n{configuration}\n}}\n"
        ),
        ReverseProxyKind::Haproxy => format!(
            "global\n    maxconn 500\ndefaults\n    timeout connect 10s\n    timeout client 30s\n    timeout server 30s\n\n{configuration}\n"
        ),
    }
}

fn proxy_command(kind: ReverseProxyKind, file: &Path, dir: &Path) -> Command {
    let mut command = Command::new(match kind {
        ReverseProxyKind::Nginx => "/usr/sbin/nginx",
        ReverseProxyKind::Haproxy => "/usr/sbin/haproxy",
    });
    match kind {
        ReverseProxyKind::Nginx => command.arg("-p").arg(dir).arg("-c").arg(file),
        ReverseProxyKind::Haproxy => command.arg("-db").arg("-f").arg(file),
    };
    command
}
