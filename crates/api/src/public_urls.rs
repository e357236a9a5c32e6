//! The URLs in error responses and in the OpenAPI document.

/// Absolute URLs of the service and its pages.
#[derive(Clone, Debug)]
pub struct PublicUrls {
    /// The service.
    pub base: String,
    /// The error documentation. Error responses append an anchor.
    pub docs: String,
    /// The page to create an account and a key.
    pub signup: String,
    /// The page to request higher limits.
    pub enterprise: String,
    /// The page where an owner resumes a paused key.
    pub dashboard: String,
}
