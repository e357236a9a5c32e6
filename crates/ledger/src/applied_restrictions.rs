//! The restrictions that a node applied to a request.

/// Which restrictions a node applied to a request, and whether they refuse it. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppliedRestrictions {
    /// Their version, or 0 if the node knows none.
    pub version: u64,
    /// Whether they refuse the request, which is then not counted.
    pub is_refused: bool,
}
