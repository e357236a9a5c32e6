//! An SMTP server on a free port that accepts all emails and keeps them.
//!
//! It runs on its own threads, because tests that share one have separate runtimes. It supports neither TLS nor
//! authentication.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use anyhow::{Context, Result};

use crate::eventually;

const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(20);

/// A received email.
#[derive(Debug, Clone)]
pub struct ReceivedEmail {
    /// Recipients of the envelope.
    pub to: Vec<String>,
    /// Subject.
    pub subject: String,
    /// Decoded text.
    pub text: String,
}

impl ReceivedEmail {
    /// URLs in the text.
    #[must_use]
    pub fn links(&self) -> Vec<&str> {
        self.text.split_whitespace().filter(|word| word.starts_with("http")).collect()
    }
}

#[derive(Debug, Default)]
struct SmtpSinkState {
    emails: Mutex<Vec<ReceivedEmail>>,
    is_offline: AtomicBool,
    is_stopped: AtomicBool,
}

impl SmtpSinkState {
    fn lock(&self) -> MutexGuard<'_, Vec<ReceivedEmail>> {
        self.emails.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running SMTP server; ends when dropped.
#[derive(Debug)]
pub struct SmtpSink {
    address: SocketAddr,
    state: Arc<SmtpSinkState>,
}

impl SmtpSink {
    /// Starts a server on a free port of 127.0.0.1.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let sink = Self { address: listener.local_addr()?, state: Arc::default() };
        let state = Arc::clone(&sink.state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.is_stopped.load(Ordering::Acquire) {
                    return;
                }
                let state = Arc::clone(&state);
                // A session that breaks off leaves no email, as with any server.
                thread::spawn(move || serve_session(stream, &state));
            }
        });
        Ok(sink)
    }

    /// URL for the setting `[mail] smtp_url`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("smtp://{}", self.address)
    }

    /// Rejects all connections, or accepts them again.
    pub fn set_offline(&self, is_offline: bool) {
        self.state.is_offline.store(is_offline, Ordering::Release);
    }

    /// Waits for an email to this address with this text in its subject, and removes the oldest.
    pub async fn wait_for_email(&self, address: &str, subject_part: &str) -> Result<ReceivedEmail> {
        let mut found = None;
        let what = format!("an email to {address} with the subject {subject_part:?}");
        eventually(&what, ARRIVAL_TIMEOUT, async || {
            found = self.take_email(address, subject_part);
            found.is_some()
        })
        .await?;
        found.context(what)
    }

    /// Remaining emails to this address, oldest first.
    #[must_use]
    pub fn emails_to(&self, address: &str) -> Vec<ReceivedEmail> {
        self.state.lock().iter().filter(|mail| mail.to.iter().any(|to| to == address)).cloned().collect()
    }

    /// All remaining emails.
    #[must_use]
    pub fn emails(&self) -> Vec<ReceivedEmail> {
        self.state.lock().clone()
    }

    fn take_email(&self, address: &str, subject_part: &str) -> Option<ReceivedEmail> {
        let mut emails = self.state.lock();
        let matches =
            |mail: &ReceivedEmail| mail.to.iter().any(|to| to == address) && mail.subject.contains(subject_part);
        let index = emails.iter().position(matches)?;
        Some(emails.remove(index))
    }
}

impl Drop for SmtpSink {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Release);
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.address));
    }
}

/// Serves one session (RFC 5321).
fn serve_session(mut stream: TcpStream, state: &SmtpSinkState) -> io::Result<()> {
    if state.is_offline.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    stream.write_all(b"220 localhost\r\n")?;
    let mut to = Vec::new();
    while let Some(line) = lines.next().transpose()? {
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
        let reply: &[u8] = match verb.as_str() {
            "EHLO" => b"250-localhost\r\n250-8BITMIME\r\n250 SMTPUTF8\r\n",
            "RCPT" => {
                to.extend(line.split(['<', '>']).nth(1).map(str::to_owned));
                b"250 ok\r\n"
            }
            "DATA" => {
                stream.write_all(b"354 continue\r\n")?;
                let email = read_email(&mut lines, std::mem::take(&mut to))?;
                state.lock().push(email);
                b"250 kept\r\n"
            }
            "QUIT" => return stream.write_all(b"221 bye\r\n"),
            _ => b"250 ok\r\n",
        };
        stream.write_all(reply)?;
    }
    Ok(())
}

