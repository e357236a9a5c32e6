//! Errors of the store, by who can fix them.

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The request is invalid. The caller can fix it.
    #[error(transparent)]
    Refused(#[from] StoreRefusal),
    /// PostgreSQL is unavailable. A retry may succeed.
    #[error("PostgreSQL is unavailable. Check that it is running and that [store] url is correct.")]
    Outage(#[source] sqlx::Error),
    /// PostgreSQL returned an unexpected error. The setup or this code must be fixed.
    #[error(
        "PostgreSQL rejected a statement. Check the role and database in [store] url, and that the schema is migrated (`ipseity migrate`)."
    )]
    Fault(#[source] sqlx::Error),
    /// Existing rows prevent a migration. The source names them and says what to do.
    #[error("existing data prevents a migration")]
    MigrationBlocked(#[source] sqlx::Error),
}

/// SQLSTATE of a migration that finds rows it cannot convert.
const MIGRATION_BLOCKED: &str = "IP001";
/// The code of the audit log if the token of a change was revoked meanwhile.
const TOKEN_REVOKED: &str = "IP002";

/// Why the store rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreRefusal {
    /// The email address is taken.
    #[error("an account with this email address already exists. Run `ipseity account show` to see it.")]
    AccountExists,
    /// The account does not exist.
    #[error("no account has this email address. Run `ipseity account create` to create one.")]
    UnknownAccount,
    /// The plan does not exist.
    #[error("no plan has this name. Run `ipseity plan list` to list plans, or `ipseity plan add` to create one.")]
    UnknownPlan,
    /// The plan's name is taken.
    #[error("a plan with this name already exists. Plans cannot be changed. Add one with another name.")]
    PlanExists,
    /// The key does not exist.
    #[error("no key has this ID. Run `ipseity key list` to list an account's keys.")]
    UnknownKey,
    /// The owner resumed the key less than a minute ago.
    #[error("the key was resumed less than a minute ago. Try again in {retry_after_s} seconds.")]
    ResumedRecently {
        /// Seconds until the key can be resumed again.
        retry_after_s: i64,
    },
    /// The account has as many keys as it may have.
    #[error(
        "the account has reached the limit of {keys_max} keys. Run `ipseity key delete` to delete one, or `ipseity account limits` to raise it."
    )]
    KeyLimitReached {
        /// How many it may have.
        keys_max: i32,
    },
    /// Nodes of older versions may be running, which ignore restrictions.
    #[error(
        "key restrictions are not enabled. Upgrade all nodes, then run `ipseity key enable-restrictions` to confirm it."
    )]
    RestrictionsNotEnabled,
    /// Somebody else has changed them.
    #[error("the restrictions of the key were changed meanwhile. Run `ipseity key show` to see them.")]
    RestrictionsChanged,
    /// The operator does not exist.
    #[error("no operator has this name. Run `ipseity operator list` to list operators.")]
    UnknownOperator,
    /// The name is taken.
    #[error("an operator with this name already exists.")]
    OperatorExists,
    /// Somebody must be able to add operators.
    #[error("this is the only admin who has joined. Make another operator admin first, and let them sign in.")]
    LastAdmin,
    /// The operator could not sign in any more.
    #[error("this is the operator's only way to sign in. Add another first.")]
    LastCredential,
    /// The link was used or has expired.
    #[error("the link was used or has expired.")]
    InvalidOperatorLink,
    /// The account has ten passkeys.
    #[error("the account has reached the limit of 10 passkeys. Its owner can delete one in the portal.")]
    PasskeyLimitReached,
    /// The passkey is already registered.
    #[error("this passkey already belongs to an account")]
    PasskeyExists,
    /// The identity is linked to another account.
    #[error("this identity is linked to another account")]
    IdentityTaken,
    /// The account has ten linked identities.
    #[error(
        "the account has reached the limit of 10 linked accounts of other providers. Its owner can unlink one in the portal."
    )]
    IdentityLimitReached,
    /// The account needs a second factor and has no other.
    #[error("this is the only second factor of the account")]
    LastSecondFactor,
    /// The account has as many channels for alerts as it may have.
    #[error("the account has reached the limit of channels for alerts")]
    ChannelLimitReached,
    /// The account has no such channel for alerts, or no such delivery.
    #[error("the account has no such channel for alerts")]
    UnknownChannel,
    /// The account has as many personal tokens as it may have.
    #[error("the account has reached the limit of personal tokens")]
    TokenLimitReached,
    /// The account has no such personal token.
    #[error("the account has no such personal token")]
    UnknownToken,
    /// The session ended while its request was on the way.
    #[error("the session has ended")]
    SessionEnded,
    /// The link was used, replaced or has expired.
    #[error("this link was used or has expired. Run `ipseity account invite` to create another.")]
    InvalidEmailToken,
    /// The account has an open request for a higher limit.
    #[error("the account already has an open request for a higher limit")]
    LimitRequestOpen,
    /// The site's name is taken.
    #[error("a site with this name already exists. Run `ipseity site list` to list sites.")]
    SiteExists,
    /// The site does not exist.
    #[error("no site has this name. Run `ipseity site list` to list sites.")]
    UnknownSite,
    /// The certificate belongs to another site.
    #[error("this certificate already belongs to a site. Run `ipseity site list` to list sites.")]
    SiteCertificateExists,
    /// The site's name has other characters or another length.
    #[error(
        "a site name has up to 32 lowercase letters, digits and hyphens, and starts and ends with a letter or digit"
    )]
    InvalidSiteName,
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
        match error.as_database_error().and_then(|error| error.code()).as_deref() {
            Some(MIGRATION_BLOCKED) => return Self::MigrationBlocked(error),
            Some(TOKEN_REVOKED) => return StoreRefusal::UnknownToken.into(),
            _ => {}
        }
        // SQLSTATE classes: 57 operator intervention (shutdown, crash, start-up), 53 insufficient resources, 08
        // connection exception, 40 transaction rollback.
        let is_transient = error
            .as_database_error()
            .and_then(|error| error.code())
            .is_some_and(|code| ["57", "53", "08", "40"].iter().any(|class| code.starts_with(class)));
        if is_transient || matches!(error, Io(_) | PoolClosed | PoolTimedOut | Protocol(_) | Tls(_) | WorkerCrashed) {
            Self::Outage(error)
        } else {
            Self::Fault(error)
        }
    }
}

impl StoreError {
    /// Whether PostgreSQL rejected the role or password (SQLSTATE class 28).
    #[must_use]
    pub fn is_auth_failure(&self) -> bool {
        self.sqlstate().is_some_and(|code| code.starts_with("28"))
    }

    /// Whether the database does not exist.
    #[must_use]
    pub fn is_missing_database(&self) -> bool {
        self.sqlstate().is_some_and(|code| code == "3D000")
    }

    /// The SQLSTATE of an error that PostgreSQL reported.
    #[must_use]
    pub fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Refused(_) => None,
            Self::Outage(error) | Self::Fault(error) | Self::MigrationBlocked(error) => {
                Some(error.as_database_error()?.code()?.into_owned())
            }
        }
    }
}

/// Whether a statement violated this constraint.
pub(crate) fn violates_constraint(error: &sqlx::Error, constraint: &str) -> bool {
    error.as_database_error().and_then(|error| error.constraint()) == Some(constraint)
}
