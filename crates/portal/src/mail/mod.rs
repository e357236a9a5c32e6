//! Mails: links that prove an address, and alerts. The queue is PostgreSQL's: what a crash or a mail server's outage left unsent is sent later, by any
//! node. A link's secret is drawn when its mail is written and stored as a digest only.

mod content;

use std::sync::Arc;
use std::time::Duration;

use ipseity_store::{Store, StoreError, WakeListener};
use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::Portal;
use crate::auth::session_cookie::SecretToken;
use content::EmailContent;

/// How often the queue is looked at when nothing wakes the post.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// How mails are sent.
#[derive(Clone, Debug)]
pub struct MailerOptions {
    /// `smtp://…` or `smtps://…`
    pub smtp_url: String,
    /// The sender, such as `Ipseity <no-reply@example.com>`.
    pub from: String,
    /// Time for one step of a conversation with the mail server.
    pub timeout: Duration,
}

/// A mail that cannot be sent as configured.
#[derive(Debug, thiserror::Error)]
pub enum MailerError {
    /// The server's address.
    #[error("[mail] smtp_url cannot be read; it looks like smtps://user:password@mail.example.com")]
    InvalidSmtpUrl(#[source] lettre::transport::smtp::Error),
    /// The sender's address.
    #[error("[mail] from cannot be read; it looks like Ipseity <no-reply@example.com>")]
    InvalidFromAddress(#[source] lettre::address::AddressError),
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EmailOutcome {
    outcome: &'static str,
}

const SENT: EmailOutcome = EmailOutcome { outcome: "sent" };
const FAILED: EmailOutcome = EmailOutcome { outcome: "failed" };

struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

/// The portal's background work: sends what waits, and tells open pages of changes.
pub struct PortalWorker {
    portal: Arc<Portal>,
    store: Store,
    mailer: Option<Mailer>,
    email_counts: Family<EmailOutcome, Counter>,
}

impl PortalWorker {
    /// Makes a post with a store of its own, for nobody waits for it; without options it sends nothing.
    ///
    /// # Errors
    /// When the options cannot be read.
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
        let mailer = options.map(Mailer::open).transpose()?;
        Ok(Self { portal, store, mailer, email_counts })
    }

    /// Works until it is dropped.
    pub async fn run(&self) {
        tokio::join!(self.portal.change_feed.run(&self.store), self.deliver_emails());
    }

    /// Ends the streams of open pages; to be called when the service begins to drain.
    pub fn close_streams(&self) {
        self.portal.change_feed.close();
    }

    async fn deliver_emails(&self) {
        let Some(mailer) = &self.mailer else { return };
        let mut listener = None;
        loop {
            if let Err(error) = self.deliver_pending(mailer, &mut listener).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the mails that wait could not be read");
                listener = None;
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
    }

    async fn deliver_pending(&self, mailer: &Mailer, listener: &mut Option<WakeListener>) -> Result<(), StoreError> {
        let base_url = &self.portal.settings.base_url;
        loop {
            let token = SecretToken::generate();
            let Some(queued) = self.store.email_queue().claim_next(&token.digest()).await? else { break };
            if self
                .send_email(mailer, &queued.email, &EmailContent::for_email_token(queued.kind, base_url, &token))
                .await
            {
                self.store.email_queue().mark_sent(queued.token_id).await?;
            }
        }
        while let Some(alert) = self.store.alert_queue().claim_next().await? {
            if self.send_email(mailer, &alert.email, &EmailContent::for_alert(&alert, base_url)).await {
                self.store.alert_queue().mark_sent(alert.key, &alert.day, alert.kind).await?;
            }
        }
        let listener = match listener {
            Some(listener) => listener,
            None => listener.insert(self.store.email_queue().listen().await?),
        };
        listener.wait(POLL_INTERVAL).await
    }

    /// Whether a mail is out of the queue. One that can never be sent is too.
    async fn send_email(&self, mailer: &Mailer, email: &str, content: &EmailContent) -> bool {
        let Ok(message) = mailer.message(email, content) else {
            tracing::warn!("a mail was dropped: its address is not one that mail can be sent to");
            self.email_counts.get_or_create(&FAILED).inc();
            return true;
        };
        match mailer.transport.send(message).await {
            Ok(_) => {
                self.email_counts.get_or_create(&SENT).inc();
                true
            }
            Err(error) => {
                // The server's own words often repeat the address.
                let status = error.status().map(|code| code.to_string());
                tracing::warn!(status, permanent = error.is_permanent(), "a mail could not be sent; it is tried again");
                self.email_counts.get_or_create(&FAILED).inc();
                false
            }
        }
    }
}

impl Mailer {
    fn open(options: &MailerOptions) -> Result<Self, MailerError> {
        let transport =
            AsyncSmtpTransport::<Tokio1Executor>::from_url(&options.smtp_url).map_err(MailerError::InvalidSmtpUrl)?;
        let from = options.from.parse().map_err(MailerError::InvalidFromAddress)?;
        Ok(Self { transport: transport.timeout(Some(options.timeout)).build(), from })
    }

    fn message(&self, email: &str, content: &EmailContent) -> Result<Message, Box<dyn std::error::Error>> {
        let to: Mailbox = email.parse()?;
        let message = Message::builder().from(self.from.clone()).to(to).subject(content.subject.as_str());
        // A reply of a robot to a robot helps nobody (RFC 3834).
        let message = message.raw_header(lettre::message::header::HeaderValue::new(
            lettre::message::header::HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
        Ok(message.header(ContentType::TEXT_PLAIN).body(content.text.clone())?)
    }
}
