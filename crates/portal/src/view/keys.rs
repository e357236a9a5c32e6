//! The pages about keys.

use askama::Template;

use super::chart::use_bar;
use super::{Frame, UsageView, filters};

/// A key as the list shows it.
pub(crate) struct KeyCard {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scope: &'static str,
    /// `active`, `paused` or `inactive`.
    pub(crate) state: &'static str,
    /// Such as `15 Nov 2026`.
    pub(crate) created: String,
    /// Such as `today`, `yesterday` or `12 Nov 2026`; `None` when never.
    pub(crate) last_day: Option<String>,
    /// Today's use against the day's limit.
    pub(crate) used: u64,
    pub(crate) limit: u64,
    /// Until when the secret before the last roll holds, such as `16 Nov 2026, 14:03 UTC`.
    pub(crate) old_until: Option<String>,
    /// Present while the key is paused.
    pub(crate) pause: Option<PauseView>,
}

impl KeyCard {
    /// Today's use as a bar, as SVG.
    fn bar(&self) -> String {
        use_bar(self.used, self.limit)
    }
}

/// The evidence of a pause.
pub(crate) struct PauseView {
    /// Such as `15 Nov 2026, 14:03:22 UTC`.
    pub(crate) at: String,
    /// Requests within the minute, the one too many included.
    pub(crate) requests: u32,
    /// The busiest second of the minute.
    pub(crate) peak: u16,
    /// Bars of the 60 seconds, as SVG.
    pub(crate) chart: String,
}

/// `/keys`
#[derive(Template)]
#[template(path = "keys.html")]
pub(crate) struct KeysPage {
    pub(crate) frame: Frame,
    pub(crate) keys: Vec<KeyCard>,
    pub(crate) keys_max: usize,
    /// Names what the page shows, so that its stream need not send it a second time.
    pub(crate) edition: String,
}

/// A scope to choose.
pub(crate) struct ScopeChoice {
    pub(crate) name: &'static str,
    pub(crate) sentence: &'static str,
    /// All fields that it returns, and whether the scope before it lacks them.
    pub(crate) fields: Vec<(&'static str, bool)>,
    pub(crate) chosen: bool,
}

/// `/keys/new`
#[derive(Template)]
#[template(path = "new_key.html")]
pub(crate) struct NewKeyPage {
    pub(crate) frame: Frame,
    pub(crate) name: String,
    pub(crate) scopes: Vec<ScopeChoice>,
    pub(crate) problem: Option<String>,
}

/// A key in clear, shown once: after it was made or rolled.
#[derive(Template)]
#[template(path = "minted.html")]
pub(crate) struct MintedPage {
    pub(crate) frame: Frame,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) clear: String,
    /// A line to paste into a shell.
    pub(crate) curl: String,
    /// After a roll: until when the old secret holds; `Some(None)` when it has ended.
    pub(crate) rolled: Option<Option<String>>,
}

/// Something that happened to a key.
pub(crate) struct EventRow {
    /// Such as `15 Nov 2026, 14:03 UTC`.
    pub(crate) at: String,
    /// Such as `Paused: over 300 requests within 60 seconds`.
    pub(crate) what: String,
    /// `you`, `the operator` or `the service`.
    pub(crate) by: &'static str,
}

/// `/keys/{id}`
#[derive(Template)]
#[template(path = "key.html")]
pub(crate) struct KeyPage {
    pub(crate) frame: Frame,
    pub(crate) card: KeyCard,
    pub(crate) usage: UsageView,
    pub(crate) history: Vec<EventRow>,
    pub(crate) problem: Option<String>,
}

/// `/keys/{id}/delete`
#[derive(Template)]
#[template(path = "delete_key.html")]
pub(crate) struct DeleteKeyPage {
    pub(crate) frame: Frame,
    pub(crate) id: String,
    pub(crate) name: String,
}
