//! Pages about the whole service.

use askama::Template;
use ipseity_store::ConsoleOverview;

use crate::console::host::HealthCheck;
use crate::console::view::accounts::AccountItem;
use crate::console::view::frame::ConsoleFrame;
use crate::view::filters;

/// `/`
#[derive(Template)]
#[template(path = "console/overview.html")]
pub(crate) struct OverviewPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) overview: ConsoleOverview,
    /// Such as `1,234`, or `about 1,000,000`.
    pub(crate) accounts: String,
    pub(crate) keys: String,
    pub(crate) paused_keys: String,
    pub(crate) deactivated_keys: String,
    /// The stores that this node does not reach.
    pub(crate) failed_stores: Vec<&'static str>,
    /// The number of nodes without a heartbeat.
    pub(crate) missing_nodes: usize,
}

/// A count of a day.
pub(crate) struct DayCount {
    pub(crate) day: String,
    pub(crate) count: i64,
}

/// `/sign-ups`
#[derive(Template)]
#[template(path = "console/sign_ups.html")]
pub(crate) struct SignUpsPage {
    pub(crate) frame: ConsoleFrame,
    /// In the days.
    pub(crate) total: i64,
    pub(crate) days: Vec<DayCount>,
    pub(crate) accounts: Vec<AccountItem>,
    /// The account before which the next page begins.
    pub(crate) next_before: Option<i64>,
    pub(crate) open_invitations: u64,
}

/// An invitation, shown once.
#[derive(Template)]
#[template(path = "console/invitation.html")]
pub(crate) struct InvitationPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) email: String,
    pub(crate) url: String,
}

/// The rejected requests of a day.
pub(crate) struct RejectionDay {
    pub(crate) day: String,
    pub(crate) total: u64,
    /// Burst limit, while paused, deactivated, daily quota, invalid secret, restrictions.
    pub(crate) by_reason: [u64; 6],
}

/// `/rejections`
#[derive(Template)]
#[template(path = "console/rejections.html")]
pub(crate) struct RejectionsPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) days: Vec<RejectionDay>,
}

/// A request for a higher limit.
pub(crate) struct LimitRequestItem {
    pub(crate) id: i64,
    pub(crate) account_id: i64,
    pub(crate) email: String,
    pub(crate) daily_limit: u64,
    pub(crate) message: String,
    pub(crate) answer: String,
    pub(crate) created: String,
    pub(crate) decided: Option<String>,
}

/// `/requests`
#[derive(Template)]
#[template(path = "console/requests.html")]
pub(crate) struct RequestsPage {
    pub(crate) frame: ConsoleFrame,
    /// `open`, `granted` or `declined`.
    pub(crate) state: &'static str,
    /// Whether there may be more than the page shows.
    pub(crate) is_cut: bool,
    pub(crate) requests: Vec<LimitRequestItem>,
}

/// An email that is not sent yet.
pub(crate) struct UnsentEmailItem {
    pub(crate) queue: &'static str,
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) email: String,
    pub(crate) created: String,
    pub(crate) attempts: i32,
    pub(crate) next_attempt: Option<String>,
    /// `queued`, `failed` or `expired`.
    pub(crate) state: &'static str,
}

/// `/emails`
#[derive(Template)]
#[template(path = "console/emails.html")]
pub(crate) struct EmailsPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) emails: Vec<UnsentEmailItem>,
}

/// A node, or the remote nodes of a site.
pub(crate) struct NodeItem {
    pub(crate) name: String,
    pub(crate) role: &'static str,
    pub(crate) site: String,
    pub(crate) version: Option<String>,
    pub(crate) schema_version: Option<i64>,
    pub(crate) started: Option<String>,
    pub(crate) seen_ago_s: i64,
    pub(crate) is_missing: bool,
    pub(crate) is_draining: bool,
    pub(crate) is_degraded: bool,
}

/// `/nodes`
#[derive(Template)]
#[template(path = "console/nodes.html")]
pub(crate) struct NodesPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) nodes: Vec<NodeItem>,
    pub(crate) sites: Vec<String>,
}

/// A geo database in use.
pub(crate) struct EditionItem {
    pub(crate) name: String,
    pub(crate) built: String,
    pub(crate) age_days: i64,
    pub(crate) attribution: Option<&'static str>,
}

/// A certificate in use.
pub(crate) struct CertificateItem {
    pub(crate) name: String,
    pub(crate) expires: String,
    pub(crate) expires_soon: bool,
}

/// `/system`
#[derive(Template)]
#[template(path = "console/system.html")]
pub(crate) struct SystemPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) health: Vec<HealthCheck>,
    pub(crate) editions: Vec<EditionItem>,
    pub(crate) certificates: Vec<CertificateItem>,
    pub(crate) settings: Vec<(String, String)>,
}

/// An event of the audit log.
pub(crate) struct AuditEventItem {
    pub(crate) at: String,
    pub(crate) action: String,
    /// The name of an operator, `owner` or `service`.
    pub(crate) actor: String,
    /// The account's id and email address.
    pub(crate) account: Option<(i64, String)>,
    pub(crate) key: Option<String>,
    pub(crate) subject: Option<String>,
}

/// `/audit`
#[derive(Template)]
#[template(path = "console/audit.html")]
pub(crate) struct AuditPage {
    pub(crate) frame: ConsoleFrame,
    pub(crate) account: String,
    pub(crate) key: String,
    pub(crate) operator: String,
    pub(crate) action: String,
    /// The filters as a query.
    pub(crate) query: String,
    pub(crate) events: Vec<AuditEventItem>,
    /// The event before which the next page begins.
    pub(crate) next_before: Option<i64>,
}
