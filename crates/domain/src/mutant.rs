//! Mutants: known defects that can be switched on, to prove that a test or a checker finds them. `just mutants` runs
//! each one. Without the feature `mutants` none can be switched on.

#[cfg(feature = "mutants")]
use std::sync::OnceLock;

/// Whether the environment variable `IPSEITY_MUTANT` selects this mutant. It is read once.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_mutant(name: &str) -> bool {
    static SELECTED: OnceLock<Option<String>> = OnceLock::new();
    SELECTED.get_or_init(|| std::env::var("IPSEITY_MUTANT").ok()).as_deref() == Some(name)
}

/// Without the feature `mutants` always `false`, so that the compiler removes the mutants.
#[cfg(not(feature = "mutants"))]
#[must_use]
pub const fn is_mutant(_name: &str) -> bool {
    false
}
