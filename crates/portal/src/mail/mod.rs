//! Mails: links that prove an address, and alerts. The queue is PostgreSQL's: what a crash or a mail server's outage left unsent is sent later, by any
//! node. A link's secret is drawn when its mail is written and stored as a digest only.

mod letter;

use std::sync::Arc;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use store::{Store, StoreError, Wake};

use crate::Portal;
use crate::visit::Secret;
use letter::Letter;

/// How often the queue is looked at when nothing wakes the post.
const ROUND: Duration = Duration::from_secs(2);

/// How mails are sent.
#[derive(Clone, Debug)]
pub struct MailOptions {
    /// `smtp://…` or `smtps://…`
    pub smtp_url: String,
    /// The sender, such as `Ipseity <no-reply@example.com>`.
    pub from: String,
    /// Time for one step of a conversation with the mail server.
    pub timeout: Duration,
}

/// A mail that cannot be sent as configured.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The server's address.
    #[error("[mail] smtp_url cannot be read; it looks like smtps://user:password@mail.example.com")]
    Url(#[source] lettre::transport::smtp::Error),
    /// The sender's address.
    #[error("[mail] from cannot be read; it looks like Ipseity <no-reply@example.com>")]
    From(#[source] lettre::address::AddressError),
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

const SENT: Outcome = Outcome { outcome: "sent" };
const FAILED: Outcome = Outcome { outcome: "failed" };

struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

/// The portal's background work: sends what waits, and tells open pages of changes.
pub struct Post {
    portal: Arc<Portal>,
    store: Store,
    mailer: Option<Mailer>,
    mails: Family<Outcome, Counter>,
}

impl Post {
    /// Makes a post with a store of its own, for nobody waits for it; without options it sends nothing.
    ///
    /// # Errors
    /// When the options cannot be read.
    pub fn open(
        portal: Arc<Portal>,
        store: Store,
        options: Option<&MailOptions>,
        registry: &mut Registry,
    ) -> Result<Self, MailError> {
        let mails = Family::<Outcome, Counter>::default();
        for outcome in [SENT, FAILED] {
            drop(mails.get_or_create(&outcome));
        }
        registry.register("mails", "Mails, by what became of them", mails.clone());
        let mailer = options.map(Mailer::open).transpose()?;
        Ok(Self { portal, store, mailer, mails })
    }

    /// Works until it is dropped.
    pub async fn run(&self) {
        tokio::join!(self.portal.hub.run(&self.store), self.deliver());
    }

    /// Ends the streams of open pages; to be called when the service begins to drain.
    pub fn close(&self) {
        self.portal.hub.close();
    }

    async fn deliver(&self) {
        let Some(mailer) = &self.mailer else { return };
        let mut wake = None;
        loop {
            if let Err(error) = self.round(mailer, &mut wake).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the mails that wait could not be read");
                wake = None;
                tokio::time::sleep(ROUND).await;
            }
        }
    }

    async fn round(&self, mailer: &Mailer, wake: &mut Option<Wake>) -> Result<(), StoreError> {
        let base_url = &self.portal.settings.base_url;
        loop {
            let secret = Secret::mint();
            let Some(next) = self.store.next_letter(&secret.digest()).await? else { break };
            if self.send(mailer, &next.email, &Letter::of_ticket(next.kind, base_url, &secret)).await {
                self.store.letter_sent(next.ticket).await?;
            }
        }
        while let Some(alert) = self.store.next_alert().await? {
            if self.send(mailer, &alert.email, &Letter::of_alert(&alert, base_url)).await {
                self.store.alert_sent(alert.key, &alert.day, alert.kind).await?;
            }
        }
        let wake = match wake {
            Some(wake) => wake,
            None => wake.insert(self.store.listen_mail().await?),
        };
        wake.wait(ROUND).await
    }

    /// Whether a mail is out of the queue. One that can never be sent is too.
    async fn send(&self, mailer: &Mailer, email: &str, letter: &Letter) -> bool {
        let Ok(message) = mailer.message(email, letter) else {
            tracing::warn!("a mail was dropped: its address is not one that mail can be sent to");
            self.mails.get_or_create(&FAILED).inc();
            return true;
        };
        match mailer.transport.send(message).await {
            Ok(_) => {
                self.mails.get_or_create(&SENT).inc();
                true
            }
            Err(error) => {
                // The server's own words often repeat the address.
                let status = error.status().map(|code| code.to_string());
                tracing::warn!(status, permanent = error.is_permanent(), "a mail could not be sent; it is tried again");
                self.mails.get_or_create(&FAILED).inc();
                false
            }
        }
    }
}

impl Mailer {
    fn open(options: &MailOptions) -> Result<Self, MailError> {
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(&options.smtp_url).map_err(MailError::Url)?;
        let from = options.from.parse().map_err(MailError::From)?;
        Ok(Self { transport: transport.timeout(Some(options.timeout)).build(), from })
    }

    fn message(&self, email: &str, letter: &Letter) -> Result<Message, Box<dyn std::error::Error>> {
        let to: Mailbox = email.parse()?;
        let message = Message::builder().from(self.from.clone()).to(to).subject(letter.subject.as_str());
        // A reply of a robot to a robot helps nobody (RFC 3834).
        let message = message.raw_header(lettre::message::header::HeaderValue::new(
            lettre::message::header::HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
        Ok(message.header(ContentType::TEXT_PLAIN).body(letter.text.clone())?)
    }
}
