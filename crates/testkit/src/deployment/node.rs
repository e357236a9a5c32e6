//! One process of the service (`ipseity serve`) on free ports.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::client::http1::TestClient;
use crate::deployment::socket_activation;
use crate::eventually;
use crate::fault_proxy::FaultProxy;
use crate::ports::ReservedPort;
use crate::process::ChildProcess;
use crate::test_dir::TestDir;

const READY_TIMEOUT: Duration = Duration::from_secs(60);
const TERMINATE_TIMEOUT: Duration = Duration::from_secs(60);
const START_ATTEMPTS: usize = 3;

/// An entry of the settings that is not one: the node need not be ready.
pub(crate) const LIVE_ENTRY: &str = "--live";
/// Setting with the path of the configuration file.
pub(crate) const CONFIG_ENTRY: &str = "--config";
/// Entry of the settings that is not one: the node serves the admin console.
pub const CONSOLE_ENTRY: &str = "--console";
pub(crate) const CONSOLE_LISTEN_ENV: &str = "IPSEITY__ADMIN__LISTEN";

/// How many failed attempts of a connection do not wait.
pub const FAILED_ATTEMPTS_ENV: &str = "IPSEITY__EDGE__FAILED_ATTEMPTS_PER_CONNECTION_MAX";

/// Settings by environment variable, such as `IPSEITY__STORE__URL`.
pub type Env = BTreeMap<String, String>;

/// Fault proxies of a node.
#[derive(Debug, Clone)]
pub struct NodeFaultProxies {
    /// Link to Redis.
    pub redis: FaultProxy,
    /// Link to PostgreSQL.
    pub postgres: FaultProxy,
}

/// A running node; killed when dropped.
#[derive(Debug)]
pub struct Node {
    process: ChildProcess,
    http: ReservedPort,
    https: ReservedPort,
    ops: ReservedPort,
    console: ReservedPort,
    env: Env,
    dir: TestDir,
    pub(crate) fault_proxies: Option<NodeFaultProxies>,
}

impl Node {
    /// Starts a node and waits until it is ready. `env` overrides the node's ports.
    pub(crate) async fn start(
        program: &Path,
        env: &Env,
        sockets: &[&TcpListener],
        fd_limit: Option<usize>,
    ) -> Result<Self> {
        for _ in 1..START_ATTEMPTS {
            match Self::try_start(program, env, sockets, fd_limit).await {
                // Another process may have taken a port in between.
                Err(error) if error.to_string().contains("in use") => {}
                result => return result,
            }
        }
        Self::try_start(program, env, sockets, fd_limit).await
    }

