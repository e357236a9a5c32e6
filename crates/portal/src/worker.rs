//! The portal's background task: sends queued emails and alerts, notifies open pages of changes, and removes expired counts of attempts.
//!
//! The email queue is in PostgreSQL. Emails that a crash or an SMTP outage left unsent are sent later, by any node. The token of
//! a link is generated when its email is written; PostgreSQL stores only its digest.

use std::sync::Arc;
use std::time::Duration;

use ipseity_domain::causes;
use ipseity_store::{
    AlertClaim, AlertTarget, EMAIL_CLAIM, QueuedAlert, SecurityEvent, Store, StoreError, WakeListener,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use crate::alerts::AlertDispatcher;
use crate::auth::session_cookie::SecretToken;
use crate::mail::content::EmailContent;
use crate::mail::{Mailer, MailerError, MailerOptions};
use crate::public_pages::SWEEP_INTERVAL;
use crate::state::Portal;

/// How often the queue is polled without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest delay before an email about an alert is tried again. Servers that ask to try again later mean minutes.
const EMAIL_RETRY_DELAY_MIN: Duration = Duration::from_secs(60);
/// Each command to the mail server has a timeout. All of them together must end before another node sends the email.
const EMAIL_TIME_MAX: Duration = Duration::from_secs(EMAIL_CLAIM.as_secs() * 3 / 4);
/// How often alerts about keys that expire soon are queued.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EmailOutcome {
    outcome: &'static str,
}

const SENT: EmailOutcome = EmailOutcome { outcome: "sent" };
const FAILED: EmailOutcome = EmailOutcome { outcome: "failed" };

/// Why the task cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum PortalWorkerError {
    /// An invalid mail setting.
    #[error(transparent)]
    Mailer(#[from] MailerError),
    /// No HTTP client for alerts.
    #[error("failed to create the HTTP client for alerts")]
    AlertClient(#[from] reqwest::Error),
}

/// The portal's background task.
pub struct PortalWorker {
    portal: Arc<Portal>,
    store: Store,
    mailer: Option<Mailer>,
    alert_dispatcher: Arc<AlertDispatcher>,
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
    ) -> Result<Self, PortalWorkerError> {
        let email_counts = Family::<EmailOutcome, Counter>::default();
        for outcome in [SENT, FAILED] {
            drop(email_counts.get_or_create(&outcome));
        }
        registry.register("emails", "Emails, by outcome", email_counts.clone());
        portal.email_limits.register_metrics(registry);
        portal.sign_in_counts.register(registry);
        let mailer = options.map(Mailer::open).transpose()?;
        let dispatcher = AlertDispatcher::open(&portal.settings.alerts, &portal.settings.base_url, registry)?;
        Ok(Self { portal, store, mailer, alert_dispatcher: Arc::new(dispatcher), email_counts })
    }

    /// Runs until it is dropped.
    pub async fn run(&self) {
        tokio::join!(
            self.portal.change_feed.run(&self.store),
            self.deliver_emails(),
            self.alert_dispatcher.run(&self.store),
            self.queue_expiry_alerts(),
            self.remove_expired_attempts()
        );
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

    async fn queue_expiry_alerts(&self) {
        loop {
            match self.store.alert_queue().queue_expiring().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error = %causes(&error), "alerts about expiring keys not queued; will retry");
                }
            }
            tokio::time::sleep(EXPIRY_CHECK_INTERVAL).await;
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
            for alert in self.store.alert_queue().claim(AlertClaim::Email).await? {
                is_empty = false;
                self.send_alert_email(mailer, &alert).await?;
            }
        }
        let listener = match listener {
            Some(listener) => listener,
            None => listener.insert(self.store.email_queue().listen().await?),
        };
        listener.wait(POLL_INTERVAL).await
    }

    async fn send_alert_email(&self, mailer: &Mailer, alert: &QueuedAlert) -> Result<(), StoreError> {
        let AlertTarget::Email(email) = &alert.target else { return Ok(()) };
        let content = EmailContent::for_alert(alert, &self.portal.settings.base_url);
        let queue = self.store.alert_queue();
        if self.send_email(mailer, email, &content, &format!("alert.{}", alert.message_id.simple())).await {
            queue.mark_sent(alert.id, "sent").await
        } else {
            queue.mark_attempt_failed(alert, "not sent", EMAIL_RETRY_DELAY_MIN).await.map(drop)
        }
    }

    /// Sends an email. Returns whether it can leave the queue, which includes emails that can never be sent.
    async fn send_email(&self, mailer: &Mailer, email: &str, content: &EmailContent, id: &str) -> bool {
        let Ok(message) = mailer.message(email, content, id) else {
            tracing::warn!("email dropped: invalid recipient address");
            self.email_counts.get_or_create(&FAILED).inc();
            return true;
        };
        let Ok(sent) = timeout(EMAIL_TIME_MAX, mailer.send(message)).await else {
            tracing::warn!("email not sent: the mail server takes too long; will retry");
            self.email_counts.get_or_create(&FAILED).inc();
            return false;
        };
        match sent {
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
