//! Settings with a fixed set of values.

/// Finds a value by its name. The error lists the names.
pub(super) fn parse_choice<T, const N: usize>(name: &str, choices: [(&str, T); N]) -> Result<T, String> {
    let names = choices.each_ref().map(|(name, _)| *name).join(", ");
    let found = choices.into_iter().find(|(choice, _)| *choice == name);
    found.map(|(_, value)| value).ok_or_else(|| format!("unknown value {name:?}, use one of: {names}"))
}
