//! A whole house: PostgreSQL, Redis and any number of nodes that share them, with a throw-away database.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use domain::Scope;
use serde::Deserialize;
use tokio::process::Command;

use crate::certificate::Certificate;
use crate::command::{CliOutput, run};
use crate::folder::Folder;
use crate::node::{self, Env, Node, Relays};
use crate::postgres::{Postgres, PostgresOptions};
use crate::redis::{Redis, RedisOptions};
use crate::relay::Relay;
use crate::{atlas, client, confine};

/// The name of its database.
pub const DATABASE: &str = "ipseity";
/// The setting that names the database.
pub const STORE_URL: &str = "IPSEITY__STORE__URL";
/// The setting that names the counter store.
pub const LEDGER_URL: &str = "IPSEITY__LEDGER__URL";

/// How a house is built.
#[derive(Debug, Clone)]
pub struct HouseOptions {
    /// The program of nodes and commands; if absent, the one that [`node::find_program`] finds.
    pub program: Option<PathBuf>,
    /// How many nodes.
    pub nodes: usize,
    /// Settings for all nodes, over the house's own.
    pub env: Env,
    /// The PostgreSQL cluster.
    pub postgres: PostgresOptions,
    /// The Redis server, and its clock.
    pub redis: RedisOptions,
    /// MMDB files; the small database of [`crate::samples`] if empty.
    pub geo_files: Vec<PathBuf>,
    /// Puts a relay between every node and each of its stores.
    pub relays: bool,
    /// Lets nodes and commands write nowhere but in their own folders, and dump their memory there unless they forbid it. Needs root.
    pub confined: bool,
    /// Hears of each step before it is taken.
    pub progress: fn(&str),
}

impl Default for HouseOptions {
    fn default() -> Self {
        Self {
            program: None,
            nodes: 1,
            env: Env::new(),
            postgres: PostgresOptions::default(),
            redis: RedisOptions::default(),
            geo_files: Vec::new(),
            relays: false,
            confined: false,
            progress: |_| {},
        }
    }
}

/// A key as it was shown at its issue.
#[derive(Clone, Deserialize)]
pub struct Issued {
    /// Its public id.
    pub id: String,
    /// The key in clear.
    pub key: String,
}

impl Issued {
    /// The value of an Authorization header with this key.
    #[must_use]
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.key)
    }
}

/// A running house; all of it is ended and removed when dropped.
#[derive(Debug)]
pub struct House {
    /// The nodes, to be killed, ended or replaced.
    pub nodes: Vec<Node>,
    /// The cluster, which holds one database.
    pub postgres: Postgres,
    /// The counter store.
    pub redis: Redis,
    /// The certificate of the TLS listeners.
    pub certificate: Certificate,
    program: PathBuf,
    env: Env,
    has_relays: bool,
    issued: AtomicU32,
    folder: Folder,
}

impl House {
    /// Builds a house and waits until every node is ready.
    pub async fn start(options: HouseOptions) -> Result<Self> {
        let folder = Folder::open()?;
        let mut program = options.program.map_or_else(node::find_program, Ok)?;
        if options.confined {
            program = confine::wrap(&program, folder.path())?;
        }
        (options.progress)("making a PostgreSQL cluster");
        let postgres = Postgres::start(options.postgres).await?;
        let store_url = postgres.create_database(DATABASE).await?;
        (options.progress)("starting Redis");
        let redis = Redis::start(options.redis).await?;
        (options.progress)("making a certificate");
        let certificate = Certificate::write(folder.path())?;
        let geo_files = if options.geo_files.is_empty() {
            (options.progress)("writing a small geo database");
            atlas::write(folder.path())?.to_vec()
        } else {
            options.geo_files
        };
        let own = [
            (STORE_URL, store_url),
            (LEDGER_URL, redis.url()),
            ("IPSEITY__EDGE__CERTIFICATE_FILE", certificate.chain.display().to_string()),
            ("IPSEITY__EDGE__PRIVATE_KEY_FILE", certificate.private_key.display().to_string()),
            ("IPSEITY__EDGE__TRUSTED_PROXIES", "127.0.0.0/8,::1/128".to_owned()),
            (
                "IPSEITY__GEO__FILES",
                geo_files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(","),
            ),
        ];
        let mut env: Env = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        env.extend(options.env);
        let issued = AtomicU32::new(0);
        let has_relays = options.relays;
        let mut house =
            Self { nodes: Vec::new(), postgres, redis, certificate, program, env, has_relays, issued, folder };
        (options.progress)("migrating the database");
        house.cli(&["migrate"]).await?.success().context("ipseity migrate failed")?;
        for number in 1..=options.nodes {
            (options.progress)(&format!("starting node {number} of {}", options.nodes));
            let node = house.start_node(&Env::new()).await?;
            house.nodes.push(node);
        }
        Ok(house)
    }

