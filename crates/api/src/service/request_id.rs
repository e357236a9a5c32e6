//! The id of the current request, which the log writer adds to log lines.
//!
//! The id is task-local and not a field of a log span. A span per request costs more than a whole refusal, and few
//! requests write a log line.

tokio::task_local! {
    static CURRENT: RequestId;
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The random id of a request: 16 hexadecimal digits.
#[derive(Clone, Copy)]
pub struct RequestId([u8; 16]);

impl RequestId {
    pub(crate) fn generate() -> Self {
        let number = fastrand::u64(..);
        Self(std::array::from_fn(|index| HEX_DIGITS[(number >> (4 * index) & 0xf) as usize]))
    }

    /// The id of the request that the current task handles, if any.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_get().ok()
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Runs a future with this id as the current one.
    pub(crate) async fn scope<T>(self, future: impl Future<Output = T>) -> T {
        CURRENT.scope(self, future).await
    }
}
