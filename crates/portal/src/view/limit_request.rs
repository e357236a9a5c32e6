//! The page of a request for a higher limit.

use askama::Template;

use crate::view::filters;
use crate::view::frame::PageFrame;

/// The last request of the account.
pub(crate) struct LastLimitRequest {
    /// `open`, `granted` or `declined`.
    pub(crate) state: &'static str,
    pub(crate) is_open: bool,
    pub(crate) daily_limit: u64,
    pub(crate) message: String,
    pub(crate) requested_at: String,
    /// Empty if there is none.
    pub(crate) answer: String,
}

/// `/account/limits`
#[derive(Template)]
#[template(path = "limit_request.html")]
pub(crate) struct LimitRequestPage {
    pub(crate) frame: PageFrame,
    pub(crate) current_limit: u64,
    pub(crate) last_request: Option<LastLimitRequest>,
    /// The wanted limit as typed.
    pub(crate) daily_limit: String,
    /// The message as typed.
    pub(crate) message: String,
    pub(crate) message_chars_max: usize,
    pub(crate) form_error: Option<String>,
}

impl LimitRequestPage {
    /// An account has at most one open request.
    fn has_open_request(&self) -> bool {
        self.last_request.as_ref().is_some_and(|request| request.is_open)
    }
}
