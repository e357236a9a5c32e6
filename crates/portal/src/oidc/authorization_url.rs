//! The URL that a sign-in begins with (RFC 6749, section 4.1.1, and RFC 7636).

use url::Url;

use super::pending::PendingSignIn;

/// The URL of the authorization endpoint for a sign-in.
pub(super) fn authorization_url(
    endpoint: &Url,
    client_id: &str,
    redirect_url: &str,
    scope: &str,
    pending: &PendingSignIn,
) -> Url {
    let mut url = endpoint.clone();
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", client_id)
        .append_pair("redirect_uri", redirect_url)
        .append_pair("scope", scope)
        .append_pair("state", &pending.state)
        .append_pair("code_challenge", &pending.code_challenge())
        .append_pair("code_challenge_method", "S256");
    url
}
