//! Access to the store by concept: `store.keys().create(…)`.
//!
//! Accessors are `Copy` and their methods take `self`, so a returned future borrows the store and not the accessor.

use crate::pool::Store;

/// API keys: creation, changes and reads.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    pub(crate) store: &'a Store,
}

/// The history of keys.
#[derive(Clone, Copy)]
pub struct AuditLog<'a> {
    pub(crate) store: &'a Store,
}

/// Key changes that are not applied to Redis yet.
#[derive(Clone, Copy)]
pub struct Outbox<'a> {
    pub(crate) store: &'a Store,
}

/// The identity of the deployment, and which Redis data set its nodes use.
#[derive(Clone, Copy)]
pub struct StoreDeployment<'a> {
    pub(crate) store: &'a Store,
}

/// Accounts and their credentials.
#[derive(Clone, Copy)]
pub struct Accounts<'a> {
    pub(crate) store: &'a Store,
}

/// Plans and their daily limits.
#[derive(Clone, Copy)]
pub struct Plans<'a> {
    pub(crate) store: &'a Store,
}

/// Sign-in sessions.
#[derive(Clone, Copy)]
pub struct Sessions<'a> {
    pub(crate) store: &'a Store,
}

/// Browsers that signed in before.
#[derive(Clone, Copy)]
pub struct Devices<'a> {
    pub(crate) store: &'a Store,
}

/// Passkeys.
#[derive(Clone, Copy)]
pub struct Passkeys<'a> {
    pub(crate) store: &'a Store,
}

/// Accounts of other providers with which members sign in.
#[derive(Clone, Copy)]
pub struct Identities<'a> {
    pub(crate) store: &'a Store,
}

/// Second factors of accounts, and sign-ins that wait for one.
#[derive(Clone, Copy)]
pub struct TwoFactor<'a> {
    pub(crate) store: &'a Store,
}

/// The security log.
#[derive(Clone, Copy)]
pub struct SecurityLog<'a> {
    pub(crate) store: &'a Store,
}

/// State of a WebAuthn registration or sign-in between its two requests.
#[derive(Clone, Copy)]
pub struct WebauthnStates<'a> {
    pub(crate) store: &'a Store,
}

/// Single-use tokens in email links: sign-up, invitation, password reset, email change and its reversal.
#[derive(Clone, Copy)]
pub struct EmailTokens<'a> {
    pub(crate) store: &'a Store,
}

/// Requests for emails with a link, limited per address.
#[derive(Clone, Copy)]
pub struct EmailRequests<'a> {
    pub(crate) store: &'a Store,
    pub(crate) per_hour_max: u32,
}

/// Emails to be sent.
#[derive(Clone, Copy)]
pub struct EmailQueue<'a> {
    pub(crate) store: &'a Store,
}

/// Notices to be sent.
#[derive(Clone, Copy)]
pub struct NoticeQueue<'a> {
    pub(crate) store: &'a Store,
}

/// Webhooks and Slack channels of accounts, and what was sent to them.
#[derive(Clone, Copy)]
pub struct AlertChannels<'a> {
    pub(crate) store: &'a Store,
}

/// Personal tokens of accounts.
#[derive(Clone, Copy)]
pub struct PersonalTokens<'a> {
    pub(crate) store: &'a Store,
}

/// Alerts to be sent.
#[derive(Clone, Copy)]
pub struct AlertQueue<'a> {
    pub(crate) store: &'a Store,
}

/// Daily usage and refusals per key.
#[derive(Clone, Copy)]
pub struct Usage<'a> {
    pub(crate) store: &'a Store,
}

/// Sites whose remote nodes home nodes trust.
#[derive(Clone, Copy)]
pub struct Sites<'a> {
    pub(crate) store: &'a Store,
}

/// The operators of the admin console.
#[derive(Clone, Copy)]
pub struct Operators<'a> {
    pub(crate) store: &'a Store,
}

/// Processes of the deployment, by their heartbeats.
#[derive(Clone, Copy)]
pub struct Nodes<'a> {
    pub(crate) store: &'a Store,
}

/// Members' requests for higher limits.
#[derive(Clone, Copy)]
pub struct LimitRequests<'a> {
    pub(crate) store: &'a Store,
}

/// What operators see in the admin console.
#[derive(Clone, Copy)]
pub struct ConsoleQueries<'a> {
    pub(crate) store: &'a Store,
}

