//! Exchanges codes for tokens (RFC 6749, section 4.1.3).

use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::Method;
use serde::Deserialize;
use url::Url;

use super::error::{OidcError, ProviderErrorCode};
use super::http_client::ProviderClient;
use super::metadata::ClientAuthentication;

const ENDPOINT: &str = "token endpoint";

/// The request for tokens. No `Debug`, because it contains secrets.
pub(super) struct TokenRequest<'a> {
    pub(super) client_id: &'a str,
    pub(super) client_secret: &'a str,
    pub(super) redirect_url: &'a str,
    pub(super) code: &'a str,
    pub(super) code_verifier: &'a str,
    pub(super) authentication: ClientAuthentication,
}

/// The tokens of a sign-in. No `Debug`, because they are secrets.
#[derive(Deserialize)]
pub(super) struct Tokens {
    pub(super) access_token: String,
    pub(super) id_token: Option<String>,
}

#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
}

impl TokenRequest<'_> {
    pub(super) async fn send(&self, client: &ProviderClient, endpoint: &Url) -> Result<Tokens, OidcError> {
        let mut request = client
            .request(Method::POST, endpoint)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if matches!(self.authentication, ClientAuthentication::Basic) {
            // RFC 6749, section 2.3.1: encoded as in forms.
            let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            request = request.basic_auth(encode(self.client_id), Some(encode(self.client_secret)));
        }
        let response = client.send(ENDPOINT, request.body(self.form())).await?;
        // GitHub sends errors with the status 200.
        if let Some(ErrorResponse { error }) = response.json_of_any_status() {
            return Err(OidcError::TokenRejected(ProviderErrorCode::new(&error)));
        }
        response.json()
    }

    fn form(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", self.code)
            .append_pair("redirect_uri", self.redirect_url)
            .append_pair("code_verifier", self.code_verifier);
        if matches!(self.authentication, ClientAuthentication::Post) {
            form.append_pair("client_id", self.client_id).append_pair("client_secret", self.client_secret);
        }
        form.finish()
    }
}
