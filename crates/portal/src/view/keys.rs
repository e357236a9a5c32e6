//! The pages of keys.

use askama::Template;
use ipseity_domain::KeyStatus;

use crate::view::chart::usage_bar;
use crate::view::code_tabs::CodeTabs;
use crate::view::filters;
use crate::view::frame::PageFrame;
use crate::view::restrictions::{RestrictionField, RestrictionsError, RestrictionsPanel};
use crate::view::sparkline::sparkline;
use crate::view::style_class::StyleClass;
use crate::view::usage::UsageView;

/// A key in the list, or at the top of its page.
pub(crate) struct KeyCard {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scope: &'static str,
    pub(crate) status: KeyStatus,
    pub(crate) is_restricted: bool,
    /// Whether it expires within the days before which its owner gets an alert.
    pub(crate) expires_soon: bool,
    /// Such as `Expires 25 Nov 2026, 14:03 UTC`.
    pub(crate) expiry: Option<String>,
    /// Such as `15 Nov 2026`.
    pub(crate) created: String,
    /// Such as `today`, `yesterday` or `12 Nov 2026`; `None` when never.
    pub(crate) last_used: Option<String>,
    pub(crate) used_today: u64,
    /// Requests of each of the last days, oldest first. Only the list shows them.
    pub(crate) recent_days: Vec<u64>,
    pub(crate) daily_limit: u64,
    pub(crate) reset: QuotaReset,
    /// When the previous secret expires, such as `16 Nov 2026, 14:03 UTC`.
    pub(crate) previous_valid_until: Option<String>,
    pub(crate) burst_limit: usize,
    /// Present while the key is paused.
    pub(crate) pause: Option<PauseView>,
}

impl KeyCard {
    /// Today's usage as a bar, in SVG.
    fn usage_bar(&self) -> String {
        usage_bar(self.used_today, self.daily_limit)
    }

    /// The last days as a small chart, in SVG.
    fn sparkline(&self) -> String {
        sparkline(&self.recent_days)
    }

    pub(crate) fn is_deactivated(&self) -> bool {
        self.status == KeyStatus::Deactivated
    }

    fn has_reached_daily_limit(&self) -> bool {
        self.status == KeyStatus::DailyLimitReached
    }

    fn is_near_burst_limit(&self) -> bool {
        self.status == KeyStatus::NearBurstLimit
    }

    /// Whether requests are rejected, or will be soon, and its owner can change that. A deactivated key is as its owner wants it.
    fn needs_attention(&self) -> bool {
        match self.status {
            KeyStatus::Active => self.expires_soon,
            KeyStatus::NearDailyLimit
            | KeyStatus::NearBurstLimit
            | KeyStatus::DailyLimitReached
            | KeyStatus::Expired
            | KeyStatus::Paused => true,
            KeyStatus::Deactivated => false,
        }
    }
}

/// When today's count starts again.
pub(crate) struct QuotaReset {
    /// Such as `2026-11-16T00:00Z`.
    pub(crate) at: String,
    /// Such as `in 5 h 12 min`.
    pub(crate) remaining: String,
}

/// When and why a key was paused.
pub(crate) struct PauseView {
    /// Such as `15 Nov 2026, 14:03:22 UTC`.
    pub(crate) paused_at: String,
    /// Requests in the 60 seconds before the pause, including the one that exceeded the limit.
    pub(crate) requests: u32,
    /// Requests in the busiest second.
    pub(crate) peak_per_second: u16,
    /// Chart of the 60 seconds, in SVG.
    pub(crate) chart: String,
}

/// `/keys`
#[derive(Template)]
#[template(path = "keys.html")]
pub(crate) struct KeysPage {
    pub(crate) frame: PageFrame,
    pub(crate) keys: Vec<KeyCard>,
    pub(crate) keys_max: usize,
    /// Version of the list; with it, the event stream detects changes that the page missed.
    pub(crate) version: String,
}

impl KeysPage {
    /// The keys above the list.
    fn attention(&self) -> Vec<&KeyCard> {
        self.keys.iter().filter(|card| card.needs_attention()).collect()
    }
}

