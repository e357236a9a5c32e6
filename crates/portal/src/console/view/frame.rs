//! The frame around every page of the console.

use ipseity_store::{Operator, OperatorRole};

/// The active tab of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsoleTab {
    Overview,
    Search,
    SignUps,
    Rejections,
    Requests,
    Emails,
    Nodes,
    System,
    Audit,
    Operators,
    /// The page is in no tab.
    None,
}

/// The tabs with their paths and labels. Those of admins are last.
const TABS: [(ConsoleTab, &str, &str); 10] = [
    (ConsoleTab::Overview, "/", "Overview"),
    (ConsoleTab::Search, "/search", "Search"),
    (ConsoleTab::SignUps, "/sign-ups", "Sign-ups"),
    (ConsoleTab::Rejections, "/rejections", "Rejections"),
    (ConsoleTab::Requests, "/requests", "Requests"),
    (ConsoleTab::Emails, "/emails", "Emails"),
    (ConsoleTab::Nodes, "/nodes", "Nodes"),
    (ConsoleTab::System, "/system", "System"),
    (ConsoleTab::Audit, "/audit", "Audit log"),
    (ConsoleTab::Operators, "/operators", "Operators"),
];

/// The frame around a page.
pub(crate) struct ConsoleFrame {
    pub(crate) title: String,
    pub(crate) tab: ConsoleTab,
    /// The signed-in operator.
    pub(crate) operator: Option<Operator>,
    /// The CSRF token of every form.
    pub(crate) csrf_token: String,
    pub(crate) notice: Option<&'static str>,
}

impl ConsoleFrame {
    /// The tabs that the operator may open: whether each is active, its path and its label.
    pub(crate) fn tabs(&self) -> impl Iterator<Item = (bool, &'static str, &'static str)> {
        let count = if self.has_role(OperatorRole::Admin) { TABS.len() } else { TABS.len() - 1 };
        let active = self.tab;
        TABS.iter().take(count).map(move |(tab, path, label)| (*tab == active, *path, *label))
    }

    /// Whether the operator has at least this role.
    pub(crate) fn has_role(&self, role: OperatorRole) -> bool {
        self.operator.as_ref().is_some_and(|operator| operator.role >= role)
    }

    /// Whether the operator may help owners of accounts and keys.
    pub(crate) fn is_support(&self) -> bool {
        self.has_role(OperatorRole::Support)
    }

    /// Whether the operator may change limits, and delete accounts.
    pub(crate) fn is_admin(&self) -> bool {
        self.has_role(OperatorRole::Admin)
    }
}
