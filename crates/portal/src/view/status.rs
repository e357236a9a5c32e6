//! The status page.

use askama::Template;

use crate::view::filters;
use crate::view::frame::PageFrame;

/// How well a part of the service works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusLevel {
    Operational,
    Degraded,
    Down,
    /// This node cannot tell.
    Unknown,
}

impl StatusLevel {
    /// The name in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Operational => "operational",
            Self::Degraded => "degraded",
            Self::Down => "down",
            Self::Unknown => "unknown",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Operational => "Operational",
            Self::Degraded => "Degraded",
            Self::Down => "Down",
            Self::Unknown => "Unknown",
        }
    }

    /// The class of its badge.
    const fn class(self) -> &'static str {
        match self {
            Self::Operational => "active",
            Self::Degraded => "paused",
            Self::Down => "limit-reached",
            Self::Unknown => "inactive",
        }
    }
}

/// A part of the service.
pub(crate) struct StatusItem {
    pub(crate) name: String,
    pub(crate) level: StatusLevel,
    /// What it means for users.
    pub(crate) message: String,
    /// URL and text of a link to more.
    pub(crate) link: Option<(String, &'static str)>,
}

/// `/status`
#[derive(Template)]
#[template(path = "status.html")]
pub(crate) struct StatusPage {
    pub(crate) frame: PageFrame,
    pub(crate) heading: &'static str,
    pub(crate) components: Vec<StatusItem>,
    pub(crate) sites: Vec<StatusItem>,
    /// Such as `15 Nov 2026, 14:03:22 UTC`.
    pub(crate) checked: String,
}
