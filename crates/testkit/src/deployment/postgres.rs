//! A PostgreSQL cluster of its own: made, killed, frozen, started again and removed.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

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

/// How a cluster is made.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Waits for the disk at each commit. A killed process loses nothing without it; only a power cut would.
    pub fsync: bool,
    /// The server's wall clock; the real one if absent.
    pub clock: Option<TestClock>,
}

/// A running cluster; every user may enter without a password, on 127.0.0.1 alone.
#[derive(Debug)]
pub struct Postgres {
    process: Option<ChildProcess>,
    port: ReservedPort,
    bin_dir: PathBuf,
    options: PostgresOptions,
    dir: TestDir,
}

impl Postgres {
    /// Makes a cluster and waits until it takes connections.
    pub async fn start(options: PostgresOptions) -> Result<Self> {
        let folder = TestDir::create()?;
        let mut postgres = Self {
            process: None,
            port: ReservedPort::reserve_free()?,
            bin_dir: newest_bin_dir()?,
            options,
            dir: folder,
        };
        postgres.initdb().await?;
        for _ in 1..START_ATTEMPTS {
            if postgres.launch().await.is_ok() {
                return Ok(postgres);
            }
            // A stranger may have taken the port in between.
            postgres.process = None;
            postgres.port = ReservedPort::reserve_free()?;
        }
        postgres.launch().await?;
        Ok(postgres)
    }

    /// The address of a database, as clients take it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.port.address())
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The id of its first process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(ChildProcess::pid)
    }

    /// Makes an empty database and says its address.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        self.psql("postgres", &format!("create database \"{name}\"")).await?;
        Ok(self.url(name))
    }

    /// Runs SQL; rows come back as lines, columns separated by `|`.
    pub async fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let arguments = ["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "-v", "ON_ERROR_STOP=1", "-c", sql];
        let output =
            run_command(self.client_command("psql").args(arguments).arg(self.url(database))).await?.ensure_success()?;
        Ok(output.text().trim_end().to_owned())
    }

    /// A whole database as SQL text, for searches.
    pub async fn dump(&self, database: &str) -> Result<Vec<u8>> {
        let output = run_command(self.client_command("pg_dump").arg(self.url(database))).await?.ensure_success()?;
        Ok(output.stdout)
    }

    /// Dumps a database to a file, as the runbook says.
    pub async fn back_up(&self, database: &str, file: &Path) -> Result<()> {
        let mut dump = self.client_command("pg_dump");
        dump.arg("--format=custom").arg("--file").arg(file).arg(self.url(database));
        run_command(&mut dump).await?.ensure_success().context("no dump was made")?;
        Ok(())
    }

    /// Makes a database of a dump, as the runbook says.
    pub async fn restore(&self, database: &str, file: &Path) -> Result<()> {
        let url = self.create_database(database).await?;
        let mut restore = self.client_command("pg_restore");
        restore.arg("--exit-on-error").arg("--dbname").arg(url).arg(file);
        run_command(&mut restore).await?.ensure_success().context("the dump was not restored")?;
        Ok(())
    }

    /// The folder of all that belongs to it: the cluster, its socket, its log.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The folder with every file of the cluster, write-ahead log included.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What the server has logged since the cluster was made.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log_file())?)
    }

    /// Kills the server and all its backends with SIGKILL.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Stops the server in good order, cutting off its clients.
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.signal(libc::SIGINT);
            process.wait_for_exit(STOP_TIMEOUT).await?;
        }
        Ok(())
    }

    /// Starts the server again, on the same port with the same data; stops it before if it runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.stop().await?;
        self.launch().await
    }

    /// Stops the server and its backends where they stand; connections stay open and unanswered.
    pub fn freeze(&mut self) {
        self.process.iter_mut().for_each(ChildProcess::freeze);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&mut self) {
        self.process.iter_mut().for_each(ChildProcess::thaw);
    }

    async fn initdb(&self) -> Result<()> {
        for folder in [self.data_dir(), self.socket_dir()] {
            fs::create_dir(&folder)?;
            if is_root()? {
                run_command(Command::new("chown").arg("postgres:").arg(folder)).await?.ensure_success()?;
            }
        }
        let mut initdb = Command::from(self.server_command("initdb")?);
        initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "-D"]).arg(self.data_dir());
        run_command(&mut initdb).await?.ensure_success().context("initdb failed")?;
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
        command.envs(self.options.clock.iter().flat_map(TestClock::env));
        let mut process = ChildProcess::spawn(command, &self.log_file())?;
        let (port, socket) = (self.port.number().to_string(), self.socket_dir());
        let mut is_ready = self.client_command("pg_isready");
        is_ready.arg("--quiet").arg("-p").arg(port).arg("-h").arg(socket);
        let waited = eventually("PostgreSQL takes connections", START_TIMEOUT, async || {
            !process.is_running() || run_command(&mut is_ready).await.is_ok_and(|output| output.is_success())
        })
        .await;
        if waited.is_err() || !process.is_running() {
            bail!("PostgreSQL did not start; it says:\n{}", self.log()?);
        }
        self.process = Some(process);
        Ok(())
    }

    fn client_command(&self, name: &str) -> Command {
        Command::new(self.bin_dir.join(name))
    }

    /// A program of the server, as a user that PostgreSQL accepts: it refuses to run as root.
    fn server_command(&self, name: &str) -> Result<StdCommand> {
        let program = self.bin_dir.join(name);
        let mut command = if is_root()? {
            // setpriv becomes the program, so that the process we know is the server itself. A change of user clears the death signal.
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
        // SIGQUIT: at once, but the server still gives back its System V shared memory.
        self.process.iter_mut().for_each(|process| process.stop_or_kill(libc::SIGQUIT, STOP_TIMEOUT));
    }
}

fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

fn newest_bin_dir() -> Result<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    fs::read_dir(INSTALL_DIR)
        .with_context(|| format!("PostgreSQL is looked for under {INSTALL_DIR}"))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(|path| version(path))
        .map(|path| path.join("bin"))
        .with_context(|| format!("no PostgreSQL server under {INSTALL_DIR}"))
}
