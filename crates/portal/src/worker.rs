//! The portal's background task: sends queued emails, notifies open pages of changes, and removes expired counts of attempts.
//!
//! The email queue is in PostgreSQL. Emails that a crash or an SMTP outage left unsent are sent later, by any node. The token of
//! a link is generated when its email is written; PostgreSQL stores only its digest.

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::causes;
use ipseity_store::{QueuedAlert, SecurityEvent, Store, StoreError, WakeListener};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::auth::session_cookie::SecretToken;
use crate::mail::content::EmailContent;
use crate::mail::{Mailer, MailerError, MailerOptions};
use crate::public_pages::SWEEP_INTERVAL;
use crate::state::Portal;

/// How often the queue is polled without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EmailOutcome {
    outcome: &'static str,
}

const SENT: EmailOutcome = EmailOutcome { outcome: "sent" };
const FAILED: EmailOutcome = EmailOutcome { outcome: "failed" };

/// The portal's background task.
pub struct PortalWorker {
    portal: Arc<Portal>,
    store: Store,
    mailer: Option<Mailer>,
    email_counts: Family<EmailOutcome, Counter>,
}

impl PortalWorker {
    /// Creates the task with a separate store, whose timeouts may be longer than those of pages. Without options it sends no
    /// emails.
    ///
    /// # Errors
    /// Returns an error if the options are invalid.
    pub fn open(
        portal: Arc<Portal>,
        store: Store,
        options: Option<&MailerOptions>,
        registry: &mut Registry,
    ) -> Result<Self, MailerError> {
        let email_counts = Family::<EmailOutcome, Counter>::default();
        for outcome in [SENT, FAILED] {
            drop(email_counts.get_or_create(&outcome));
        }
        registry.register("emails", "Emails, by outcome", email_counts.clone());
        portal.email_limits.register_metrics(registry);
        portal.sign_in_counts.register(registry);
        let mailer = options.map(Mailer::open).transpose()?;
        Ok(Self { portal, store, mailer, email_counts })
    }

    /// Runs until it is dropped.
    pub async fn run(&self) {
        tokio::join!(self.portal.change_feed.run(&self.store), self.deliver_emails(), self.remove_expired_attempts());
    }

    /// Ends the event streams of open pages. Call it when the service starts to drain.
    pub fn close_streams(&self) {
        self.portal.change_feed.close();
    }

    async fn remove_expired_attempts(&self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.portal.remove_expired_attempts();
        }
    }

    async fn deliver_emails(&self) {
        let Some(mailer) = &self.mailer else { return };
        let mut listener = None;
        loop {
            if let Err(error) = self.deliver_pending(mailer, &mut listener).await {
                tracing::warn!(error = %causes(&error), "email queue unavailable");
                listener = None;
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    async fn deliver_pending(&self, mailer: &Mailer, listener: &mut Option<WakeListener>) -> Result<(), StoreError> {
        let base_url = &self.portal.settings.base_url;
        // One of each queue per round, so that none of them waits for another to be empty.
        let mut is_empty = false;
        while !is_empty {
            is_empty = true;
            let token = SecretToken::generate();
            if let Some(queued) = self.store.email_queue().claim_next(&token.digest()).await? {
                is_empty = false;
                let content = EmailContent::for_email_token(queued.kind, base_url, &token);
                if self.send_email(mailer, &queued.email, &content, &link_id(&token)).await {
                    self.store.email_queue().mark_sent(queued.token_id).await?;
                }
            }
            let token = SecretToken::generate();
            if let Some(notice) = self.store.notice_queue().claim_next(&token.digest()).await? {
                is_empty = false;
                let content = EmailContent::for_notice(&notice, base_url, &token);
                let has_link = notice.event == SecurityEvent::EmailChanged;
                let id = if has_link { link_id(&token) } else { format!("notice.{}", notice.id) };
                if self.send_email(mailer, &notice.email, &content, &id).await {
                    self.store.notice_queue().mark_sent(notice.id).await?;
                }
            }
            if let Some(alert) = self.store.alert_queue().claim_next().await? {
                is_empty = false;
                let (content, id) = (EmailContent::for_alert(&alert, base_url), alert_id(&alert));
                if self.send_email(mailer, &alert.email, &content, &id).await {
                    self.store.alert_queue().mark_sent(&alert).await?;
                }
            }
        }
        let listener = match listener {
            Some(listener) => listener,
            None => listener.insert(self.store.email_queue().listen().await?),
        };
        listener.wait(POLL_INTERVAL).await
    }

    /// Sends an email. Returns whether it can leave the queue, which includes emails that can never be sent.
    async fn send_email(&self, mailer: &Mailer, email: &str, content: &EmailContent, id: &str) -> bool {
        let Ok(message) = mailer.message(email, content, id) else {
            tracing::warn!("email dropped: invalid recipient address");
            self.email_counts.get_or_create(&FAILED).inc();
            return true;
        };
        match mailer.send(message).await {
            Ok(()) => {
                self.email_counts.get_or_create(&SENT).inc();
                true
            }
            Err(error) => {
                // Not the error itself: the server's reply often repeats the address.
                let status = error.status().map(|code| code.to_string());
                tracing::warn!(status, permanent = error.is_permanent(), "email not sent; will retry");
                self.email_counts.get_or_create(&FAILED).inc();
                false
            }
        }
    }
}

/// Another id for each attempt, because each has another link and only the last one works.
fn link_id(token: &SecretToken) -> String {
    format!("link.{}", hex::encode(&token.digest()[..8]))
}

fn alert_id(alert: &QueuedAlert) -> String {
    format!("alert.{}.{}.{}.{}", alert.key, alert.day, alert.kind.name(), alert.burst_epoch)
}
