//! Three Redis Sentinels that watch a primary and promote its replica.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use redis::{Client, cmd};

use crate::deployment::redis::{Redis, server_binary};
use crate::eventually;
use crate::ports::ReservedPort;
use crate::process::ChildProcess;
use crate::test_dir::TestDir;

const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// They find each other by messages that they publish every two seconds.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(30);
const PRIMARY_NAME: &str = "ledger";
/// After this time without an answer, a server counts as down. Shorter, and a busy machine causes failovers.
const DOWN_AFTER_MS: u64 = 1_500;

/// Running Sentinels on 127.0.0.1.
#[derive(Debug)]
pub struct RedisSentinels {
    sentinels: Vec<(ChildProcess, ReservedPort)>,
    password: Option<String>,
    _dir: TestDir,
}

impl RedisSentinels {
    /// Starts Sentinels for a primary that has one replica, and waits until they are able to promote it.
    pub async fn start(primary: &Redis, password: Option<&str>) -> Result<Self> {
        let dir = TestDir::create()?;
        let mut sentinels = Vec::new();
        for number in 0..SENTINELS {
            let port = ReservedPort::reserve_free()?;
            let config = dir.path().join(format!("sentinel{number}.conf"));
            let mut lines = vec![
                format!("port {}", port.number()),
                "bind 127.0.0.1".to_owned(),
                format!("sentinel monitor {PRIMARY_NAME} 127.0.0.1 {} {QUORUM}", primary.address().port()),
                format!("sentinel down-after-milliseconds {PRIMARY_NAME} {DOWN_AFTER_MS}"),
                format!("sentinel failover-timeout {PRIMARY_NAME} 4000"),
            ];
            if let Some(password) = password {
                lines.extend([format!("requirepass {password}"), format!("sentinel sentinel-pass {password}")]);
            }
            fs::write(&config, lines.join("\n"))?;
            let mut command = Command::new(server_binary());
            command.arg(&config).arg("--sentinel").current_dir(dir.path());
            let process = ChildProcess::spawn(command, &dir.path().join(format!("sentinel{number}.log")))?;
            sentinels.push((process, port));
        }
        let sentinels = Self { sentinels, password: password.map(str::to_owned), _dir: dir };
        for index in 0..SENTINELS {
            let is_complete = async || {
                let Ok(state) = sentinels.state(index).await else { return false };
                let number = |name: &str| state.get(name).and_then(|value| value.parse::<usize>().ok()).unwrap_or(0);
                number("num-other-sentinels") == SENTINELS - 1 && number("num-slaves") == 1
            };
            eventually("a Sentinel knows the others and the replica", START_TIMEOUT, is_complete).await?;
        }
        Ok(sentinels)
    }

    /// URL of the primary, by the name that the Sentinels know.
    #[must_use]
    pub fn url(&self) -> String {
        let addresses: Vec<String> = self.sentinels.iter().map(|(_, port)| port.address().to_string()).collect();
        let query = self.password.as_ref().map_or(String::new(), |password| format!("?sentinel_password={password}"));
        format!("redis+sentinel://{}/{PRIMARY_NAME}{query}", addresses.join(","))
    }

    /// Addresses of the Sentinels.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(|(_, port)| port.address()).collect()
    }

    /// Kills a Sentinel.
    pub fn kill9(&mut self, index: usize) {
        self.sentinels[index].0.kill9();
    }

    /// Waits until all running Sentinels report this server as the primary.
    pub async fn await_promotion_of(&mut self, server: &Redis) -> Result<()> {
        let port = server.address().port().to_string();
        for index in 0..SENTINELS {
            if self.sentinels[index].0.is_running() {
                let reports = async || self.state(index).await.is_ok_and(|state| state.get("port") == Some(&port));
                eventually("the Sentinels report the promoted replica", FAILOVER_TIMEOUT, reports).await?;
            }
        }
        Ok(())
    }

    async fn state(&self, index: usize) -> Result<std::collections::HashMap<String, String>> {
        let (_, port) = self.sentinels.get(index).context("no such Sentinel")?;
        let credentials = self.password.as_ref().map_or(String::new(), |password| format!(":{password}@"));
        let client = Client::open(format!("redis://{credentials}{}", port.address()))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        Ok(cmd("SENTINEL").arg("MASTER").arg(PRIMARY_NAME).query_async(&mut connection).await?)
    }
}