    /// Starts one more node that shares the house's stores, with settings of its own over theirs.
    pub async fn start_node(&self, env: &Env) -> Result<Node> {
        self.start_node_on(env, &[]).await
    }

    /// Starts one more node and hands it these listening sockets, as systemd would.
    pub async fn start_node_on(&self, env: &Env, sockets: &[&TcpListener]) -> Result<Node> {
        self.launch(env, sockets, None).await
    }

    /// Starts one more node with a configuration file, over which its environment goes.
    pub async fn start_node_with(&self, env: &Env, config: &Path) -> Result<Node> {
        let mut env = env.clone();
        env.insert(node::CONFIG.to_owned(), config.display().to_string());
        self.start_node(&env).await
    }

    /// Starts one more node, which may hold no more open files than this.
    pub async fn start_node_with_files(&self, env: &Env, files_max: usize) -> Result<Node> {
        self.launch(env, &[], Some(files_max)).await
    }

    async fn launch(&self, env: &Env, sockets: &[&TcpListener], files_max: Option<usize>) -> Result<Node> {
        let mut all = self.env.clone();
        let relays = if self.has_relays { Some(self.relayed(&mut all)?) } else { None };
        all.extend(env.clone());
        let mut node = Node::start(&self.program, &all, sockets, files_max).await?;
        node.relays = relays;
        Ok(node)
    }

    /// Has these settings lead to the stores by relays.
    fn relayed(&self, env: &mut Env) -> Result<Relays> {
        let [redis, postgres] = [self.redis.address(), self.postgres.address()].map(Relay::open);
        let relays = Relays { redis: redis?, postgres: postgres? };
        for (name, store, relay) in
            [(LEDGER_URL, self.redis.address(), &relays.redis), (STORE_URL, self.postgres.address(), &relays.postgres)]
        {
            let url = env.get_mut(name).with_context(|| format!("{name} is not set"))?;
            *url = url.replace(&store.to_string(), &relay.address().to_string());
        }
        Ok(relays)
    }

    /// Has nodes and commands run another program from now on; nodes that run already go on as they are.
    pub fn use_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// The lines between one of the nodes and its stores, in a house that was built with relays.
    #[must_use]
    pub fn relays(&self, node: usize) -> &Relays {
        self.nodes[node].relays().expect("a house that was built with relays")
    }

    /// The settings that all nodes and commands share.
    #[must_use]
    pub const fn env(&self) -> &Env {
        &self.env
    }

    /// The folders in which anything of the house is written: its own, the stores' and the nodes'.
    #[must_use]
    pub fn folders(&self) -> Vec<&Path> {
        let stores = [self.folder.path(), self.redis.folder(), self.postgres.folder()];
        stores.into_iter().chain(self.nodes.iter().map(Node::folder)).collect()
    }

    /// The address of the house's database.
    #[must_use]
    pub fn store_url(&self) -> String {
        self.postgres.url(DATABASE)
    }

    /// Runs `ipseity` with these arguments on this house.
    pub async fn cli(&self, arguments: &[&str]) -> Result<CliOutput> {
        self.cli_with(&[], arguments).await
    }

    /// The same, with settings over the house's own.
    pub async fn cli_with(&self, settings: &[(&str, &str)], arguments: &[&str]) -> Result<CliOutput> {
        let mut command = std::process::Command::new(&self.program);
        command.args(arguments).current_dir(self.folder.path());
        node::set_env(&mut command, &self.env);
        command.envs(settings.iter().copied());
        run(&mut Command::from(command)).await
    }

    /// Makes an account on the free plan.
    pub async fn account(&self, email: &str) -> Result<()> {
        self.cli(&["account", "create", "--email", email, "--json"]).await?.success().context("no account was made")?;
        Ok(())
    }

    /// Issues a key of an account.
    pub async fn issue(&self, account: &str, scope: Scope) -> Result<Issued> {
        let name = format!("{scope} {}", self.issued.fetch_add(1, Ordering::Relaxed) + 1);
        let arguments = ["key", "issue", "--account", account, "--scope", scope.name(), "--name", &name, "--json"];
        let output = self.cli(&arguments).await?.success().context("no key was issued")?;
        serde_json::from_slice(&output.stdout).context("a key was issued and not shown as id and key")
    }

    /// Runs curl against TLS listeners of the house, whose authority it trusts.
    pub async fn curl(&self, arguments: &[&str]) -> Result<CliOutput> {
        let authority = self.certificate.authority.display().to_string();
        client::curl(&[&["--cacert", &authority], arguments].concat()).await
    }
}
