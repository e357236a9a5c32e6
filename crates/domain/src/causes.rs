//! An error with its causes, for logs and commands.

use std::error::Error;
use std::fmt;
use std::iter;

/// Displays an error and its causes, separated by colons.
pub struct Causes<'a>(&'a (dyn Error + 'static));

/// An error with its causes. Loggers display only the error itself.
#[must_use]
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> Causes<'a> {
    Causes(error)
}

impl Causes<'_> {
    /// The texts of the error and its causes. A cause that the error before it already contains is left out.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for error in iter::successors(Some(self.0), |error| Error::source(*error)) {
            let text = without_arguments(without_source_line(error.to_string()));
            if texts.last().is_none_or(|last| !last.contains(&text)) {
                texts.push(text);
            }
        }
        texts
    }
}

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.texts();
        let (last, others) = texts.split_last().ok_or(fmt::Error)?;
        for text in others {
            write!(f, "{}: ", text.trim_end_matches('.'))?;
        }
        f.write_str(last)
    }
}

/// The errors of PostgreSQL end with a line of its source code.
fn without_source_line(mut text: String) -> String {
    if let Some((message, line)) = text.rsplit_once(" at line ")
        && line.bytes().all(|byte| byte.is_ascii_digit())
    {
        text.truncate(message.len());
    }
    text
}

/// A Redis that does not know a command repeats its arguments, and those of `HELLO` contain the password.
fn without_arguments(mut text: String) -> String {
    if let Some(start) = text.find(", with args beginning with") {
        text.truncate(start);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Nested {
        text: &'static str,
        #[source]
        cause: Option<Box<Self>>,
    }

    #[test]
    fn every_cause_is_shown_once() {
        let nested = |text, cause: Option<Nested>| Nested { text, cause: cause.map(Box::new) };
        let error = nested("No answer.", Some(nested("refused (os error 111)", Some(nested("os error 111", None)))));
        assert_eq!(causes(&error).to_string(), "No answer: refused (os error 111)");
        assert_eq!(causes(&nested("alone.", None)).to_string(), "alone.");
        assert_eq!(causes(&nested("no such role at line 768", None)).to_string(), "no such role");
        let unknown = "unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'secret'";
        assert_eq!(causes(&nested(unknown, None)).to_string(), "unknown command 'HELLO'");
    }
}
