//! A deployment: PostgreSQL, Redis and any number of nodes that share them, with a temporary database.

pub mod cluster;
pub mod node;
pub mod postgres;
pub mod redis;
pub mod sandbox;
pub mod sentinel;
pub mod sites;
pub mod socket_activation;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use ipseity_domain::Scope;
use serde::Deserialize;
use tokio::process::Command;

use crate::certificate::TestCertificate;
use crate::client::http1;
use crate::command::{CommandOutput, run_command};
use crate::deployment::node::{Env, Node, NodeFaultProxies};
use crate::deployment::postgres::{Postgres, PostgresOptions};
use crate::deployment::redis::{Redis, RedisOptions};
use crate::fault_proxy::FaultProxy;
use crate::fixtures::geo_database;
use crate::test_dir::TestDir;

/// Name of the database.
pub const DATABASE: &str = "ipseity";
/// Setting with the URL of PostgreSQL.
pub const STORE_URL_ENV: &str = "IPSEITY__STORE__URL";
/// Setting with the URL of Redis.
pub const LEDGER_URL_ENV: &str = "IPSEITY__LEDGER__URL";

/// Options of a deployment.
#[derive(Debug, Clone)]
pub struct DeploymentOptions {
    /// Program for nodes and commands; the result of [`node::find_service_binary`] if absent.
    pub program: Option<PathBuf>,
    /// Number of nodes.
    pub nodes: usize,
    /// Settings for all nodes, which override the defaults of the deployment.
    pub env: Env,
    /// Options of PostgreSQL.
    pub postgres: PostgresOptions,
    /// Options of Redis, including its clock.
    pub redis: RedisOptions,
    /// MMDB files; the small database of [`crate::fixtures::samples`] if empty.
    pub geo_files: Vec<PathBuf>,
    /// Puts a fault proxy between every node and Redis and PostgreSQL.
    pub fault_proxies: bool,
    /// Restricts nodes and commands to write and dump core only in their own directories. Needs root.
    pub sandboxed: bool,
    /// Called before each step.
    pub progress: fn(&str),
}

impl Default for DeploymentOptions {
    fn default() -> Self {
        Self {
            program: None,
            nodes: 1,
            env: Env::new(),
            postgres: PostgresOptions::default(),
            redis: RedisOptions::default(),
            geo_files: Vec::new(),
            fault_proxies: false,
            sandboxed: false,
            progress: |_| {},
        }
    }
}

/// An issued key.
#[derive(Clone, Deserialize)]
pub struct IssuedKey {
    /// Public ID.
    pub id: String,
    /// Key in plain text.
    pub key: String,
}

impl IssuedKey {
    /// Value of an Authorization header with this key.
    #[must_use]
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.key)
    }
}

/// A running deployment. Dropping it stops and removes everything.
#[derive(Debug)]
pub struct Deployment {
    /// The nodes, which tests may kill, stop or replace.
    pub nodes: Vec<Node>,
    /// PostgreSQL with one database.
    pub postgres: Postgres,
    /// Redis.
    pub redis: Redis,
    /// The certificate of the TLS listeners.
    pub certificate: TestCertificate,
    program: PathBuf,
    env: Env,
    has_fault_proxies: bool,
    issued_count: AtomicU32,
    dir: TestDir,
}