impl Store {
    /// API keys: creation, changes and reads.
    #[must_use]
    pub const fn keys(&self) -> Keys<'_> {
        Keys { store: self }
    }

    /// The history of keys.
    #[must_use]
    pub const fn audit_log(&self) -> AuditLog<'_> {
        AuditLog { store: self }
    }

    /// Key changes that are not applied to Redis yet.
    #[must_use]
    pub const fn outbox(&self) -> Outbox<'_> {
        Outbox { store: self }
    }

    /// The identity of the deployment, and which Redis data set its nodes use.
    #[must_use]
    pub const fn deployment(&self) -> StoreDeployment<'_> {
        StoreDeployment { store: self }
    }

    /// Accounts and their credentials.
    #[must_use]
    pub const fn accounts(&self) -> Accounts<'_> {
        Accounts { store: self }
    }

    /// Plans and their daily limits.
    #[must_use]
    pub const fn plans(&self) -> Plans<'_> {
        Plans { store: self }
    }

    /// Sign-in sessions.
    #[must_use]
    pub const fn sessions(&self) -> Sessions<'_> {
        Sessions { store: self }
    }

    /// Browsers that signed in before.
    #[must_use]
    pub const fn devices(&self) -> Devices<'_> {
        Devices { store: self }
    }

    /// Passkeys.
    #[must_use]
    pub const fn passkeys(&self) -> Passkeys<'_> {
        Passkeys { store: self }
    }

    /// Accounts of other providers.
    #[must_use]
    pub const fn identities(&self) -> Identities<'_> {
        Identities { store: self }
    }

    /// Second factors of accounts, and sign-ins that wait for one.
    #[must_use]
    pub const fn two_factor(&self) -> TwoFactor<'_> {
        TwoFactor { store: self }
    }

    /// The security log.
    #[must_use]
    pub const fn security_log(&self) -> SecurityLog<'_> {
        SecurityLog { store: self }
    }

    /// State of a WebAuthn registration or sign-in between its two requests.
    #[must_use]
    pub const fn webauthn_states(&self) -> WebauthnStates<'_> {
        WebauthnStates { store: self }
    }

    /// Single-use tokens in email links: sign-up, invitation, password reset, email change and its reversal.
    #[must_use]
    pub const fn email_tokens(&self) -> EmailTokens<'_> {
        EmailTokens { store: self }
    }

    /// Requests for emails with a link: at most `per_hour_max` of a kind per address per hour.
    #[must_use]
    pub const fn email_requests(&self, per_hour_max: u32) -> EmailRequests<'_> {
        EmailRequests { store: self, per_hour_max }
    }

    /// Emails to be sent.
    #[must_use]
    pub const fn email_queue(&self) -> EmailQueue<'_> {
        EmailQueue { store: self }
    }

    /// Notices to be sent.
    #[must_use]
    pub const fn notice_queue(&self) -> NoticeQueue<'_> {
        NoticeQueue { store: self }
    }

    /// Webhooks and Slack channels of accounts, and what was sent to them.
    #[must_use]
    pub const fn alert_channels(&self) -> AlertChannels<'_> {
        AlertChannels { store: self }
    }

    /// Personal tokens of accounts.
    #[must_use]
    pub const fn personal_tokens(&self) -> PersonalTokens<'_> {
        PersonalTokens { store: self }
    }

    /// Alerts to be sent.
    #[must_use]
    pub const fn alert_queue(&self) -> AlertQueue<'_> {
        AlertQueue { store: self }
    }

    /// Daily usage and refusals per key.
    #[must_use]
    pub const fn usage(&self) -> Usage<'_> {
        Usage { store: self }
    }

    /// Sites whose remote nodes home nodes trust.
    #[must_use]
    pub const fn sites(&self) -> Sites<'_> {
        Sites { store: self }
    }

    /// The operators of the admin console.
    #[must_use]
    pub const fn operators(&self) -> Operators<'_> {
        Operators { store: self }
    }

    /// Processes of the deployment, by their heartbeats.
    #[must_use]
    pub const fn nodes(&self) -> Nodes<'_> {
        Nodes { store: self }
    }

    /// Members' requests for higher limits.
    #[must_use]
    pub const fn limit_requests(&self) -> LimitRequests<'_> {
        LimitRequests { store: self }
    }

    /// What operators see in the admin console.
    #[must_use]
    pub const fn console(&self) -> ConsoleQueries<'_> {
        ConsoleQueries { store: self }
    }
}
