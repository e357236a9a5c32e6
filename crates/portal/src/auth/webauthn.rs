//! The WebAuthn relying party.

use url::Url;
use webauthn_rs::{Webauthn, WebauthnBuilder};

/// Builds the relying party for the host of the base URL; `None` if it is an IP address, which passkeys cannot be bound to.
pub(crate) fn build_webauthn(base_url: &str) -> Option<Webauthn> {
    let origin = Url::parse(base_url).ok()?;
    WebauthnBuilder::new(origin.domain()?, &origin).ok()?.rp_name("Ipseity").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passkeys_need_a_domain_name_or_localhost() {
        assert!(
            build_webauthn("https://ipseity.example").is_some() && build_webauthn("https://localhost:8443").is_some()
        );
        for invalid in ["https://192.0.2.1", "https://[2001:db8::1]", "nonsense", ""] {
            assert!(build_webauthn(invalid).is_none(), "{invalid}");
        }
    }
}