impl Deployment {
    /// Starts a deployment and waits until every node is ready.
    pub async fn start(options: DeploymentOptions) -> Result<Self> {
        let dir = TestDir::create()?;
        let mut program = options.program.map_or_else(node::find_service_binary, Ok)?;
        if options.sandboxed {
            program = sandbox::write_sandboxed_wrapper(&program, dir.path())?;
        }
        (options.progress)("creating a PostgreSQL cluster");
        let postgres = Postgres::start(options.postgres).await?;
        postgres.create_database(DATABASE).await?;
        (options.progress)("starting Redis");
        let redis = Redis::start(options.redis).await?;
        (options.progress)("creating a certificate");
        let certificate = TestCertificate::generate_in(dir.path())?;
        let geo_files = if options.geo_files.is_empty() {
            (options.progress)("writing a small geo database");
            geo_database::write_databases(dir.path())?.to_vec()
        } else {
            options.geo_files
        };
        let defaults = [
            (STORE_URL_ENV, postgres.node_url(DATABASE)),
            (LEDGER_URL_ENV, redis.url()),
            ("IPSEITY__EDGE__CERTIFICATE_FILE", certificate.chain_file.display().to_string()),
            ("IPSEITY__EDGE__PRIVATE_KEY_FILE", certificate.private_key_file.display().to_string()),
            ("IPSEITY__EDGE__TRUSTED_PROXIES", "127.0.0.0/8,::1/128".to_owned()),
            (
                "IPSEITY__GEO__FILES",
                geo_files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(","),
            ),
        ];
        let mut env: Env = defaults.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        if options.sandboxed {
            // The wrapper is another program, whose settings the node does not know.
            env.insert(node::CONSOLE_LISTEN_ENV.to_owned(), String::new());
        }
        env.extend(options.env);
        let issued_count = AtomicU32::new(0);
        let has_fault_proxies = options.fault_proxies;
        let mut deployment = Self {
            nodes: Vec::new(),
            postgres,
            redis,
            certificate,
            program,
            env,
            has_fault_proxies,
            issued_count,
            dir,
        };
        (options.progress)("migrating the database");
        deployment.migrate().await?.ensure_success().context("ipseity migrate failed")?;
        for number in 1..=options.nodes {
            (options.progress)(&format!("starting node {number} of {}", options.nodes));
            let node = deployment.start_node(&Env::new()).await?;
            deployment.nodes.push(node);
        }
        Ok(deployment)
    }

    /// Starts another node with additional settings.
    pub async fn start_node(&self, env: &Env) -> Result<Node> {
        self.start_node_with_sockets(env, &[]).await
    }

    /// Starts another node with these listening sockets, as systemd would.
    pub async fn start_node_with_sockets(&self, env: &Env, sockets: &[&TcpListener]) -> Result<Node> {
        self.launch(env, sockets, None).await
    }

    /// Starts another node with a configuration file, which its environment overrides.
    pub async fn start_node_with_config(&self, env: &Env, config: &Path) -> Result<Node> {
        let mut env = env.clone();
        env.insert(node::CONFIG_ENTRY.to_owned(), config.display().to_string());
        self.start_node(&env).await
    }

    /// Starts another node that may not become ready.
    pub async fn start_live_node(&self, env: &Env) -> Result<Node> {
        let mut env = env.clone();
        env.insert(node::LIVE_ENTRY.to_owned(), String::new());
        self.start_node(&env).await
    }

    /// Starts another node with this limit of open files.
    pub async fn start_node_with_fd_limit(&self, env: &Env, fd_limit: usize) -> Result<Node> {
        self.launch(env, &[], Some(fd_limit)).await
    }

    async fn launch(&self, env: &Env, sockets: &[&TcpListener], fd_limit: Option<usize>) -> Result<Node> {
        let mut merged = self.env.clone();
        let fault_proxies = if self.has_fault_proxies { Some(self.add_fault_proxies(&mut merged)?) } else { None };
        merged.extend(env.clone());
        let mut node = Node::start(&self.program, &merged, sockets, fd_limit).await?;
        node.fault_proxies = fault_proxies;
        Ok(node)
    }

    /// Points these settings to fault proxies of Redis and PostgreSQL.
    fn add_fault_proxies(&self, env: &mut Env) -> Result<NodeFaultProxies> {
        let [redis, postgres] = [self.redis.address(), self.postgres.address()].map(FaultProxy::open);
        let fault_proxies = NodeFaultProxies { redis: redis?, postgres: postgres? };
        for (name, store, proxy) in [
            (LEDGER_URL_ENV, self.redis.address(), &fault_proxies.redis),
            (STORE_URL_ENV, self.postgres.address(), &fault_proxies.postgres),
        ] {
            let url = env.get_mut(name).with_context(|| format!("{name} is not set"))?;
            *url = url.replace(&store.to_string(), &proxy.address().to_string());
        }
        Ok(fault_proxies)
    }

