//! Counts sign-ins by outcome.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// How a sign-in ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignInOutcome {
    Succeeded,
    WrongPassword,
    WrongCode,
    PasskeyRejected,
    ProviderRejected,
    Throttled,
}

#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SignInLabel {
    outcome: &'static str,
}

impl SignInOutcome {
    const ALL: [Self; 6] = [
        Self::Succeeded,
        Self::WrongPassword,
        Self::WrongCode,
        Self::PasskeyRejected,
        Self::ProviderRejected,
        Self::Throttled,
    ];

    const fn label(self) -> SignInLabel {
        let outcome = match self {
            Self::Succeeded => "succeeded",
            Self::WrongPassword => "wrong_password",
            Self::WrongCode => "wrong_code",
            Self::PasskeyRejected => "passkey_rejected",
            Self::ProviderRejected => "provider_rejected",
            Self::Throttled => "throttled",
        };
        SignInLabel { outcome }
    }
}

/// Counts sign-ins by outcome, without accounts or addresses.
pub(crate) struct SignInCounts(Family<SignInLabel, Counter>);

impl SignInCounts {
    pub(crate) fn new() -> Self {
        let counts = Family::<SignInLabel, Counter>::default();
        for outcome in SignInOutcome::ALL {
            drop(counts.get_or_create(&outcome.label()));
        }
        Self(counts)
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("sign_ins", "Sign-ins and second factors, by outcome", self.0.clone());
    }

    pub(crate) fn inc(&self, outcome: SignInOutcome) {
        self.0.get_or_create(&outcome.label()).inc();
    }
}