/// A scope in the form.
pub(crate) struct ScopeChoice {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// All fields of the scope, and whether the next smaller scope lacks them.
    pub(crate) fields: Vec<(&'static str, bool)>,
    pub(crate) is_selected: bool,
}

/// `/keys/new`
#[derive(Template)]
#[template(path = "new_key.html")]
pub(crate) struct NewKeyPage {
    pub(crate) frame: PageFrame,
    /// The form works once.
    pub(crate) form_token: String,
    pub(crate) name: String,
    pub(crate) scopes: Vec<ScopeChoice>,
    pub(crate) presets: PresetFields,
    pub(crate) form_error: Option<String>,
}

/// What a new key is for, with the fields that it needs.
pub(crate) struct PresetFields {
    /// `unrestricted`, `web`, `server` or `trial`.
    pub(crate) selected: &'static str,
    /// Of the preset `web`.
    pub(crate) origins: RestrictionField,
    /// Of the preset `server`.
    pub(crate) networks: RestrictionField,
    /// Of the preset `web`: requests per minute of one visitor.
    pub(crate) caller_limit: u32,
}

/// A key in plain text, shown once after it was created or rotated.
#[derive(Template)]
#[template(path = "new_secret.html")]
pub(crate) struct NewSecretPage {
    pub(crate) frame: PageFrame,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) plaintext_key: String,
    pub(crate) code: CodeTabs,
    /// Whether it works only on pages of its owner.
    pub(crate) is_for_pages: bool,
    /// After a rotation: when the old secret expires; `Some(None)` if it was revoked.
    pub(crate) rotated: Option<Option<String>>,
}

/// Whether a new key was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstRequest {
    Waiting,
    /// The key is less than a day old.
    Received,
    /// The key is older.
    LongAgo,
}

impl FirstRequest {
    pub(crate) const fn of(is_used: bool, age_s: i64) -> Self {
        match (is_used, age_s < 86_400) {
            (false, _) => Self::Waiting,
            (true, true) => Self::Received,
            (true, false) => Self::LongAgo,
        }
    }
}

/// An event in the history of a key.
pub(crate) struct KeyHistoryRow {
    /// Such as `15 Nov 2026, 14:03 UTC`.
    pub(crate) at: String,
    /// Such as `Paused: more than 300 requests in 60 seconds`.
    pub(crate) description: String,
    /// `you`, `an administrator` or `Ipseity`.
    pub(crate) actor: &'static str,
    /// The burst epoch that a pause ended, which names its page.
    pub(crate) burst_epoch: Option<i64>,
}

/// `/keys/{id}`
#[derive(Template)]
#[template(path = "key.html")]
pub(crate) struct KeyPage {
    pub(crate) frame: PageFrame,
    /// The form that rotates the key works once.
    pub(crate) form_token: String,
    pub(crate) card: KeyCard,
    pub(crate) first_request: FirstRequest,
    /// Until the first request.
    pub(crate) code: Option<CodeTabs>,
    pub(crate) usage: UsageView,
    pub(crate) restrictions: RestrictionsPanel,
    pub(crate) history: Vec<KeyHistoryRow>,
    /// The id that the events are older than.
    pub(crate) history_before: Option<i64>,
    /// The id of the last event shown, if there may be older ones.
    pub(crate) older_history: Option<i64>,
    pub(crate) form_error: Option<String>,
}

/// Asks for a confirmation before a rotation that ends the old secret immediately.
#[derive(Template)]
#[template(path = "rotate_now.html")]
pub(crate) struct RotateNowPage {
    pub(crate) frame: PageFrame,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) form_token: String,
}

/// `/keys/{id}/pauses/{epoch}`
#[derive(Template)]
#[template(path = "pause.html")]
pub(crate) struct PausePage {
    pub(crate) frame: PageFrame,
    pub(crate) key_id: String,
    pub(crate) key_name: String,
    pub(crate) pause: PauseView,
    /// Whether the key is still paused by it.
    pub(crate) is_current: bool,
    /// When the key was resumed, and the actor that resumed it.
    pub(crate) resumed: Option<(String, &'static str)>,
}

/// `/keys/{id}/delete`
#[derive(Template)]
#[template(path = "delete_key.html")]
pub(crate) struct DeleteKeyPage {
    pub(crate) frame: PageFrame,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) form_error: Option<String>,
}
