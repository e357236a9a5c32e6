//! Why a request is refused before it is handled.

/// A defect of a request that the network edge finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The request is not valid HTTP.
    Malformed,
    /// The `Host` header is missing, repeated or invalid.
    InvalidHost,
    /// The header block is too large, or has too many fields.
    HeadersTooLarge,
    /// The URL is too long.
    UriTooLong,
    /// The request came in plain HTTP to a port for HTTPS.
    PlainHttp,
}
