//! Servers that the service is compared with.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use testkit::certificate::Certificate;
use testkit::node::{find_program, find_tool};
use testkit::{Folder, Port, Process, Redis, eventually};
use tokio::net::TcpStream;

const READY_MAX: Duration = Duration::from_secs(30);

/// What is run.
pub(crate) struct Programs {
    pub(crate) service: PathBuf,
    pub(crate) subject: PathBuf,
}

impl Programs {
    /// Those that were built.
    pub(crate) fn find() -> Result<Self> {
        Ok(Self { service: find_program()?, subject: find_tool("subject")? })
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    process: Process,
    clear: Port,
    secure: Port,
    _folder: Folder,
}

impl Server {
    /// A bare server that answers with a body at once, over clear HTTP and TLS.
    pub(crate) async fn open_static(subject: &Path, body: &Path, certificate: &Certificate) -> Result<Self> {
        Self::open(|_, clear, secure| {
            let mut command = bare(subject, clear, body);
            command.arg("--tls").arg(secure.to_string()).arg(&certificate.chain).arg(&certificate.private_key);
            Ok(command)
        })
        .await
    }

    /// The same with one script call before, over clear HTTP alone.
    pub(crate) async fn open_floor(subject: &Path, body: &Path, redis: &Redis) -> Result<Self> {
        Self::open(|_, clear, _| {
            let mut command = bare(subject, clear, body);
            command.arg("--redis").arg(redis.url());
            Ok(command)
        })
        .await
    }

    /// nginx, which renders much the same answer from the same databases, City and ASN.
    pub(crate) async fn open_nginx(databases: &[PathBuf]) -> Result<Self> {
        Self::open(|folder, clear, _| {
            let [city, asn] = databases else { anyhow::bail!("nginx needs two databases") };
            let conf = include_str!("nginx.conf")
                .replace("FOLDER", &folder.display().to_string())
                .replace("PLACES", &city.display().to_string())
                .replace("NETWORKS", &asn.display().to_string())
                .replace("ADDRESS", &clear.to_string());
            let file = folder.join("nginx.conf");
            fs::write(&file, conf)?;
            let mut command = Command::new("/usr/sbin/nginx");
            command.arg("-p").arg(folder).arg("-c").arg(file);
            Ok(command)
        })
        .await
    }

    async fn open(command: impl FnOnce(&Path, SocketAddr, SocketAddr) -> Result<Command>) -> Result<Self> {
        let (folder, clear, secure) = (Folder::open()?, Port::open()?, Port::open()?);
        let command = command(folder.path(), clear.address(), secure.address())?;
        let log = folder.path().join("server.log");
        let mut process = Process::spawn(command, &log)?;
        let ready = eventually("the server takes connections", READY_MAX, async || {
            !process.is_running() || TcpStream::connect(clear.address()).await.is_ok()
        });
        ready.await?;
        anyhow::ensure!(process.is_running(), "the server ended; it says:\n{}", fs::read_to_string(log)?);
        Ok(Self { process, clear, secure, _folder: folder })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its listener for clear HTTP.
    pub(crate) fn http(&self) -> SocketAddr {
        self.clear.address()
    }

    /// Its listener for TLS and QUIC.
    pub(crate) fn https(&self) -> SocketAddr {
        self.secure.address()
    }
}

fn bare(subject: &Path, listen: SocketAddr, body: &Path) -> Command {
    let mut command = Command::new(subject);
    command.arg(listen.to_string()).arg(body);
    command
}
