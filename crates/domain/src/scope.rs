//! Scopes: which fields a key may read.

use std::fmt;

/// A key's scope. A wider scope compares greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Only the address.
    Ip,
    /// The address, its location and its network.
    Geo,
    /// Everything.
    Full,
}

impl Scope {
    /// All scopes, narrowest first.
    pub const ALL: [Self; 3] = [Self::Ip, Self::Geo, Self::Full];

    /// The scope's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Geo => "geo",
            Self::Full => "full",
        }
    }

    /// Parses a scope's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == text)
    }

    /// This scope, narrowed to the requested one. Letter case does not matter: a person who narrows for privacy must
    /// not get more because of a capital letter. A missing, invalid or wider request changes nothing.
    #[must_use]
    pub fn narrowed_to(self, requested: Option<&str>) -> Self {
        let requested =
            requested.and_then(|text| Self::ALL.into_iter().find(|scope| scope.name().eq_ignore_ascii_case(text)));
        requested.map_or(self, |requested| requested.min(self))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_scope_narrows_and_never_widens() {
        for scope in Scope::ALL {
            for requested in Scope::ALL {
                assert_eq!(scope.narrowed_to(Some(requested.name())), scope.min(requested));
                assert_eq!(scope.narrowed_to(Some(&requested.name().to_uppercase())), scope.min(requested));
            }
            for invalid in [None, Some(""), Some(" ip"), Some("everything")] {
                assert_eq!(scope.narrowed_to(invalid), scope);
            }
        }
    }
}
