//! Remote nodes whose home nodes use a Redis cluster of three servers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ipseity_domain::{IN_FLIGHT_MAX, Scope};
use ipseity_testkit::{CommandOutput, IssuedKey, Node, Redis, RedisCluster, RedisOptions, eventually};
use tokio::time::{Instant, sleep};

use super::fixture::{RemoteNode, Sites, delayed, read_metric};
use super::limits::{count_pauses, flood, local_decisions};
use super::optimistic::{ADMITTED, open_key, over_limit, start_optimistic_node, wait_until_charged};
use crate::fixture::{env_number, fresh_key, lookup_status};

const WITHIN: Duration = Duration::from_secs(30);
const SERVERS: usize = 3;
const FAR_MS: u64 = 75;

struct ClusterSites {
    cluster: RedisCluster,
    sites: Sites,
    remotes: [RemoteNode; 2],
}

impl ClusterSites {
    async fn start() -> Self {
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            // A server that is killed keeps its data.
            let options = RedisOptions { cluster: true, appendonly: true, ..RedisOptions::default() };
            servers.push(Redis::start(options).await.expect("server starts"));
        }
        let cluster = RedisCluster::form(servers).await.expect("cluster starts");
        let sites = Sites::start_on_cluster(2, &cluster).await;
        let near = start_optimistic_node(&sites, "lhr", delayed(10)).await;
        let far = start_optimistic_node(&sites, "sin", delayed(FAR_MS)).await;
        Self { cluster, sites, remotes: [near, far] }
    }

    fn nodes(&self) -> Vec<&Node> {
        self.sites.deployment.nodes.iter().chain(self.remotes.iter().map(|remote| &remote.node)).collect()
    }

    /// A key that was used once, and the server and slot of its record.
    async fn used_key(&self) -> (IssuedKey, usize, u16) {
        let key = fresh_key(&self.sites.deployment, Scope::Ip).await;
        self.use_key(key).await
    }

    async fn use_key(&self, key: IssuedKey) -> (IssuedKey, usize, u16) {
        assert_eq!(lookup_status(&self.sites.deployment.nodes[0], &key.key).await, 200);
        let (server, record) = self.cluster.find_key(&format!("*:k:{}", key.id)).await.expect("record exists");
        let slot = self.cluster.slot_of(&record).await.expect("record has a slot");
        (key, server, slot)
    }

    /// A key on each server, each used once.
    async fn key_on_each_server(&self) -> [IssuedKey; SERVERS] {
        let mut keys = [const { None }; SERVERS];
        while keys.iter().any(Option::is_none) {
            let (key, server, _) = self.used_key().await;
            keys[server] = Some(key);
        }
        keys.map(|key| key.expect("every server has one"))
    }

    /// Opens a key at all remote nodes. Returns the number of requests.
    async fn open_everywhere(&self, key: &IssuedKey) -> u64 {
        let mut requests = 0;
        for remote in &self.remotes {
            requests += open_key(remote, key).await;
        }
        requests
    }

    async fn optimistic_requests(&self) -> u64 {
        let mut requests = 0;
        for remote in &self.remotes {
            requests += read_metric(&remote.node, ADMITTED).await;
        }
        requests
    }

    async fn unverifiable_charges(&self) -> u64 {
        let mut charges = 0;
        for node in self.nodes() {
            charges += read_metric(node, "ipseity_unverifiable_charges_total").await;
        }
        charges
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_all_servers_are_open_and_charged_once() {
    let fixture = ClusterSites::start().await;
    let keys = fixture.key_on_each_server().await;
    let mut requests = [1; SERVERS];
    for (key, requests) in keys.iter().zip(&mut requests) {
        *requests += fixture.open_everywhere(key).await;
    }
    let before = fixture.optimistic_requests().await;
    const ROUNDS: u64 = 15;
    for _ in 0..ROUNDS {
        // Fewer than are permitted in flight.
        sleep(Duration::from_millis(FAR_MS)).await;
        for (key, requests) in keys.iter().zip(&mut requests) {
            for remote in &fixture.remotes {
                assert_eq!(lookup_status(&remote.node, &key.key).await, 200);
                *requests += 1;
            }
        }
    }
    let (optimistic, sent) = (fixture.optimistic_requests().await - before, ROUNDS * 2 * SERVERS as u64);
    // A busy machine can be late with a ping.
    assert!(optimistic * 10 >= sent * 8, "{optimistic} of {sent} did not wait");
    for (key, requests) in keys.iter().zip(requests) {
        wait_until_charged(&fixture.sites, key, requests).await;
    }
    assert_eq!(over_limit(&fixture.remotes).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_that_moves_keeps_its_limits_and_its_notices() {
    let fixture = ClusterSites::start().await;
    flood_while_the_slot_moves(&fixture).await;
    exceed_limits_before_the_slots_move(&fixture).await;
    deactivate_after_the_slot_has_moved(&fixture).await;
}

#[expect(clippy::print_stderr, reason = "the figures are printed")]
async fn flood_while_the_slot_moves(fixture: &ClusterSites) {
    let (key, server, slot) = fixture.used_key().await;
    let opened = 1 + fixture.open_everywhere(&key).await as usize;
    let (nodes, other, bearer) = (fixture.nodes(), (server + 1) % SERVERS, key.bearer());
    let local_before = local_decisions(&nodes).await;
    let (mut moves, is_over) = (0, AtomicBool::new(false));
    let attack = async {
        let statuses = flood(&nodes, "/api/v1/ip", Some(&bearer), 8).await;
        is_over.store(true, Ordering::Relaxed);
        statuses
    };
    let migrate = async {
        while !is_over.load(Ordering::Relaxed) {
            for (from, to) in [(server, other), (other, server)] {
                fixture.cluster.move_slots(slot..=slot, from, to).await.expect("slot moves");
                fixture.cluster.wait_until_agreed().await.expect("servers agree");
                moves += 1;
            }
        }
    };
    let (statuses, ()) = tokio::join!(attack, migrate);
    let count = |status: u16| statuses.get(&status).copied().unwrap_or_default();
    let (admitted, local) = (opened + count(200), local_decisions(&nodes).await - local_before);
    let unconfirmed_max = IN_FLIGHT_MAX * fixture.remotes.len() + local;
    let bound = 300 + unconfirmed_max;
    eprintln!("{moves} moves: {statuses:?}, {admitted} admitted, {local} decided locally");
    assert!(admitted <= bound, "{admitted} admitted, at most {bound} expected: {statuses:?}");
    assert!(admitted + local >= 300, "{admitted} admitted, {local} decided locally: {statuses:?}");
    assert_eq!(count_pauses(&fixture.sites, &key).await, 1);
    // A request that got an error may be charged.
    let unanswered = statuses.range(500..).map(|(_, count)| count).sum::<usize>();
    let accounted = async || {
        let unverifiable = fixture.unverifiable_charges().await as usize;
        (fixture.sites.charged(&key.id).await as usize, unverifiable)
    };
    let is_complete = async || accounted().await.0 + accounted().await.1 >= admitted;
    let complete = eventually("the charges are reconciled", WITHIN, is_complete).await;
    let (charged, unverifiable) = accounted().await;
    // On a busy machine a charge may get no reply in time. After its slot has moved it cannot be found.
    let is_exact = charged + unverifiable >= admitted && charged <= admitted + unanswered;
    assert!(
        is_exact && unverifiable <= unconfirmed_max,
        "{charged} charged, {unverifiable} unverifiable, {admitted} admitted: {complete:?}, {statuses:?}"
    );
}

/// Requests that exceed the burst limit or the daily limit are charged by reconciling, after their slots have moved.
#[expect(clippy::print_stderr, reason = "the figures are printed")]
async fn exceed_limits_before_the_slots_move(fixture: &ClusterSites) {
    let (home, far) = (&fixture.sites.deployment.nodes[0], &fixture.remotes[1]);
    let before = over_limit(&fixture.remotes).await;
    // The notices arrive after the last requests.
    far.set_faults(delayed(200));
    let mut flooded = Vec::new();
    for (stored, limit) in [(0, 300), (9_900, 100)] {
        let key = fresh_key(&fixture.sites.deployment, Scope::Ip).await;
        let today = "(now() at time zone 'utc')::date";
        let usage = format!("insert into usage select '{}', {today}, {stored} where {stored} > 0", key.id);
        fixture.sites.deployment.postgres.psql("ipseity", &usage).await.expect("insert the usage");
        let (key, server, slot) = fixture.use_key(key).await;
        let mut admitted = 1 + open_key(far, &key).await as usize;
        while admitted < limit - IN_FLIGHT_MAX - 10 {
            assert_eq!(lookup_status(home, &key.key).await, 200);
            admitted += 1;
        }
        flooded.push((key, server, slot, stored, limit, admitted));
    }
    // Until no request is in flight.
    sleep(Duration::from_millis(700)).await;
    for (key, .., limit, admitted) in &mut flooded {
        for _ in 0..IN_FLIGHT_MAX {
            assert_eq!(lookup_status(&far.node, &key.key).await, 200);
            *admitted += 1;
        }
        while lookup_status(home, &key.key).await == 200 {
            *admitted += 1;
        }
        // A busy machine can be late with a ping. Then the requests have waited for home.
        assert!((*limit..=*limit + IN_FLIGHT_MAX).contains(admitted), "{admitted} of {limit} admitted");
    }
    let exceeding: usize = flooded.iter().map(|(.., limit, admitted)| admitted - limit).sum();
    let is_over_limit = async || over_limit(&fixture.remotes).await - before == exceeding;
    eventually("the limits are exceeded", WITHIN, is_over_limit).await.expect("verdicts arrive");
    eprintln!("{exceeding} requests exceed a limit");
    for (_, server, slot, ..) in &flooded {
        fixture.cluster.move_slots(*slot..=*slot, *server, (server + 1) % SERVERS).await.expect("slot moves");
    }
    far.set_faults(delayed(FAR_MS));
    for (key, _, _, stored, _, admitted) in &flooded {
        wait_until_charged(&fixture.sites, key, (stored + admitted) as u64).await;
    }
}

async fn deactivate_after_the_slot_has_moved(fixture: &ClusterSites) {
    let (key, server, slot) = fixture.used_key().await;
    fixture.open_everywhere(&key).await;
    fixture.cluster.move_slots(slot..=slot, server, (server + 1) % SERVERS).await.expect("slot moves");
    fixture.open_everywhere(&key).await;
    // Until no request is in flight, whose verdict would close the key too.
    sleep(Duration::from_millis(FAR_MS * 3)).await;
    let deactivated = fixture.sites.deployment.cli(&["key", "deactivate", &key.id]).await;
    deactivated.and_then(CommandOutput::ensure_success).expect("key is deactivated");
    sleep(Duration::from_millis(env_number("IPSEITY_SITES_NOTICE_MS", 450).into())).await;
    for remote in &fixture.remotes {
        assert_eq!(lookup_status(&remote.node, &key.key).await, 403, "home follows the new owner");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figures are printed")]
async fn node_does_not_admit_early_while_the_cluster_is_down() {
    let mut fixture = ClusterSites::start().await;
    for server in &fixture.cluster.servers {
        let setting = ["CONFIG", "SET", "cluster-require-full-coverage", "yes"];
        server.run_command(&setting).await.expect("setting is changed");
    }
    let keys = fixture.key_on_each_server().await;
    let mut admitted = [1; SERVERS];
    for (key, admitted) in keys.iter().zip(&mut admitted) {
        *admitted += fixture.open_everywhere(key).await;
    }
    fixture.cluster.servers[SERVERS - 1].kill9();
    fixture.cluster.wait_until_down().await.expect("cluster is down");
    sleep(Duration::from_millis(900)).await;
    let (before, start) = (fixture.optimistic_requests().await, Instant::now());
    for _ in 0..2 {
        for (key, admitted) in keys.iter().zip(&mut admitted) {
            for remote in &fixture.remotes {
                assert_eq!(lookup_status(&remote.node, &key.key).await, 200, "local limits apply");
                *admitted += 1;
            }
        }
    }
    assert_eq!(fixture.optimistic_requests().await, before, "no change is confirmed");
    eprintln!("12 requests took {:.1?} while the cluster was down", start.elapsed());

    fixture.cluster.servers[SERVERS - 1].restart().await.expect("server restarts");
    fixture.cluster.wait_until_healthy().await.expect("cluster is healthy");
    for (key, admitted) in keys.iter().zip(&mut admitted) {
        *admitted += fixture.open_everywhere(key).await;
    }
    for (key, admitted) in keys.iter().zip(admitted) {
        let accounted = async || fixture.sites.charged(&key.id).await + fixture.unverifiable_charges().await;
        let complete = eventually("the charges are reconciled", WITHIN, async || accounted().await >= admitted).await;
        let (charged, unverifiable) = (fixture.sites.charged(&key.id).await, fixture.unverifiable_charges().await);
        let is_exact = charged <= admitted && charged + unverifiable >= admitted;
        assert!(is_exact, "{charged} charged, {unverifiable} unverifiable, {admitted} admitted: {complete:?}");
    }
    let unverifiable = fixture.unverifiable_charges().await;
    eprintln!("{admitted:?} admitted, {unverifiable} charges unverifiable");
    // Only the last request of each key and node can have been in flight when the server was killed.
    let in_flight_max = SERVERS * fixture.remotes.len();
    assert!(unverifiable <= in_flight_max as u64, "{unverifiable} unverifiable, at most {in_flight_max} expected");
}
