//! A Redis server that tests kill, freeze, restore from a snapshot and move in time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value, cmd};
use tokio::process::Command;

use crate::certificate::TestCertificate;
use crate::clock::TestClock;
use crate::command::run_command;
use crate::eventually;
use crate::ports::ReservedPort;
use crate::process::ChildProcess;
use crate::test_dir::TestDir;

const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The client's default of half a second is too short for a snapshot.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const START_ATTEMPTS: usize = 3;
/// Path of another server with Redis' protocol and options, such as `valkey-server`.
const BINARY_ENV: &str = "IPSEITY_REDIS_BIN";

/// Options of a server.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    /// Keeps an append-only file, so that a killed server keeps all data. Otherwise it restarts with the last snapshot.
    pub appendonly: bool,
    /// Wall clock of the server; the real one if absent.
    pub clock: Option<TestClock>,
    /// Enables cluster mode, for [`crate::RedisCluster`].
    pub cluster: bool,
    /// Port that a cluster redirects clients to, such as the port of a proxy; the server's if absent.
    pub announced_port: Option<u16>,
    /// Also listens for TLS, with this certificate, and asks clients for one of the same authority.
    pub tls: Option<TestCertificate>,
}

/// A running server on 127.0.0.1 that saves snapshots only on request.
#[derive(Debug)]
pub struct Redis {
    process: Option<ChildProcess>,
    port: ReservedPort,
    /// Port of the cluster bus.
    bus_port: ReservedPort,
    tls_port: ReservedPort,
    options: RedisOptions,
    dir: TestDir,
}

impl Redis {
    /// Starts an empty server and waits until it responds.
    pub async fn start(options: RedisOptions) -> Result<Self> {
        let mut redis = Self {
            process: None,
            port: ReservedPort::reserve_free()?,
            bus_port: ReservedPort::reserve_free()?,
            tls_port: ReservedPort::reserve_free()?,
            options,
            dir: TestDir::create()?,
        };
        fs::create_dir(redis.data_dir())?;
        for _ in 1..START_ATTEMPTS {
            if redis.launch().await.is_ok() {
                return Ok(redis);
            }
            // Another process may have taken the port in between.
            (redis.port, redis.bus_port) = (ReservedPort::reserve_free()?, ReservedPort::reserve_free()?);
        }
        redis.launch().await?;
        Ok(redis)
    }

