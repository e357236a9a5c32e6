//! A PostgreSQL cluster of its own: made, killed, frozen, started again and removed.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::clock::Clock;
use crate::command::run;
use crate::eventually;
use crate::folder::Folder;
use crate::ports::Port;
use crate::process::Process;

const INSTALLED: &str = "/usr/lib/postgresql";
const START_MAX: Duration = Duration::from_secs(60);
const STOP_MAX: Duration = Duration::from_secs(20);
const STARTS_MAX: usize = 3;

/// How a cluster is made.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Waits for the disk at each commit. A killed process loses nothing without it; only a power cut would.
    pub fsync: bool,
    /// The server's wall clock; the real one if absent.
    pub clock: Option<Clock>,
}

/// A running cluster; every user may enter without a password, on 127.0.0.1 alone.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Process>,
    port: Port,
    programs: PathBuf,
    options: PostgresOptions,
    folder: Folder,
}

impl Postgres {
    /// Makes a cluster and waits until it takes connections.
    pub async fn start(options: PostgresOptions) -> Result<Self> {
        let folder = Folder::open()?;
        let mut postgres = Self { process: None, port: Port::open()?, programs: newest_programs()?, options, folder };
        postgres.initialise().await?;
        for _ in 1..STARTS_MAX {
            if postgres.launch().await.is_ok() {
                return Ok(postgres);
            }
            // A stranger may have taken the port in between.
            postgres.process = None;
            postgres.port = Port::open()?;
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
        self.process.as_ref().map(Process::pid)
    }

    /// Makes an empty database and says its address.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        self.psql("postgres", &format!("create database \"{name}\"")).await?;
        Ok(self.url(name))
    }

    /// Runs SQL; rows come back as lines, columns separated by `|`.
    pub async fn psql(&self, database: &str, sql: &str) -> Result<String> {
        let arguments = ["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "-v", "ON_ERROR_STOP=1", "-c", sql];
        let output = run(self.program("psql").args(arguments).arg(self.url(database))).await?.success()?;
        Ok(output.text().trim_end().to_owned())
    }

    /// A whole database as SQL text, for searches.
    pub async fn dump(&self, database: &str) -> Result<Vec<u8>> {
        let output = run(self.program("pg_dump").arg(self.url(database))).await?.success()?;
        Ok(output.stdout)
    }

    /// Dumps a database to a file, as the runbook says.
    pub async fn back_up(&self, database: &str, file: &Path) -> Result<()> {
        let mut dump = self.program("pg_dump");
        dump.arg("--format=custom").arg("--file").arg(file).arg(self.url(database));
        run(&mut dump).await?.success().context("no dump was made")?;
        Ok(())
    }

    /// Makes a database of a dump, as the runbook says.
    pub async fn restore(&self, database: &str, file: &Path) -> Result<()> {
        let url = self.create_database(database).await?;
        let mut restore = self.program("pg_restore");
        restore.arg("--exit-on-error").arg("--dbname").arg(url).arg(file);
        run(&mut restore).await?.success().context("the dump was not restored")?;
        Ok(())
    }

    /// The folder of all that belongs to it: the cluster, its socket, its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder with every file of the cluster, write-ahead log included.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
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
            process.ended(STOP_MAX).await?;
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
        self.process.iter_mut().for_each(Process::freeze);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&mut self) {
        self.process.iter_mut().for_each(Process::thaw);
    }

    async fn initialise(&self) -> Result<()> {
        for folder in [self.data(), self.socket()] {
            fs::create_dir(&folder)?;
            if is_root()? {
                run(Command::new("chown").arg("postgres:").arg(folder)).await?.success()?;
            }
        }
        let mut initdb = Command::from(self.server_program("initdb")?);
        initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]);
        initdb.args(["--encoding=UTF8", "--locale=C", "-D"]).arg(self.data());
        run(&mut initdb).await?.success().context("initdb failed")?;
        Ok(())
    }

    async fn launch(&mut self) -> Result<()> {
        let mut command = self.server_program("postgres")?;
        let fsync = if self.options.fsync { "fsync=on" } else { "fsync=off" };
        command.arg("-D").arg(self.data()).arg("-k").arg(self.socket()).arg("-p").arg(self.port.number().to_string());
        for setting in ["listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=32MB", fsync] {
            command.arg("-c").arg(setting);
        }
        command.envs(self.options.clock.iter().flat_map(Clock::env));
        let mut process = Process::spawn(command, &self.log_file())?;
        let (port, socket) = (self.port.number().to_string(), self.socket());
        let mut is_ready = self.program("pg_isready");
        is_ready.arg("--quiet").arg("-p").arg(port).arg("-h").arg(socket);
        let waited = eventually("PostgreSQL takes connections", START_MAX, async || {
            !process.is_running() || run(&mut is_ready).await.is_ok_and(|answer| answer.is_success())
        })
        .await;
        if waited.is_err() || !process.is_running() {
            bail!("PostgreSQL did not start; it says:\n{}", self.log()?);
        }
        self.process = Some(process);
        Ok(())
    }

    fn program(&self, name: &str) -> Command {
        Command::new(self.programs.join(name))
    }

    /// A program of the server, as a user that PostgreSQL accepts: it refuses to run as root.
    fn server_program(&self, name: &str) -> Result<StdCommand> {
        let program = self.programs.join(name);
        let mut command = if is_root()? {
            // setpriv becomes the program, so that the process we know is the server itself. A change of user clears the death signal.
            let mut command = StdCommand::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=KILL"]).arg(program);
            command
        } else {
            StdCommand::new(program)
        };
        command.current_dir(self.folder.path());
        Ok(command)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("postgres.log")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT: at once, but the server still gives back its System V shared memory.
        self.process.iter_mut().for_each(|process| process.end(libc::SIGQUIT, STOP_MAX));
    }
}

fn is_root() -> Result<bool> {
    Ok(fs::metadata("/proc/self")?.uid() == 0)
}

fn newest_programs() -> Result<PathBuf> {
    let version = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    fs::read_dir(INSTALLED)
        .with_context(|| format!("PostgreSQL is looked for under {INSTALLED}"))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("bin/initdb").exists())
        .max_by_key(|path| version(path))
        .map(|path| path.join("bin"))
        .with_context(|| format!("no PostgreSQL server under {INSTALLED}"))
}
