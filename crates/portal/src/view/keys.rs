//! The pages about keys.

use askama::Template;

use crate::view::chart::usage_bar;
use crate::view::{PageFrame, UsageView, filters};

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
    pub(crate) last_used: Option<String>,
    /// Today's use against the day's limit.
    pub(crate) used_today: u64,
    pub(crate) daily_limit: u64,
    /// Until when the secret before the last roll holds, such as `16 Nov 2026, 14:03 UTC`.
    pub(crate) previous_valid_until: Option<String>,
    /// Present while the key is paused.
    pub(crate) pause: Option<PauseView>,
}

impl KeyCard {
    /// Today's use as a bar, as SVG.
    fn usage_bar(&self) -> String {
        usage_bar(self.used_today, self.daily_limit)
    }
}

/// The evidence of a pause.
pub(crate) struct PauseView {
    /// Such as `15 Nov 2026, 14:03:22 UTC`.
    pub(crate) paused_at: String,
    /// Requests within the minute, the one too many included.
    pub(crate) requests: u32,
    /// The busiest second of the minute.
    pub(crate) peak_per_second: u16,
    /// Bars of the 60 seconds, as SVG.
    pub(crate) chart: String,
}

/// `/keys`
#[derive(Template)]
#[template(path = "keys.html")]
pub(crate) struct KeysPage {
    pub(crate) frame: PageFrame,
    pub(crate) keys: Vec<KeyCard>,
    pub(crate) keys_max: usize,
    /// Names what the page shows, so that its stream need not send it a second time.
    pub(crate) version: String,
}

/// A scope to choose.
pub(crate) struct ScopeChoice {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// All fields that it returns, and whether the scope before it lacks them.
    pub(crate) fields: Vec<(&'static str, bool)>,
    pub(crate) is_selected: bool,
}

/// `/keys/new`
#[derive(Template)]
#[template(path = "new_key.html")]
pub(crate) struct NewKeyPage {
    pub(crate) frame: PageFrame,
    pub(crate) name: String,
    pub(crate) scopes: Vec<ScopeChoice>,
    pub(crate) form_error: Option<String>,
}

/// A key in clear, shown once: after it was made or rolled.
#[derive(Template)]
#[template(path = "new_secret.html")]
pub(crate) struct NewSecretPage {
    pub(crate) frame: PageFrame,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) clear_key: String,
    /// A line to paste into a shell.
    pub(crate) curl_command: String,
    /// After a roll: until when the old secret holds; `Some(None)` when it has ended.
    pub(crate) rotated: Option<Option<String>>,
}

/// Something that happened to a key.
pub(crate) struct KeyHistoryRow {
    /// Such as `15 Nov 2026, 14:03 UTC`.
    pub(crate) at: String,
    /// Such as `Paused: over 300 requests within 60 seconds`.
    pub(crate) description: String,
    /// `you`, `the operator` or `the service`.
    pub(crate) actor: &'static str,
}

/// `/keys/{id}`
#[derive(Template)]
#[template(path = "key.html")]
pub(crate) struct KeyPage {
    pub(crate) frame: PageFrame,
    pub(crate) card: KeyCard,
    pub(crate) usage: UsageView,
    pub(crate) history: Vec<KeyHistoryRow>,
    pub(crate) form_error: Option<String>,
}

/// `/keys/{id}/delete`
#[derive(Template)]
#[template(path = "delete_key.html")]
pub(crate) struct DeleteKeyPage {
    pub(crate) frame: PageFrame,
    pub(crate) id: String,
    pub(crate) name: String,
}
