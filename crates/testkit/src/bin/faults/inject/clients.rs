//! Faults that clients cause.

use std::sync::atomic::Ordering;

use anyhow::Result;
use ipseity_domain::{BURST_LIMIT, PlaintextKey};
use ipseity_testkit::TestClient;
use tokio::task::JoinSet;

use crate::fault_kind::FaultKind;
use crate::fixture::{FREE_PLAN, FaultFixture};
use crate::history::{FaultEffect, KeyFacts};
use crate::inject::{ActiveFault, Injection};
use crate::load::{LoadClient, LoadKey, target};

/// Connections of clients with unknown keys.
const FLOOD_CONNECTIONS: usize = 48;
/// Keys that reach their burst limit together.
const BURST_KEYS: usize = 24;

impl Injection<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn begin_clients(&mut self, active: &mut ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::ClientsDisconnect => {
                self.open(active, FaultEffect::ClientsDisconnect);
                self.load.disconnects.store(true, Ordering::Relaxed);
            }
            FaultKind::UnknownKeys => {
                self.open(active, FaultEffect::Overload);
                self.start_flood(active);
            }
            FaultKind::KeysAtBurstLimit => self.exceed_burst_limits().await?,
            _ => {}
        }
        Ok(())
    }

    pub(super) async fn end_clients(&mut self, active: &mut ActiveFault) {
        if active.kind == FaultKind::ClientsDisconnect {
            self.load.disconnects.store(false, Ordering::Relaxed);
        }
        // Sessions that hold locks stay until the run ends, as those of a frozen process would.
        if active.kind == FaultKind::OutboxRowsLocked {
            active.tasks.detach_all();
            self.fixture.is_ruined = true;
        }
        active.tasks.shutdown().await;
    }

    /// Requests with keys that do not exist, as many as the nodes answer.
    fn start_flood(&self, active: &mut ActiveFault) {
        for number in 0..FLOOD_CONNECTIONS {
            let address = target(&self.load.targets, number).address;
            active.tasks.spawn(async move {
                let mut client = TestClient::new(address);
                loop {
                    let bearer = format!("Bearer {}", PlaintextKey::generate(|| fastrand::u8(..)).expose());
                    if client.get("/api/v1/ip", &[("authorization", &bearer)]).await.is_err() {
                        client = TestClient::new(address);
                        tokio::task::yield_now().await;
                    }
                }
            });
        }
    }

    /// Brings keys to their burst limit, and then sends one more request of each concurrently.
    async fn exceed_burst_limits(&mut self) -> Result<()> {
        let first = self.load.recorder.history().keys.len();
        let keys = self.fixture.issue_keys(first, &[FREE_PLAN; BURST_KEYS]).await?;
        let facts = keys.iter().map(|key| KeyFacts::new("burst", &key.id, FaultFixture::plan_limit(FREE_PLAN)));
        self.load.recorder.history().keys.extend(facts);
        self.send_concurrently(&keys, BURST_LIMIT).await;
        for _ in 0..3 {
            self.send_concurrently(&keys, 1).await;
        }
        Ok(())
    }

    async fn send_concurrently(&mut self, keys: &[LoadKey], requests: usize) {
        let mut clients = JoinSet::new();
        for (number, key) in keys.iter().enumerate() {
            let (mut client, key) = (LoadClient::new(self.load, number), key.clone());
            let mut rng = self.rng.fork();
            clients.spawn(async move {
                for _ in 0..requests {
                    client.send(&key, &mut rng).await;
                }
            });
        }
        clients.join_all().await;
    }
}
