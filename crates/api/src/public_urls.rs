//! The addresses that error answers carry.

/// Where callers are sent to read on. Absolute addresses.
#[derive(Clone, Debug)]
pub struct PublicUrls {
    /// The service itself.
    pub base: String,
    /// The documentation; anchors are appended.
    pub docs: String,
    /// Where to get a key.
    pub signup: String,
    /// Where to ask for more than the free plan.
    pub enterprise: String,
    /// Where an owner resumes a paused key.
    pub dashboard: String,
}
