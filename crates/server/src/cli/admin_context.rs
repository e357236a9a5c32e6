//! The stores that administrative commands work on.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use ipseity_domain::KeyStatus;
use ipseity_domain::account::EmailAddress;
use ipseity_keys::{
    CommittedChange, DeploymentGuard, DeploymentStatus, KeyActivity, KeyMetrics, KeyService, StoredKey,
};
use ipseity_ledger::Ledger;
use ipseity_store::{Account, Store};

use crate::cli::output;
use crate::config::Config;
use crate::node::backends::{background_ledger, operator_store};

/// As long as the column in PostgreSQL.
const OPERATOR_CHARS_MAX: usize = 64;

pub(super) struct AdminContext {
    pub(super) store: Store,
    pub(super) ledger: Arc<Ledger>,
    pub(super) key_service: KeyService,
    pub(super) base_url: String,
}

impl AdminContext {
    pub(super) fn open(config: &Config) -> Result<Self> {
        let store = operator_store(config, operator_name())?;
        let guard = Arc::new(DeploymentGuard::generate());
        let ledger = background_ledger(config, guard.trusted_stores())?;
        Ok(Self {
            key_service: KeyService::new(store.clone(), Arc::clone(&ledger), guard, KeyMetrics::default()),
            store,
            ledger,
            base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        })
    }

    pub(super) async fn find_account(&self, email: &str) -> Result<Account> {
        Ok(self.store.accounts().get_by_email(&parse_email(email)?).await?)
    }

    /// The statuses of keys with the requests that they follow from, in the order of `keys`.
    pub(super) async fn read_statuses(&self, keys: &[StoredKey]) -> Result<Vec<(KeyStatus, KeyActivity)>> {
        let now_s = unix_now_s()?;
        let activities = KeyActivity::read_or_last_flush(&self.ledger, keys, now_s).await;
        Ok(keys.iter().zip(activities).map(|(key, activity)| (key.status(activity, now_s), activity)).collect())
    }

    /// The service that changes keys. Fails if PostgreSQL and Redis belong to different deployments: a change would reach
    /// the wrong database. If nodes use another Redis, or one of both is unreachable, the change itself reports it.
    pub(super) async fn service_for_change(&self) -> Result<&KeyService> {
        let status = self.key_service.compare_deployment().await.unwrap_or_default();
        ensure!(status != DeploymentStatus::ForeignRedis, "nothing changed, because {status}");
        Ok(&self.key_service)
    }

    /// Warns if a committed change has not reached Redis. It stays in the outbox, and a running node applies it later.
    pub(super) fn warn_unless_in_effect(&self, committed: &CommittedChange) -> Result<()> {
        let Some(error) = &committed.publish_error else { return Ok(()) };
        let reason = error.to_string();
        let reason = reason.trim_end_matches('.');
        output::print_warning(&format!(
            "saved, but not in effect yet: {reason}. A running node applies the change as soon as it can."
        ))
    }
}

/// Unix time in seconds by this machine's clock.
pub(super) fn unix_now_s() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}

pub(super) fn parse_email(text: &str) -> Result<EmailAddress> {
    EmailAddress::parse(text).with_context(|| {
        format!("{text:?} is not an email address. Use an address such as you@example.com, without a name or quotes.")
    })
}

/// The person who runs a command, for the audit log: `IPSEITY_OPERATOR`, or the user of the shell, also under sudo.
pub(super) fn operator_name() -> String {
    let mut names = ["IPSEITY_OPERATOR", "SUDO_USER", "USER"].into_iter().filter_map(|name| std::env::var(name).ok());
    let is_allowed = |character: &char| character.is_ascii_alphanumeric() || "-_.@".contains(*character);
    let name: String = names.find(|name| !name.is_empty()).unwrap_or_default();
    let name: String = name.chars().filter(is_allowed).take(OPERATOR_CHARS_MAX).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}
