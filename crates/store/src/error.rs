//! What can go wrong, sorted by whose it is to mend.

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The caller's to mend.
    #[error(transparent)]
    Refused(#[from] StoreRefusal),
    /// PostgreSQL did not answer; may pass.
    #[error("PostgreSQL did not answer; is it running, and is [store] url right?")]
    Outage(#[source] sqlx::Error),
    /// PostgreSQL answered in a way that this code does not expect: ours to mend.
    #[error(
        "PostgreSQL refused a statement; does [store] url name the right role and database, and is it migrated (`ipseity migrate`)?"
    )]
    Fault(#[source] sqlx::Error),
}

/// A wish that the store does not grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreRefusal {
    /// The e-mail address is taken.
    #[error("an account with this e-mail address exists already; `ipseity account show` shows it")]
    AccountExists,
    /// No such account.
    #[error("no account has this e-mail address; `ipseity account create` makes one")]
    UnknownAccount,
    /// No such plan.
    #[error("no plan has this name; `ipseity plan list` shows them, `ipseity plan add` makes one")]
    UnknownPlan,
    /// The plan exists.
    #[error("a plan with this name exists already; plans do not change, add one under another name")]
    PlanExists,
    /// No such key.
    #[error("no key has this id; `ipseity key list` shows an account's keys")]
    UnknownKey,
    /// Ten keys are there.
    #[error("the account holds 10 keys, and no account can hold more; `ipseity key delete` makes room")]
    KeyLimitReached,
    /// Ten passkeys are there.
    #[error("the account holds 10 passkeys, and no account can hold more; its owner can delete one on the portal")]
    PasskeyLimitReached,
    /// The passkey belongs to an account already.
    #[error("this passkey belongs to an account already")]
    PasskeyExists,
    /// The link was used, replaced or has expired.
    #[error("this link was used or has expired; `ipseity account invite` makes another")]
    InvalidEmailToken,
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error::{Io, PoolClosed, PoolTimedOut, Protocol, Tls, WorkerCrashed};
        // Class 57 is an operator's intervention (shutdown, crash, start-up), 53 a lack of resources, 08 a connection lost, 40 a lost race.
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
    /// Whether PostgreSQL did not let the role or the password of its address in: class 28, invalid authorization.
    #[must_use]
    pub fn is_auth_failure(&self) -> bool {
        self.sqlstate().is_some_and(|code| code.starts_with("28"))
    }

    /// Whether the database of the address does not exist.
    #[must_use]
    pub fn is_missing_database(&self) -> bool {
        self.sqlstate().is_some_and(|code| code == "3D000")
    }

    fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Refused(_) => None,
            Self::Outage(error) | Self::Fault(error) => Some(error.as_database_error()?.code()?.into_owned()),
        }
    }
}

/// Whether a statement failed on the constraint of this name.
pub(crate) fn violates_constraint(error: &sqlx::Error, constraint: &str) -> bool {
    error.as_database_error().and_then(|error| error.constraint()) == Some(constraint)
}
