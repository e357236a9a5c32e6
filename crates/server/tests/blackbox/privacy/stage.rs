//! A house after everything has gone through it, with every log at its most talkative.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use domain::{ClearKey, Scope};
use testkit::node::Env;
use testkit::{Caller, House, HouseOptions, Node, RedisOptions, eventually};
use tokio::sync::OnceCell;

use super::canaries::Canaries;
use super::{doors, faults, members, routes};
use crate::portal::stage::Stage as Portal;
use crate::proxies::edge;
use crate::shared::{fresh_key, setting};

/// How each node learns who its client is; the last takes PROXY headers.
const NODES: [&[(&str, &str)]; 4] = [
    &[("FORWARDING_HEADER", "x-forwarded-for")],
    &[("FORWARDING_HEADER", "forwarded")],
    &[("FORWARDING_HEADER", "cf-connecting-ip")],
    &[("PRESET", "haproxy")],
];
/// The node that takes PROXY headers.
pub(crate) const PROXIED: usize = 3;
const HEAL_MAX: Duration = Duration::from_secs(30);

pub(crate) struct Stage {
    pub(crate) portal: Portal,
    pub(crate) canaries: Canaries,
    /// Keys in every state: active, deactivated, with a wrong secret, unknown, mistyped.
    pub(crate) keys: Vec<String>,
    /// What stores held in memory before they were killed.
    pub(crate) kept: Vec<(&'static str, Vec<u8>)>,
    /// Nodes that were needed for a moment; what they wrote stays.
    others: Mutex<Vec<Node>>,
    /// Every status that was answered.
    pub(crate) statuses: Mutex<BTreeSet<u16>>,
}

static STAGE: OnceCell<Stage> = OnceCell::const_new();

pub(crate) async fn stage() -> &'static Stage {
    STAGE
        .get_or_init(async || {
            let mut stage = Stage::open().await;
            for round in 1..=setting("IPSEITY_PRIVACY_ROUNDS", 1) {
                // New ones in each round: the busiest would be paused before long.
                stage.keys = keys(stage.house(), &stage.canaries).await;
                routes::ask_everything(&stage, round).await;
                doors::knock(&stage).await;
                members::live(&stage).await;
                faults::suffer(&mut stage).await;
            }
            stage
        })
        .await
}

impl Stage {
    async fn open() -> Self {
        let options = HouseOptions {
            nodes: 0,
            redis: RedisOptions { appendonly: true, ..RedisOptions::default() },
            relays: true,
            confined: true,
            ..HouseOptions::default()
        };
        let settings = [
            ("IPSEITY__LOG__LEVEL", "trace"),
            ("IPSEITY__STORE__TIMEOUT_MS", "500"),
            ("IPSEITY__LEDGER__TIMEOUT_MS", "500"),
            ("IPSEITY__PORTAL__TIMEOUT_MS", "500"),
            ("IPSEITY__EDGE__REQUEST_TIMEOUT_MS", "5000"),
            ("IPSEITY__EDGE__HEADER_TIMEOUT_MS", "2000"),
            ("IPSEITY__EDGE__TRUSTED_PROXIES", "127.0.0.1/32,::1/128"),
            ("IPSEITY_FAILPOINTS", "panic"),
        ];
        let mut portal = Portal::with_house(options, &settings).await;
        listen_to_stores(&portal.house).await;
        for settings in NODES {
            let node = portal.house.start_node(&edge(settings)).await.expect("a node");
            portal.house.nodes.push(node);
        }
        Self {
            portal,
            canaries: Canaries::hatch(),
            keys: Vec::new(),
            kept: Vec::new(),
            others: Mutex::default(),
            statuses: Mutex::default(),
        }
    }

    pub(crate) const fn house(&self) -> &House {
        &self.portal.house
    }

    pub(crate) fn note(&self, status: u16) {
        self.statuses.lock().expect("no panic").insert(status);
    }

    /// Keeps a node and its files.
    pub(crate) fn keep_node(&self, node: Node) {
        self.others.lock().expect("no panic").push(node);
    }

    /// The private listeners of all nodes.
    pub(crate) fn private(&self) -> Vec<SocketAddr> {
        let others = self.others.lock().expect("no panic");
        self.house().nodes.iter().chain(others.iter()).map(Node::ops).collect()
    }

    /// The folders in which anything was written.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let others = self.others.lock().expect("no panic");
        self.house().folders().into_iter().chain(others.iter().map(Node::folder)).map(Path::to_owned).collect()
    }

    /// Keeps what Redis holds in memory alone.
    pub(crate) async fn keep_redis(&mut self) {
        let redis = &self.portal.house.redis;
        let held = redis.dump_bytes().await.expect("what Redis holds");
        let slow = redis.slow_log().await.expect("a slow log");
        self.kept.extend([("Redis: keys and values", held), ("Redis: slow log", slow)]);
    }

    /// Waits until every node is as it was before a fault.
    pub(crate) async fn heals(&self) {
        for node in &self.house().nodes {
            let is_ready =
                async || Caller::new(node.ops()).get("/ready", &[]).await.is_ok_and(|reply| reply.status == 200);
            eventually("the node is ready again", HEAL_MAX, is_ready).await.expect("a node that heals");
        }
    }
}

/// Has both stores write down all that they are told.
async fn listen_to_stores(house: &House) {
    let settings = [
        "log_statement = 'all'",
        "log_min_duration_statement = 0",
        "log_min_error_statement = 'debug5'",
        "log_parameter_max_length_on_error = -1",
        "log_connections = on",
        // What was written stays, to be searched.
        "wal_keep_size = '4GB'",
    ];
    for setting in settings {
        house.postgres.psql("postgres", &format!("alter system set {setting}")).await.expect("a setting");
    }
    house.postgres.psql("postgres", "select pg_reload_conf()").await.expect("new settings");
    listen_to_redis(house).await;
}

/// Has Redis tell of every command, in its slow log and to a monitor, until it is killed.
pub(crate) async fn listen_to_redis(house: &House) {
    for (name, value) in [("slowlog-max-len", "1000000"), ("slowlog-log-slower-than", "0")] {
        house.redis.call(&["CONFIG", "SET", name, value]).await.expect("a setting");
    }
    house.redis.monitor().expect("a monitor");
}

async fn keys(house: &House, canaries: &Canaries) -> Vec<String> {
    let (active, inactive) = (fresh_key(house, Scope::Full).await, fresh_key(house, Scope::Geo).await);
    house.cli(&["key", "deactivate", &inactive.id]).await.expect("a command").success().expect("a change");
    let wrong = ClearKey::roll(domain::KeyId::parse(&active.id).expect("an id"), || fastrand::u8(..));
    let unknown = ClearKey::mint(|| fastrand::u8(..));
    let mistyped = ClearKey::mint(|| fastrand::u8(..)).expose().replace("ips_", "ipz_");
    [&active.key, &inactive.key, wrong.expose(), unknown.expose(), &mistyped].map(|key| canaries.key(key)).into()
}

/// A node like the first, with further settings.
pub(crate) fn another(settings: &[(&str, &str)]) -> Env {
    let mut env = edge(NODES[0]);
    env.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    env
}
