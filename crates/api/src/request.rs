//! The request that is being answered, by its id: log lines that are written meanwhile carry it.
//!
//! Not a span of the log: making one for every request costs more than all that a refusal does, and hardly any request writes a line.

use std::io::Write;

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The random name of a request: sixteen hexadecimal digits.
#[derive(Clone, Copy)]
pub struct RequestId([u8; 16]);

impl RequestId {
    pub(crate) fn draw() -> Self {
        let mut digits = [0; 16];
        // Sixteen digits fit.
        let _ = write!(digits.as_mut_slice(), "{:016x}", fastrand::u64(..));
        Self(digits)
    }

    /// That of the request whose answer is being made, where one is.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_get().ok()
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Answers under this id.
    pub(crate) async fn cover<T>(self, answer: impl Future<Output = T>) -> T {
        CURRENT.scope(self, answer).await
    }
}