    /// Uses another PostgreSQL with the same database, such as a promoted replica. Fault proxies of nodes switch to it.
    pub fn replace_postgres(&mut self, postgres: Postgres) {
        let (old, new) = (self.postgres.address().to_string(), postgres.address());
        if let Some(url) = self.env.get_mut(STORE_URL_ENV) {
            *url = url.replace(&old, &new.to_string());
        }
        for proxies in self.nodes.iter().filter_map(Node::fault_proxies) {
            proxies.postgres.set_upstream(new);
        }
        self.postgres = postgres;
    }

    /// The same for Redis.
    pub fn replace_redis(&mut self, redis: Redis) {
        let (old, new) = (self.redis.address().to_string(), redis.address());
        if let Some(url) = self.env.get_mut(LEDGER_URL_ENV) {
            *url = url.replace(&old, &new.to_string());
        }
        for proxies in self.nodes.iter().filter_map(Node::fault_proxies) {
            proxies.redis.set_upstream(new);
        }
        self.redis = redis;
    }

    /// Uses another program for new nodes and commands. Running nodes keep theirs.
    pub fn use_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// The fault proxies of a node, in a deployment with `fault_proxies`.
    #[must_use]
    pub fn fault_proxies(&self, node: usize) -> &NodeFaultProxies {
        self.nodes[node].fault_proxies().expect("deployment has fault proxies")
    }

    /// Settings of all nodes and commands.
    #[must_use]
    pub const fn env(&self) -> &Env {
        &self.env
    }

    /// All directories that the deployment, PostgreSQL, Redis and the nodes write to.
    #[must_use]
    pub fn dirs(&self) -> Vec<&Path> {
        let stores = [self.dir.path(), self.redis.dir(), self.postgres.dir()];
        stores.into_iter().chain(self.nodes.iter().map(Node::dir)).collect()
    }

    /// Runs `ipseity migrate` as the owner of the database. Nodes and other commands have fewer rights.
    pub async fn migrate(&self) -> Result<CommandOutput> {
        self.cli_with_env(&[(STORE_URL_ENV, &self.postgres.url(DATABASE))], &["migrate"]).await
    }

    /// Runs `ipseity` with these arguments.
    pub async fn cli(&self, arguments: &[&str]) -> Result<CommandOutput> {
        self.cli_with_env(&[], arguments).await
    }

    /// Runs `ipseity` with additional settings.
    pub async fn cli_with_env(&self, settings: &[(&str, &str)], arguments: &[&str]) -> Result<CommandOutput> {
        let mut command = std::process::Command::new(&self.program);
        command.args(arguments).current_dir(self.dir.path());
        node::set_env(&mut command, &self.env);
        command.envs(settings.iter().copied());
        run_command(&mut Command::from(command)).await
    }

    /// Creates an account on the free plan.
    pub async fn create_account(&self, email: &str) -> Result<()> {
        self.cli(&["account", "create", "--email", email, "--json"])
            .await?
            .ensure_success()
            .context("failed to create an account")?;
        Ok(())
    }

    /// Issues a key for an account.
    pub async fn issue_key(&self, account: &str, scope: Scope) -> Result<IssuedKey> {
        let name = format!("{scope} {}", self.issued_count.fetch_add(1, Ordering::Relaxed) + 1);
        let arguments = ["key", "issue", "--account", account, "--scope", scope.name(), "--name", &name, "--json"];
        let output = self.cli(&arguments).await?.ensure_success().context("failed to issue a key")?;
        serde_json::from_slice(&output.stdout).context("unexpected output of key issue")
    }

    /// Runs curl with the deployment's authority as the trusted one.
    pub async fn curl(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let authority = self.certificate.ca_file.display().to_string();
        http1::curl(&[&["--cacert", &authority], arguments].concat()).await
    }
}
