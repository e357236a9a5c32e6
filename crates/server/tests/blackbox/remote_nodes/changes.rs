//! Every kind of change of a key takes effect at a remote node after the way from home.
//!
//! `IPSEITY_SITES_NOTICE_MS` sets the time in which it must, and `IPSEITY_SITES_ROUNDS` the number of rounds. Each round
//! prints what it measured.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipseity_domain::{IN_FLIGHT_MAX, Scope};
use ipseity_testkit::{CommandOutput, IssuedKey, eventually};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::fixture::{RemoteNode, Sites, delayed};
use super::optimistic::{open_key, start_optimistic_node};
use crate::fixture::{env_number, lookup_status};

const WAY: Duration = Duration::from_millis(150);
const WITHIN: Duration = Duration::from_secs(30);
/// Time between the requests that find out when a change takes effect.
const PROBE_INTERVAL: Duration = Duration::from_millis(15);
const EMAIL: &str = "changes@example.com";

struct Changes {
    sites: Sites,
    remote: RemoteNode,
    /// Maximum time from a notice in Redis to its effect. A busy machine takes longer than the 50 ms after the way.
    notice_max: Duration,
}

impl Changes {
    async fn start() -> Self {
        let sites = Sites::start(2).await;
        sites.deployment.redis.monitor().expect("start MONITOR");
        let way_ms = u64::try_from(WAY.as_millis()).expect("short way");
        let remote = start_optimistic_node(&sites, "syd", delayed(way_ms)).await;
        let notice_max = Duration::from_millis(env_number("IPSEITY_SITES_NOTICE_MS", 450).into());
        Self { sites, remote, notice_max }
    }

    async fn run(&self, arguments: &[&str]) -> CommandOutput {
        let output = self.sites.deployment.cli(arguments).await;
        output.and_then(CommandOutput::ensure_success).expect("command succeeds")
    }

    /// Opens a key, and waits until none of its requests is in flight. Otherwise later ones would wait for home.
    async fn open(&self, key: &IssuedKey) {
        open_key(&self.remote, key).await;
        sleep(WAY * 3).await;
    }

    /// When Redis last published a change of a key, by its record of commands. Its clock is that of this machine.
    fn notice_time(&self, key: &IssuedKey) -> Option<SystemTime> {
        let commands = fs::read_to_string(self.sites.deployment.redis.monitor_file()).expect("read the commands");
        let is_notice = |line: &&str| line.contains("ipseity:changes") && line.contains(&key.id);
        let (seconds, _) = commands.lines().rfind(is_notice)?.split_once(' ')?;
        Some(UNIX_EPOCH + Duration::from_secs_f64(seconds.parse().ok()?))
    }

    /// Makes a change of an open key. Returns the time from its notice to the first request that got this status. The key
    /// stays open without the notice, because the verdicts on these requests arrive later.
    async fn time_to_status(&self, key: &IssuedKey, status: u16, change: impl AsyncFnOnce()) -> Duration {
        self.open(key).await;
        let before = self.notice_time(key);
        change().await;
        eventually("Redis publishes the change", WITHIN, async || self.notice_time(key) != before)
            .await
            .expect("change is published");
        let noticed_at = self.notice_time(key).expect("change is published");
        let noticed_at = Instant::now() - noticed_at.elapsed().expect("time passes");
        let mut probes = JoinSet::new();
        for left in (0..u32::try_from(IN_FLIGHT_MAX).expect("a few")).rev() {
            sleep_until(noticed_at + self.notice_max - PROBE_INTERVAL * left).await;
            let (sent, address, bearer) = (noticed_at.elapsed(), self.remote.node.http(), key.bearer());
            probes.spawn(async move {
                let mut caller = ipseity_testkit::TestClient::new(address);
                let reply = caller.get("/api/v1/ip", &[("authorization", &bearer)]).await;
                (sent, reply.expect("response arrives").status)
            });
        }
        let mut probes = probes.join_all().await;
        probes.sort_unstable();
        assert_eq!(probes.last().map(|probe| probe.1), Some(status), "{probes:?}");
        probes.iter().find(|probe| probe.1 == status).expect("the last one").0
    }

    /// A change of a key that is not open is in effect on the next request.
    async fn assert_next(&self, key: &str, status: u16, change: &str) {
        assert_eq!(lookup_status(&self.remote.node, key).await, status, "{change}");
    }

    async fn pause_at_home(&self, key: &IssuedKey) {
        let mut caller = self.sites.deployment.nodes[0].client();
        for _ in 0..301 {
            let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await;
            if reply.expect("response arrives").status == 429 {
                return;
            }
        }
        panic!("301 requests did not pause the key");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "the figures are printed")]
async fn change_of_a_key_takes_effect_after_the_way_from_home() {
    let changes = Changes::start().await;
    changes.run(&["plan", "add", "tiny", "--daily-limit", "1"]).await;
    changes.sites.deployment.create_account(EMAIL).await.expect("create an account");
    for round in 0..env_number("IPSEITY_SITES_ROUNDS", 1) {
        let key = changes.sites.deployment.issue_key(EMAIL, Scope::Ip).await.expect("issue a key");
        let id = key.id.as_str();
        let deactivated =
            changes.time_to_status(&key, 403, async || drop(changes.run(&["key", "deactivate", id]).await)).await;
        changes.run(&["key", "reactivate", id]).await;
        changes.assert_next(&key.key, 200, "reactivated").await;

        let tiny = ["account", "plan", "--email", EMAIL, "--plan", "tiny"];
        let limited = changes.time_to_status(&key, 429, async || drop(changes.run(&tiny).await)).await;
        changes.run(&["account", "plan", "--email", EMAIL, "--plan", "free"]).await;
        changes.assert_next(&key.key, 200, "limit raised").await;

        let paused = changes.time_to_status(&key, 403, async || changes.pause_at_home(&key).await).await;
        changes.run(&["key", "resume", id]).await;
        changes.assert_next(&key.key, 200, "resumed").await;

        let restrict = ["key", "restrict", id, "--origin", "https://shop.example"];
        let restricted = changes.time_to_status(&key, 403, async || drop(changes.run(&restrict).await)).await;
        changes.run(&["key", "restrict", id]).await;
        changes.assert_next(&key.key, 200, "restrictions removed").await;

        let mut output = None;
        let rotate = ["key", "rotate", id, "--overlap-s", "0", "--json"];
        let rotated = changes.time_to_status(&key, 401, async || output = Some(changes.run(&rotate).await)).await;
        let new = output.expect("the key is rotated").json().expect("valid JSON");
        changes.assert_next(new["key"].as_str().expect("a key"), 200, "new secret").await;
        eprintln!(
            "round {round}: deactivated {deactivated:.0?}, limit lowered {limited:.0?}, paused {paused:.0?}, \
             restricted {restricted:.0?}, rotated {rotated:.0?} after the notice"
        );
    }
}
