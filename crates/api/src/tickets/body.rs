//! The body of the response.

use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct TicketBody<'a> {
    pub(crate) status: &'static str,
    pub(crate) ticket: &'a str,
    pub(crate) scope: &'static str,
    pub(crate) origin: Option<&'a str>,
    pub(crate) uses: u8,
    pub(crate) expires_in_s: u64,
    pub(crate) expires_at: String,
}
