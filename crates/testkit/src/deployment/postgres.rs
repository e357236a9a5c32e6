//! A PostgreSQL cluster that tests start, kill, freeze and restart.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::certificate::TestCertificate;
use crate::clock::TestClock;
use crate::command::run_command;
use crate::eventually;
use crate::ports::ReservedPort;
use crate::process::ChildProcess;
use crate::test_dir::TestDir;

const INSTALL_DIR: &str = "/usr/lib/postgresql";
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
const START_ATTEMPTS: usize = 3;
/// A member of `ipseity_node`, as the installation guide creates it.
const NODE_ROLE: &str = "ipseity";

/// A role with the rights of a node that has to present a certificate, in a cluster with TLS.
pub const CERTIFIED_ROLE: &str = "certified";

/// Who may connect to a cluster with TLS.
const TLS_ACCESS_RULES: &str = "local all all trust
host all postgres 127.0.0.1/32 trust
host replication postgres 127.0.0.1/32 trust
hostssl all certified 127.0.0.1/32 trust clientcert=verify-ca
hostssl all all 127.0.0.1/32 trust
";

/// Options of a cluster.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Enables fsync. Without it, a killed process still loses nothing; only a power failure would.
    pub fsync: bool,
    /// Wall clock of the server; the real one if absent.
    pub clock: Option<TestClock>,
    /// Accepts TLS with this certificate. The node's role needs TLS, and [`CERTIFIED_ROLE`] also a client certificate of the
    /// same authority.
    pub tls: Option<TestCertificate>,
}

/// A running cluster on 127.0.0.1. It accepts every user without a password.
#[derive(Debug)]
pub struct Postgres {
    process: Option<ChildProcess>,
    port: ReservedPort,
    bin_dir: PathBuf,
    options: PostgresOptions,
    dir: TestDir,
}

impl Postgres {
    /// Creates a cluster and waits until it accepts connections.
    pub async fn start(options: PostgresOptions) -> Result<Self> {
        let dir = TestDir::create()?;
        let mut postgres =
            Self { process: None, port: ReservedPort::reserve_free()?, bin_dir: newest_bin_dir()?, options, dir };
        postgres.initdb().await?;
        for attempt in 1.. {
            match postgres.launch().await {
                Ok(()) => break,
                Err(error) if attempt == START_ATTEMPTS => return Err(error),
                Err(_) => {
                    // Another process may have taken the port in between.
                    postgres.process = None;
                    postgres.port = ReservedPort::reserve_free()?;
                }
            }
        }
        let roles = format!(
            "create role ipseity_node; create role {NODE_ROLE} login in role ipseity_node; \
             create role {CERTIFIED_ROLE} login in role ipseity_node"
        );
        postgres.psql("postgres", &roles).await?;
        Ok(postgres)
    }

    /// Starts a streaming replica of this cluster. `link` is the address of this cluster, or of a proxy in front of it.
    pub async fn start_replica(&self, link: SocketAddr) -> Result<Self> {
        let dir = TestDir::create()?;
        let (port, bin_dir) = (ReservedPort::reserve_free()?, self.bin_dir.clone());
        let mut replica = Self { process: None, port, bin_dir, options: self.options.clone(), dir };
        replica.create_dirs().await?;
        let mut backup = Command::from(replica.server_command("pg_basebackup")?);
        backup.args(["--no-sync", "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--dbname"]);
        backup.arg(format!("postgres://postgres@{link}")).arg("-D").arg(replica.data_dir());
        run_command(&mut backup).await?.ensure_success().context("pg_basebackup failed")?;
        replica.launch().await?;
        let sql = "select count(*) from pg_stat_replication where state = 'streaming'";
        eventually("the replica streams", START_TIMEOUT, async || {
            self.psql("postgres", sql).await.is_ok_and(|count| count != "0")
        })
        .await?;
        Ok(replica)
    }

    /// Promotes a replica and waits until it accepts writes.
    pub async fn promote(&self) -> Result<()> {
        self.psql("postgres", "select pg_promote()").await?;
        Ok(())
    }