    /// URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.port.address())
    }

    /// Port for TLS.
    #[must_use]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.number()
    }

    /// Listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Process ID while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(ChildProcess::pid)
    }

    /// Ports for clients and for the cluster bus.
    pub(crate) fn ports(&self) -> (u16, u16) {
        (self.port.number(), self.bus_port.number())
    }

    /// Announces another port to clients of a cluster, also after a restart.
    pub async fn announce_port(&mut self, port: u16) -> Result<()> {
        self.options.announced_port = Some(port);
        self.run_command(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]).await
    }

    /// Opens a connection.
    pub async fn connect(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(RESPONSE_TIMEOUT));
        Ok(Client::open(self.url())?.get_multiplexed_async_connection_with_config(&config).await?)
    }

    /// Directory of data, snapshots and logs.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Log of the server since its first start.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log_file())?)
    }

    /// Records every command that the server receives until it is killed in [`Self::monitor_file`].
    pub fn monitor(&self) -> Result<()> {
        let mut file = File::options().create(true).append(true).open(self.monitor_file())?;
        let mut stream = TcpStream::connect(self.address())?;
        stream.write_all(b"MONITOR\r\n")?;
        stream.read_exact(&mut [0; b"+OK\r\n".len()])?;
        // The thread ends with the server.
        thread::spawn(move || io::copy(&mut stream, &mut file));
        Ok(())
    }

    /// File with the recorded commands.
    #[must_use]
    pub fn monitor_file(&self) -> PathBuf {
        self.dir.path().join("monitor.log")
    }

    /// Kills the server with SIGKILL.
    pub fn kill9(&mut self) {
        self.process = None;
    }

    /// Whether it was started and not killed.
    #[must_use]
    pub const fn is_started(&self) -> bool {
        self.process.is_some()
    }

    /// Restarts the server on the same port with the files in its directory.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill9();
        self.launch().await
    }

    /// Freezes the server. Connections stay open but get no response.
    pub fn freeze(&mut self) {
        self.process.iter_mut().for_each(ChildProcess::freeze);
    }

    /// Resumes a frozen server.
    pub fn thaw(&mut self) {
        self.process.iter_mut().for_each(ChildProcess::thaw);
    }

    /// Sends a command.
    pub async fn run_command(&self, arguments: &[impl AsRef<[u8]>]) -> Result<()> {
        let mut command = redis::Cmd::new();
        for argument in arguments {
            command.arg(argument.as_ref());
        }
        Ok(command.exec_async(&mut self.connect().await?).await?)
    }

    /// Makes this server a replica of another and waits until it is in sync.
    pub async fn replicate_from(&self, primary: &Self) -> Result<()> {
        self.run_command(&["REPLICAOF", "127.0.0.1", &primary.port.number().to_string()]).await?;
        eventually("the replica is in sync", START_TIMEOUT, async || {
            self.info("replication").await.is_ok_and(|info| info.contains("master_link_status:up"))
        })
        .await
    }

    /// Promotes a replica to primary.
    pub async fn promote(&self) -> Result<()> {
        self.run_command(&["REPLICAOF", "NO", "ONE"]).await
    }

    /// A section of INFO.
    pub async fn info(&self, section: &str) -> Result<String> {
        Ok(cmd("INFO").arg(section).query_async(&mut self.connect().await?).await?)
    }

    /// Deletes all keys but keeps scripts.
    pub async fn flushall(&self) -> Result<()> {
        Ok(cmd("FLUSHALL").exec_async(&mut self.connect().await?).await?)
    }

    /// Saves a snapshot and copies all files for [`Self::restore_snapshot`].
    pub async fn save_snapshot(&self) -> Result<()> {
        cmd("SAVE").exec_async(&mut self.connect().await?).await?;
        copy_dir(self.data_dir(), self.snapshot_dir()).await
    }

    /// Kills the server, restores the files of the last snapshot and starts it.
    pub async fn restore_snapshot(&mut self) -> Result<()> {
        self.kill9();
        copy_dir(self.snapshot_dir(), self.data_dir()).await?;
        self.launch().await
    }

    /// Number of calls since the start by lowercase command name.
    pub async fn command_calls(&self) -> Result<BTreeMap<String, u64>> {
        let info = self.info("commandstats").await?;
        let calls = info.lines().filter_map(|line| {
            let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), numbers.split(',').next()?.parse().ok()?))
        });
        Ok(calls.collect())
    }

    /// Commands of the slow log, one word per line.
    pub async fn slow_log(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let slow: Value = cmd("SLOWLOG").arg("GET").arg(-1).query_async(&mut self.connect().await?).await?;
        append_flat(&slow, &mut bytes);
        Ok(bytes)
    }

    /// All keys, values and slow log commands, one item per line and uncompressed.
    pub async fn dump_all(&self) -> Result<Vec<u8>> {
        let mut connection = self.connect().await?;
        let mut bytes = Vec::new();
        let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query_async(&mut connection).await?;
        for key in keys {
            let kind: String = cmd("TYPE").arg(&key).query_async(&mut connection).await?;
            let (read, range): (_, &[&str]) = match kind.as_str() {
                "string" => ("GET", &[]),
                "hash" => ("HGETALL", &[]),
                "set" => ("SMEMBERS", &[]),
                "list" => ("LRANGE", &["0", "-1"]),
                "zset" => ("ZRANGE", &["0", "-1", "WITHSCORES"]),
                "stream" => ("XRANGE", &["-", "+"]),
                // Expired since KEYS listed it.
                "none" => continue,
                other => bail!("unknown key type {other}"),
            };
            let value: Value = cmd(read).arg(&key).arg(range).query_async(&mut connection).await?;
            append_flat(&Value::BulkString(key), &mut bytes);
            append_flat(&value, &mut bytes);
        }
        bytes.extend(self.slow_log().await?);
        Ok(bytes)
    }

    async fn launch(&mut self) -> Result<()> {
        let mut command = StdCommand::new(server_binary());
        let appendonly = if self.options.appendonly { "yes" } else { "no" };
        command.arg("--port").arg(self.port.number().to_string()).arg("--dir").arg(self.data_dir());
        // Uncompressed files can be searched.
        command.args(["--bind", "127.0.0.1", "--save", "", "--rdbcompression", "no", "--appendonly", appendonly]);
        // Without fsync no write to the file is postponed, so that a killed server keeps all data.
        command.args(["--appendfsync", "no"]);
        // Replicas sync immediately instead of waiting for more replicas.
        command.args(["--repl-diskless-sync-delay", "0"]);
        if self.options.cluster {
            command.args(["--cluster-enabled", "yes", "--cluster-port", &self.bus_port.number().to_string()]);
            command.args(["--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"]);
            if let Some(port) = self.options.announced_port {
                command.args(["--cluster-announce-port", &port.to_string()]);
            }
        }
        if let Some(tls) = &self.options.tls {
            command.args(["--tls-port", &self.tls_port.number().to_string()]);
            command.arg("--tls-cert-file").arg(&tls.chain_file).arg("--tls-key-file").arg(&tls.private_key_file);
            command.arg("--tls-ca-cert-file").arg(&tls.ca_file);
        }
        command.envs(self.options.clock.iter().flat_map(TestClock::env));
        let mut process = ChildProcess::spawn(command, &self.log_file())?;
        let waited =
            eventually("Redis responds", START_TIMEOUT, async || !process.is_running() || self.responds().await).await;
        if waited.is_err() || !process.is_running() {
            bail!("Redis did not start:\n{}", self.log()?);
        }
        self.process = Some(process);
        Ok(())
    }

    /// The commands that the server denied its users.
    pub async fn denied_commands(&self) -> Result<Vec<Value>> {
        Ok(cmd("ACL").arg("LOG").query_async(&mut self.connect().await?).await?)
    }

    /// Whether it responds, which it does not while it loads its files.
    async fn responds(&self) -> bool {
        match self.connect().await {
            Ok(mut connection) => cmd("PING").exec_async(&mut connection).await.is_ok(),
            Err(_) => false,
        }
    }

    fn snapshot_dir(&self) -> PathBuf {
        self.dir.path().join("aside")
    }

    fn log_file(&self) -> PathBuf {
        self.dir.path().join("redis.log")
    }
}

/// Program of the servers and of Sentinel.
pub(crate) fn server_binary() -> OsString {
    std::env::var_os(BINARY_ENV).unwrap_or_else(|| "redis-server".into())
}

async fn copy_dir(from: PathBuf, to: PathBuf) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(&to)?;
    }
    run_command(Command::new("cp").arg("-a").arg(from).arg(to))
        .await?
        .ensure_success()
        .context("failed to copy the snapshot")?;
    Ok(())
}

fn append_flat(value: &Value, bytes: &mut Vec<u8>) {
    if let Value::Array(items) = value {
        items.iter().for_each(|item| append_flat(item, bytes));
    } else if let Value::BulkString(text) = value {
        bytes.extend_from_slice(text);
        bytes.push(b'\n');
    } else {
        bytes.extend_from_slice(format!("{value:?}\n").as_bytes());
    }
}
