//! A key's states, derived from two separate facts.

/// What a key may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Answers.
    Active,
    /// Exceeded the burst limit; refused until its owner resumes it.
    Paused,
    /// Deactivated by its owner or an operator.
    Inactive,
}

impl State {
    /// The state's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Inactive => "inactive",
        }
    }
}

/// The two facts behind a state. They are apart, so that reactivating a key that was paused before leaves it paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Deactivated.
    pub deactivated: bool,
    /// Paused.
    pub paused: bool,
}

impl Marks {
    /// The state that the two facts make.
    #[must_use]
    pub const fn state(self) -> State {
        match (self.deactivated, self.paused) {
            (true, _) => State::Inactive,
            (false, true) => State::Paused,
            (false, false) => State::Active,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactivating_a_key_that_was_paused_leaves_it_paused() {
        let mut marks = Marks { deactivated: true, paused: true };
        assert_eq!(marks.state(), State::Inactive);
        marks.deactivated = false;
        assert_eq!(marks.state(), State::Paused);
        marks.paused = false;
        assert_eq!(marks.state(), State::Active);
    }
}