    async fn try_start(program: &Path, env: &Env, sockets: &[&TcpListener], fd_limit: Option<usize>) -> Result<Self> {
        let (dir, http, https, ops, console) = (
            TestDir::create()?,
            ReservedPort::reserve_free()?,
            ReservedPort::reserve_free()?,
            ReservedPort::reserve_free()?,
            ReservedPort::reserve_free()?,
        );
        let defaults = [
            ("IPSEITY__EDGE__HTTP", http.address().to_string()),
            ("IPSEITY__EDGE__HTTPS", https.address().to_string()),
            ("IPSEITY__OPS__LISTEN", ops.address().to_string()),
            // The portal's cookies need TLS, and its passkeys need a name.
            ("IPSEITY__PUBLIC__BASE_URL", format!("https://localhost:{}", https.number())),
        ];
        let mut merged: Env = defaults.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        // Most tests use the plain HTTP listener, and some send hundreds of wrong keys. A previous version of the program does not
        // know the settings.
        if find_service_binary().is_ok_and(|current| current == program) {
            merged.insert("IPSEITY__PUBLIC__ALLOW_PLAIN_HTTP".to_owned(), "true".to_owned());
            merged.insert(FAILED_ATTEMPTS_ENV.to_owned(), "1000000".to_owned());
            // Nodes on the same machine would need different ports.
            merged.insert(CONSOLE_LISTEN_ENV.to_owned(), String::new());
        }
        merged.extend(env.clone());
        if merged.remove(CONSOLE_ENTRY).is_some() {
            merged.insert(CONSOLE_LISTEN_ENV.to_owned(), console.address().to_string());
        }
        let mut command = match fd_limit {
            None => socket_activation::command_with_sockets(program, sockets)?,
            Some(fd_limit) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={fd_limit}:{fd_limit}")).arg(program);
                command
            }
        };
        if let Some(config) = merged.remove(CONFIG_ENTRY) {
            command.args(["--config", &config]);
        }
        let probe = if merged.remove(LIVE_ENTRY).is_some() { "/live" } else { "/ready" };
        command.arg("serve").current_dir(dir.path());
        set_env(&mut command, &merged);
        let process = ChildProcess::spawn(command, &dir.path().join("node.log"))?;
        let mut node = Self { process, http, https, ops, console, env: merged, dir, fault_proxies: None };
        let mut ops_client = TestClient::new(node.ops());
        let ready = eventually("the node is ready", READY_TIMEOUT, async || {
            !node.process.is_running() || ops_client.get(probe, &[]).await.is_ok_and(|reply| reply.status == 200)
        })
        .await;
        if ready.is_err() || !node.process.is_running() {
            bail!("the node did not become ready:\n{}", node.log()?);
        }
        Ok(node)
    }

    /// Address of the HTTP listener.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http.address()
    }

    /// Address of the TLS listener.
    #[must_use]
    pub fn https(&self) -> SocketAddr {
        self.https.address()
    }

    /// Address of the ops listener.
    #[must_use]
    pub fn ops(&self) -> SocketAddr {
        self.ops.address()
    }

    /// Address of the admin console, if the settings contain [`CONSOLE_ENTRY`].
    #[must_use]
    pub fn console(&self) -> SocketAddr {
        self.console.address()
    }

    /// URL at which operators open the admin console.
    #[must_use]
    pub fn console_url(&self) -> String {
        format!("http://localhost:{}", self.console.number())
    }

    /// Creates a client of the HTTP listener.
    #[must_use]
    pub fn client(&self) -> TestClient {
        TestClient::new(self.http())
    }

    /// Metrics of the node, from the ops listener.
    pub async fn metrics(&self) -> Result<String> {
        let reply = TestClient::new(self.ops()).get("/metrics", &[]).await?;
        ensure!(reply.status == 200, "/metrics returned {}", reply.status);
        Ok(reply.text())
    }

    /// Settings of this node.
    #[must_use]
    pub const fn env(&self) -> &Env {
        &self.env
    }

    /// Fault proxies of this node, in a deployment with `fault_proxies`.
    #[must_use]
    pub const fn fault_proxies(&self) -> Option<&NodeFaultProxies> {
        self.fault_proxies.as_ref()
    }

    /// Process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Working directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Standard output and error so far.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(self.log_file())?).into_owned())
    }

    /// The file with standard output and error.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.dir.path().join("node.log")
    }

    /// Kills the node with SIGKILL.
    pub fn kill9(&mut self) {
        self.process.kill9();
    }

    /// Freezes the node with SIGSTOP. Its connections stay open.
    pub fn freeze(&mut self) {
        self.process.freeze();
    }

    /// Resumes a frozen node.
    pub fn thaw(&mut self) {
        self.process.thaw();
    }

    /// Crashes the node and returns its exit status.
    pub async fn abort(&mut self) -> Result<ExitStatus> {
        self.send_signal(libc::SIGABRT);
        self.wait_for_exit().await
    }

    /// Sends SIGTERM.
    pub fn send_sigterm(&mut self) {
        self.send_signal(libc::SIGTERM);
    }

    /// Sends a signal.
    pub fn send_signal(&mut self, signal: i32) {
        self.process.signal(signal);
    }

    /// Waits until the node has exited.
    pub async fn wait_for_exit(&mut self) -> Result<ExitStatus> {
        self.process.wait_for_exit(TERMINATE_TIMEOUT).await
    }

    /// Sends SIGTERM and waits until the node has exited.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        self.send_sigterm();
        self.wait_for_exit().await
    }
}

/// Gives a command only these settings of the service.
pub(crate) fn set_env(command: &mut Command, env: &Env) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("IPSEITY__")) {
        command.env_remove(name);
    }
    command.envs(env);
}

/// Finds another program of the testkit next to the running one.
pub fn find_test_binary(name: &str) -> Result<PathBuf> {
    let current = std::env::current_exe()?;
    let mut candidates = current.ancestors().skip(1).take(2).map(|dir| dir.join(name));
    candidates.find(|program| program.is_file()).with_context(|| {
        format!("no `{name}` next to {}; run `cargo build -p ipseity-testkit` first", current.display())
    })
}

/// Finds the service's program: `IPSEITY_BIN`, or the one next to the running program.
pub fn find_service_binary() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("IPSEITY_BIN") {
        let program = PathBuf::from(program);
        ensure!(program.is_file(), "IPSEITY_BIN is {}, which is not a file", program.display());
        return Ok(program);
    }
    let current = std::env::current_exe()?;
    let candidates = current.ancestors().skip(1).take(2).map(|dir| dir.join("ipseity"));
    candidates.into_iter().find(|program| program.is_file()).with_context(|| {
        format!(
            "no `ipseity` next to {}; run `cargo build -p ipseity-server` first or set IPSEITY_BIN",
            current.display()
        )
    })
}
