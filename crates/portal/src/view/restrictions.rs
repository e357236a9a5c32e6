//! The restrictions of a key, as forms show them.

/// A field of a form: what is saved, or what the member entered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestrictionField {
    pub(crate) value: String,
    pub(crate) errors: Vec<FieldError>,
    /// What the member may not expect of a value that is saved.
    pub(crate) warning: Option<String>,
}

/// Why a field or one of its lines is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The invalid line. `None` if the reason concerns the whole field.
    pub(crate) line: Option<String>,
    /// Such as `must not end with a dot`. It continues the line.
    pub(crate) reason: String,
}

/// The fields of the restrictions form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestrictionFields {
    /// One per line.
    pub(crate) origins: RestrictionField,
    /// One per line.
    pub(crate) networks: RestrictionField,
    /// Such as `2026-11-25T14:03`, in UTC.
    pub(crate) expires: RestrictionField,
    pub(crate) caller_limit: RestrictionField,
    pub(crate) daily_limit: RestrictionField,
    /// Empty if the checkbox is off.
    pub(crate) tickets_only: RestrictionField,
}

/// Why restrictions were not saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestrictionsError {
    /// A field is invalid.
    Invalid,
    /// The member signed in too long ago.
    ConfirmationNeeded,
    /// They were changed after the member had opened the page.
    Changed,
    /// Nodes of older versions may be running.
    NotEnabled,
}

/// The panel on the page of a key.
pub(crate) struct RestrictionsPanel {
    pub(crate) fields: RestrictionFields,
    /// Whether this service has tickets.
    pub(crate) has_tickets: bool,
    /// The version that is saved.
    pub(crate) version: u64,
    pub(crate) error: Option<RestrictionsError>,
}
