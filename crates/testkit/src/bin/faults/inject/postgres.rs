//! Faults of PostgreSQL.

use std::process::Stdio;

use anyhow::{Context, Result};
use ipseity_testkit::{FaultConfig, FaultProxy};
use tokio::process::Command;

use crate::fault_kind::FaultKind;
use crate::history::FaultEffect;
use crate::inject::{ActiveFault, Injection};

impl Injection<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn begin_postgres(&mut self, active: &mut ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::PostgresKilled | FaultKind::PostgresMultiHostFailover | FaultKind::BothKilled => {
                self.open(active, FaultEffect::PostgresUnreachable);
                self.fixture.deployment.postgres.kill9();
            }
            FaultKind::PostgresRestarted => {
                self.open(active, FaultEffect::PostgresUnreachable);
                self.fixture.deployment.postgres.stop().await?;
            }
            FaultKind::PostgresFrozen | FaultKind::BothFrozen => {
                self.open(active, FaultEffect::PostgresUnreachable);
                self.fixture.deployment.postgres.freeze();
            }
            FaultKind::PostgresSessionsEnded => self.open(active, FaultEffect::PostgresUnreachable),
            FaultKind::PostgresFailover | FaultKind::PostgresSwitchover => {
                let postgres = &self.fixture.deployment.postgres;
                let link = FaultProxy::open(postgres.address())?;
                let replica = postgres.start_replica(link.address()).await?;
                if active.kind == FaultKind::PostgresFailover {
                    // The replica stays behind from here.
                    self.open(active, FaultEffect::CommitsLost);
                    link.set_faults(FaultConfig { half_open: true, ..FaultConfig::none() });
                }
                active.replica = Some((replica, link));
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) async fn tick_postgres(&mut self, active: &mut ActiveFault) -> Result<()> {
        let postgres = &self.fixture.deployment.postgres;
        if active.kind == FaultKind::PostgresSessionsEnded {
            let sql = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'ipseity%'";
            postgres.psql("ipseity", sql).await?;
        }
        if active.kind == FaultKind::OutboxRowsLocked {
            // A session that locks rows and then does nothing, like that of a frozen process.
            let sql = "begin; select id from outbox for update skip locked; select pg_sleep(30)";
            let mut session = Command::new("psql");
            session.args(["--no-psqlrc", "--quiet", "-c", sql]).arg(postgres.url("ipseity"));
            session.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            let mut session = session.spawn().context("failed to start psql")?;
            active.tasks.spawn(async move {
                let _ = session.wait().await;
            });
        }
        Ok(())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds are handled in other files")]
    pub(super) async fn end_postgres(&mut self, active: &mut ActiveFault) -> Result<()> {
        match active.kind {
            FaultKind::PostgresKilled | FaultKind::PostgresRestarted | FaultKind::BothKilled => {
                self.fixture.deployment.postgres.restart().await?;
            }
            FaultKind::PostgresMultiHostFailover => {
                // Nodes and commands find it by themselves.
                let standby = self.fixture.stores.postgres_standby.take().context("there is a standby")?;
                standby.promote().await?;
                self.fixture.deployment.postgres = standby;
                self.fixture.is_ruined = true;
            }
            FaultKind::PostgresFrozen | FaultKind::BothFrozen => self.fixture.deployment.postgres.thaw(),
            FaultKind::PostgresFailover | FaultKind::PostgresSwitchover => {
                let (replica, link) = active.replica.take().context("the replica was started")?;
                let from = self.now();
                let primary = &mut self.fixture.deployment.postgres;
                if active.kind == FaultKind::PostgresFailover {
                    primary.kill9();
                } else {
                    // A clean stop sends everything to the replica.
                    primary.stop().await?;
                }
                link.set_faults(FaultConfig { cut: true, ..FaultConfig::none() });
                replica.promote().await?;
                self.fixture.replace_postgres(replica);
                self.record(FaultEffect::PostgresUnreachable, from);
            }
            _ => {}
        }
        Ok(())
    }
}
