//! Sends emails over SMTP.

pub(crate) mod content;

use std::time::Duration;

use lettre::message::header::ContentType;
use lettre::message::{Mailbox, header};
use lettre::transport::smtp;
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};

use content::EmailContent;

/// How emails are sent.
#[derive(Clone, Debug)]
pub struct MailerOptions {
    /// `smtp://…` or `smtps://…`
    pub smtp_url: String,
    /// From address, such as `Ipseity <no-reply@example.com>`.
    pub from: String,
    /// Timeout of one SMTP command.
    pub timeout: Duration,
}

/// An invalid mail setting.
#[derive(Debug, thiserror::Error)]
pub enum MailerError {
    /// The SMTP URL is invalid.
    #[error("failed to parse [mail] smtp_url. Use a URL such as smtps://user:password@mail.example.com")]
    InvalidSmtpUrl(#[source] smtp::Error),
    /// The from address is invalid.
    #[error("failed to parse [mail] from. Use an address such as Ipseity <no-reply@example.com>")]
    InvalidFromAddress(#[source] lettre::address::AddressError),
}

/// The SMTP client.
pub(crate) struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl Mailer {
    pub(crate) fn open(options: &MailerOptions) -> Result<Self, MailerError> {
        let transport =
            AsyncSmtpTransport::<Tokio1Executor>::from_url(&options.smtp_url).map_err(MailerError::InvalidSmtpUrl)?;
        let from = options.from.parse().map_err(MailerError::InvalidFromAddress)?;
        Ok(Self { transport: transport.timeout(Some(options.timeout)).build(), from })
    }

    /// An email to a bare address. A display name would be text that the recipient did not choose. The id is the same when the
    /// email is sent again, so that mail servers can recognize a duplicate.
    pub(crate) fn message(
        &self,
        email: &str,
        content: &EmailContent,
        id: &str,
    ) -> Result<Message, Box<dyn std::error::Error>> {
        let to = Mailbox::new(None, email.parse::<Address>()?);
        let id = format!("<{id}@{}>", self.from.email.domain());
        let message =
            Message::builder().from(self.from.clone()).to(to).subject(content.subject.as_str()).message_id(Some(id));
        // Prevents automatic replies (RFC 3834).
        let message = message.raw_header(header::HeaderValue::new(
            header::HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
        Ok(message.header(ContentType::TEXT_PLAIN).body(content.text.clone())?)
    }

    pub(crate) async fn send(&self, message: Message) -> Result<(), smtp::Error> {
        self.transport.send(message).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use ipseity_domain::account::EmailAddress;

    use super::*;

    #[test]
    fn recipient_is_the_address_alone() {
        let options = MailerOptions {
            smtp_url: "smtp://localhost".to_owned(),
            from: "Ipseity <no-reply@localhost>".to_owned(),
            timeout: Duration::from_secs(1),
        };
        let mailer = Mailer::open(&options).expect("options are valid");
        let content = EmailContent { subject: "Hello".to_owned(), text: "Hello".to_owned() };
        for typed in ["Ada@Example.com", "!#$%&'*+-/=?^_`{|}~.a@b\u{fc}cher.example", "root@localhost", "0@1.example"] {
            let email = EmailAddress::parse(typed).expect("address is valid").to_string();
            let message = mailer.message(&email, &content, "1").expect("every parsed address can be a recipient");
            let recipients: Vec<_> = message.envelope().to().iter().map(Address::to_string).collect();
            assert_eq!((recipients, message.headers().get_raw("To")), (vec![email.clone()], Some(email.as_str())));
        }
        assert!(mailer.message("Prize<target@victim.example>", &content, "1").is_err());
    }
}