/// Reads an email up to the line with a single dot.
fn read_email(lines: &mut impl Iterator<Item = io::Result<String>>, to: Vec<String>) -> io::Result<ReceivedEmail> {
    let mut text = Vec::new();
    for line in lines {
        match line?.as_str() {
            "." => return Ok(parse_email(&text, to)),
            line => text.push(line.strip_prefix('.').unwrap_or(line).to_owned()),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn parse_email(lines: &[String], to: Vec<String>) -> ReceivedEmail {
    let (head, body) = match lines.iter().position(String::is_empty) {
        Some(blank) => (&lines[..blank], &lines[blank + 1..]),
        None => (lines, &[][..]),
    };
    // A header line that starts with a space continues the previous one.
    let head = head.join("\n").replace("\n ", " ").replace("\n\t", " ");
    let header =
        |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    let body = body.join("\n");
    let text =
        if header("Content-Transfer-Encoding:") == "quoted-printable" { decode_quoted_printable(&body) } else { body };
    ReceivedEmail { to, subject: header("Subject:"), text }
}

/// Decodes quoted-printable text (RFC 2045).
fn decode_quoted_printable(text: &str) -> String {
    let joined = text.replace("=\n", "");
    let mut parts = joined.split('=');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => bytes.extend_from_slice(part.as_bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn parse_test_email(text: &str) -> ReceivedEmail {
        let mut lines = text.lines().map(|line| Ok(line.to_owned()));
        read_email(&mut lines, vec!["ada@example.com".to_owned()]).expect("email arrives")
    }

    #[test]
    fn received_email_is_decoded() {
        let plain =
            parse_test_email("From: us\nSubject: Confirm\n your address\n\nOpen:\n\nhttps://here/link/1\n..\n.\n");
        assert_eq!((plain.subject.as_str(), plain.links()), ("Confirm your address", vec!["https://here/link/1"]));
        assert!(plain.text.ends_with("\n."));
        let quoted = parse_test_email(
            "Subject: x\nContent-Transfer-Encoding: quoted-printable\n\n80=C2=A0%, one =\nline=3D\n.\n",
        );
        assert_eq!(quoted.text, "80\u{a0}%, one line=");
    }

    /// Sends all commands of a session and returns the server's replies.
    fn send_session(mailbox: &SmtpSink, lines: &str) -> String {
        let mut stream = TcpStream::connect(mailbox.address).expect("connection opens");
        let mut received = String::new();
        stream
            .write_all(lines.as_bytes())
            .and_then(|()| stream.read_to_string(&mut received))
            .expect("session succeeds");
        received
    }

    #[tokio::test]
    async fn email_is_taken_once_and_refused_while_the_sink_is_offline() {
        let mailbox = SmtpSink::start().expect("SMTP server starts");
        let mail = "EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<ada@example.com>\r\nDATA\r\nSubject: hello\r\n\r\nhi\r\n.\r\nQUIT\r\n";
        assert!(send_session(&mailbox, mail).contains("250 kept"));
        assert_eq!(mailbox.emails_to("ada@example.com").len(), 1);
        let taken = mailbox.wait_for_email("ada@example.com", "hell").await.expect("email arrives");
        assert_eq!(taken.text, "hi");
        assert!(mailbox.emails_to("ada@example.com").is_empty());
        mailbox.set_offline(true);
        assert_eq!(send_session(&mailbox, ""), "");
    }
}
