//! What the doctor found: one sentence that says what is wrong and, after a colon, what to do.

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// As it should be.
    Well,
    /// Worth knowing; nothing fails by it.
    Note,
    /// Fails somebody, now or one day.
    Wrong,
}

impl Weight {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Well => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
        }
    }
}

#[derive(Debug)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) weight: Weight,
    pub(super) says: String,
}

/// The findings about one thing.
#[derive(Debug)]
pub(super) struct Findings {
    about: &'static str,
    all: Vec<Finding>,
}

impl Findings {
    pub(super) const fn new(about: &'static str) -> Self {
        Self { about, all: Vec::new() }
    }

    pub(super) fn wrong(&mut self, says: impl Into<String>) {
        self.add(Weight::Wrong, says);
    }

    pub(super) fn note(&mut self, says: impl Into<String>) {
        self.add(Weight::Note, says);
    }

    /// What is to be said if nothing is wrong.
    pub(super) fn else_well(mut self, says: impl Into<String>) -> Vec<Finding> {
        if self.all.iter().all(|finding| finding.weight != Weight::Wrong) {
            self.add(Weight::Well, says);
        }
        self.all
    }

    fn add(&mut self, weight: Weight, says: impl Into<String>) {
        self.all.push(Finding { about: self.about, weight, says: says.into() });
    }
}

/// One thing that is wrong, and all that can be said of it.
pub(super) fn wrong(about: &'static str, says: impl Into<String>) -> Vec<Finding> {
    let mut findings = Findings::new(about);
    findings.wrong(says);
    findings.all
}