    /// URL of a database, as its owner.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.port.address())
    }

    /// URL of a database, with the rights of a node.
    #[must_use]
    pub fn node_url(&self, database: &str) -> String {
        format!("postgres://{NODE_ROLE}@{}/{database}", self.port.address())
    }

    /// Listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Process ID of the server while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(ChildProcess::pid)
    }

    /// Creates an empty database and returns its URL.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        self.psql("postgres", &format!("create database \"{name}\"")).await?;
        Ok(self.url(name))
    }

    /// Runs SQL and returns one line per row, with columns separated by `|`.
    pub async fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let arguments = ["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "-v", "ON_ERROR_STOP=1", "-c", sql];
        let output =
            run_command(self.client_command("psql").args(arguments).arg(self.url(database))).await?.ensure_success()?;
        Ok(output.text().trim_end().to_owned())
    }

    /// Dumps a database as SQL text, for searches.
    pub async fn dump(&self, database: &str) -> Result<Vec<u8>> {
        let output = run_command(self.client_command("pg_dump").arg(self.url(database))).await?.ensure_success()?;
        Ok(output.stdout)
    }

    /// Dumps a database to a file, as documented in the runbook.
    pub async fn back_up(&self, database: &str, file: &Path) -> Result<()> {
        let mut dump = self.client_command("pg_dump");
        dump.arg("--format=custom").arg("--file").arg(file).arg(self.url(database));
        run_command(&mut dump).await?.ensure_success().context("failed to dump the database")?;
        Ok(())
    }

    /// Creates a database from a dump, as documented in the runbook.
    pub async fn restore(&self, database: &str, file: &Path) -> Result<()> {
        let url = self.create_database(database).await?;
        let mut restore = self.client_command("pg_restore");
        restore.arg("--exit-on-error").arg("--dbname").arg(url).arg(file);
        run_command(&mut restore).await?.ensure_success().context("failed to restore the dump")?;
        Ok(())
    }

    /// Directory of the cluster, its socket and its log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Data directory, including the write-ahead log.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Log of the server since the cluster was created.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log_file())?)
    }

    /// Kills the server and its backends with SIGKILL.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Stops the server cleanly and disconnects its clients.
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.signal(libc::SIGINT);
            process.wait_for_exit(STOP_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Restarts the server on the same port with the same data.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.launch().await
    }

    /// Freezes the server and its backends. Connections stay open but get no response.
    pub fn freeze(&mut self) {
        self.process.iter_mut().for_each(ChildProcess::freeze);
    }

    /// Resumes a frozen server.
    pub fn thaw(&mut self) {
        self.process.iter_mut().for_each(ChildProcess::thaw);
    }

    async fn create_dirs(&self) -> Result<()> {
        // PostgreSQL rejects a data directory that others can read.
        for (dir, mode) in [(self.data_dir(), 0o700), (self.socket_dir(), 0o755)] {
            DirBuilder::new().mode(mode).create(&dir)?;
            if is_root()? {
                run_command(Command::new("chown").arg("postgres:").arg(dir)).await?.ensure_success()?;
            }
        }
        Ok(())
    }

    async fn initdb(&self) -> Result<()> {
        self.create_dirs().await?;
        let mut initdb = Command::from(self.server_command("initdb")?);
        initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]);
        // Like most production clusters. With the locale C, lower() and comparisons know only ASCII, which hides mistakes.
        initdb.args(["--encoding=UTF8", "--locale=C.UTF-8", "-D"]).arg(self.data_dir());
        run_command(&mut initdb).await?.ensure_success().context("initdb failed")?;
        if let Some(tls) = &self.options.tls {
            fs::write(self.data_dir().join("pg_hba.conf"), TLS_ACCESS_RULES)?;
            // PostgreSQL rejects a private key that others can read.
            let mut install = Command::new("install");
            install.args(["-m", "0600"]).args(is_root()?.then_some(["-o", "postgres"]).iter().flatten());
            install.arg("-t").arg(self.data_dir()).args([&tls.chain_file, &tls.private_key_file, &tls.ca_file]);
            run_command(&mut install).await?.ensure_success().context("failed to copy the certificate")?;
        }
        Ok(())
    }

    async fn launch(&mut self) -> Result<()> {
        let mut command = self.server_command("postgres")?;
        let fsync = if self.options.fsync { "fsync=on" } else { "fsync=off" };
        command
            .arg("-D")
            .arg(self.data_dir())
            .arg("-k")
            .arg(self.socket_dir())
            .arg("-p")
            .arg(self.port.number().to_string());
        for setting in ["listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=32MB", fsync] {
            command.arg("-c").arg(setting);
        }
        if let Some(tls) = &self.options.tls {
            command.args(["-c", "ssl=on"]);
            for (setting, file) in [
                ("ssl_cert_file", &tls.chain_file),
                ("ssl_key_file", &tls.private_key_file),
                ("ssl_ca_file", &tls.ca_file),
            ] {
                let name = file.file_name().context("a certificate file has no name")?;
                command.arg("-c").arg(format!("{setting}={}", name.display()));
            }
        }
        command.envs(self.options.clock.iter().flat_map(TestClock::env));
        let mut process = ChildProcess::spawn(command, &self.log_file())?;
        let (port, socket) = (self.port.number().to_string(), self.socket_dir());
        let mut is_ready = self.client_command("pg_isready");
        is_ready.arg("--quiet").arg("-p").arg(port).arg("-h").arg(socket);
        let waited = eventually("PostgreSQL accepts connections", START_TIMEOUT, async || {
            !process.is_running() || run_command(&mut is_ready).await.is_ok_and(|output| output.is_success())
        })
        .await;
        if waited.is_err() || !process.is_running() {
            bail!("PostgreSQL did not start:\n{}", self.log()?);
        }
        self.process = Some(process);
        Ok(())
    }

    fn client_command(&self, name: &str) -> Command {
        Command::new(self.bin_dir.join(name))
    }

    /// Runs a PostgreSQL program as a user that PostgreSQL accepts, because it rejects root.
    fn server_command(&self, name: &str) -> Result<StdCommand> {
        let program = self.bin_dir.join(name);
        let mut command = if is_root()? {
            // setpriv executes the program, so that the child is the server. A change of user clears the death signal.
            let mut command = StdCommand::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=KILL"]).arg(program);
            command
        } else {
            StdCommand::new(program)
        };
        command.current_dir(self.dir.path());
        Ok(command)
    }

    fn socket_dir(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("postgres.log")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT stops the server immediately, and it still releases its System V shared memory.
        self.process.iter_mut().for_each(|process| process.stop_or_kill(libc::SIGQUIT, STOP_TIMEOUT));
    }
}

fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

fn newest_bin_dir() -> Result<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    fs::read_dir(INSTALL_DIR)
        .with_context(|| format!("failed to list {INSTALL_DIR}"))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(|path| version(path))
        .map(|path| path.join("bin"))
        .with_context(|| format!("no PostgreSQL server under {INSTALL_DIR}"))
}
