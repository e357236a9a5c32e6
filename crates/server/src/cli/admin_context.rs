//! The stores that administrative commands work on.

use anyhow::{Context, Result};
use ipseity_domain::account::EmailAddress;
use ipseity_domain::{KeyChange, KeyId};
use ipseity_ledger::Ledger;
use ipseity_store::{Account, Store};

use crate::cli::output;
use crate::config::Config;
use crate::node::backends::{background_ledger, background_store};
use crate::tasks::outbox::record_pauses;

pub(super) struct AdminContext {
    pub(super) store: Store,
    pub(super) ledger: Ledger,
    pub(super) base_url: String,
}

impl AdminContext {
    pub(super) fn open(config: &Config) -> Result<Self> {
        Ok(Self {
            store: background_store(config, "ipseity-cli")?,
            ledger: background_ledger(config)?,
            base_url: config.public.base_url.trim_end_matches('/').to_owned(),
        })
    }

    pub(super) async fn find_account(&self, email: &str) -> Result<Account> {
        Ok(self.store.accounts().get_by_email(&parse_email(email)?).await?)
    }

    /// Applies a committed change to Redis and removes it from the outbox. If Redis is unreachable, the change stays in the outbox and a running
    /// node applies it later, so that case is only a warning.
    pub(super) async fn publish_change(&self, change: &KeyChange) -> Result<()> {
        let publish = async {
            self.ledger.apply_change(change).await?;
            anyhow::Ok(self.store.outbox().ack(change).await?)
        };
        if let Err(error) = publish.await {
            output::print_warning(&format!(
                "saved, but not in effect yet: {error:#}. A running node applies the change as soon as it can."
            ))?;
        }
        Ok(())
    }

    /// Copies a pause that only Redis has to PostgreSQL, so that the key can be resumed.
    pub(super) async fn record_pauses(&self, id: KeyId) -> Result<()> {
        match self.ledger.unrecorded_pauses_of(id).await {
            Ok(pauses) => record_pauses(&self.store, &self.ledger, &pauses).await,
            Err(error) => output::print_warning(&format!(
                "failed to read recent pauses: {error:#}. A pause of the last few seconds may be missing."
            )),
        }
    }
}

pub(super) fn parse_email(text: &str) -> Result<EmailAddress> {
    EmailAddress::parse(text).with_context(|| format!("{text:?} is not an email address"))
}
