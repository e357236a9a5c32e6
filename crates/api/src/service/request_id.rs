//! The request that is being answered, by its id: log lines that are written meanwhile carry it.
//!
//! Not a span of the log: making one for every request costs more than all that a refusal does, and hardly any request writes a line.

tokio::task_local! {
    static CURRENT: RequestId;
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The random name of a request: sixteen hexadecimal digits.
#[derive(Clone, Copy)]
pub struct RequestId([u8; 16]);

impl RequestId {
    pub(crate) fn generate() -> Self {
        let number = fastrand::u64(..);
        Self(std::array::from_fn(|index| HEX_DIGITS[(number >> (4 * index) & 0xf) as usize]))
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
    pub(crate) async fn scope<T>(self, future: impl Future<Output = T>) -> T {
        CURRENT.scope(self, future).await
    }
}
