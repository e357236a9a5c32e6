//! The identity providers with which members and operators can sign in, from the configuration.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ipseity_portal::{GithubSettings, OidcProviderSettings, SignInProvider};

use crate::config::Config;
use crate::node::console::console_settings;

/// The tables of identities store at most this many characters.
const ISSUER_CHARS_MAX: usize = 200;

/// The settings of providers, which two sections have.
struct ProviderSettings<'a> {
    section: &'static str,
    /// The URL to which the callback paths are appended.
    base_url: &'a str,
    oidc_name: &'a str,
    oidc_issuer: &'a str,
    oidc_client_id: &'a str,
    oidc_client_secret_file: &'a Path,
    github_client_id: &'a str,
    github_client_secret_file: &'a Path,
}

/// The providers of `[portal]` with which members can sign in.
pub(crate) fn member_providers(config: &Config) -> Result<Vec<SignInProvider>> {
    let portal = &config.portal;
    let settings = ProviderSettings {
        section: "portal",
        base_url: &config.public.base_url,
        oidc_name: &portal.oidc_name,
        oidc_issuer: &portal.oidc_issuer,
        oidc_client_id: &portal.oidc_client_id,
        oidc_client_secret_file: &portal.oidc_client_secret_file,
        github_client_id: &portal.github_client_id,
        github_client_secret_file: &portal.github_client_secret_file,
    };
    settings.open()
}

/// The providers of `[admin]` with which operators can sign in.
pub(crate) fn operator_providers(config: &Config) -> Result<Vec<SignInProvider>> {
    let (admin, url) = (&config.admin, console_settings(config)?.url);
    let settings = ProviderSettings {
        section: "admin",
        base_url: url.as_str(),
        oidc_name: &admin.oidc_name,
        oidc_issuer: &admin.oidc_issuer,
        oidc_client_id: &admin.oidc_client_id,
        oidc_client_secret_file: &admin.oidc_client_secret_file,
        github_client_id: &admin.github_client_id,
        github_client_secret_file: &admin.github_client_secret_file,
    };
    settings.open()
}

impl ProviderSettings<'_> {
    fn open(&self) -> Result<Vec<SignInProvider>> {
        let mut providers = Vec::new();
        if !self.oidc_issuer.is_empty() {
            providers.push(self.open_oidc()?);
        }
        if !self.github_client_id.is_empty() {
            providers.push(self.open_github()?);
        }
        Ok(providers)
    }

    fn open_oidc(&self) -> Result<SignInProvider> {
        let section = self.section;
        ensure!(
            self.oidc_issuer.len() <= ISSUER_CHARS_MAX,
            "[{section}] oidc_issuer must have at most {ISSUER_CHARS_MAX} characters"
        );
        ensure!(
            !self.oidc_client_id.is_empty(),
            "[{section}] oidc_client_id is empty. Set it to the id of the client."
        );
        let name = if self.oidc_name.is_empty() { self.oidc_issuer } else { self.oidc_name };
        let settings = OidcProviderSettings {
            name: name.to_owned(),
            issuer: self.oidc_issuer.to_owned(),
            client_id: self.oidc_client_id.to_owned(),
            client_secret: self.read_client_secret("oidc_client_secret_file", self.oidc_client_secret_file)?,
            redirect_url: self.redirect_url("oidc"),
        };
        SignInProvider::oidc(settings).with_context(|| format!("invalid [{section}] oidc_issuer"))
    }

    fn open_github(&self) -> Result<SignInProvider> {
        let settings = GithubSettings {
            client_id: self.github_client_id.to_owned(),
            client_secret: self.read_client_secret("github_client_secret_file", self.github_client_secret_file)?,
            redirect_url: self.redirect_url("github"),
        };
        SignInProvider::github(settings).with_context(|| format!("invalid [{}] github_client_id", self.section))
    }

    /// Each provider has a path, so that the response of one is not taken for that of the other.
    fn redirect_url(&self, path: &str) -> String {
        format!("{}/signin/callback/{path}", self.base_url.trim_end_matches('/'))
    }

    fn read_client_secret(&self, setting: &str, file: &Path) -> Result<String> {
        let (section, path) = (self.section, file.display());
        let secret =
            fs::read_to_string(file).with_context(|| format!("failed to read [{section}] {setting} {path}"))?;
        ensure!(!secret.trim().is_empty(), "[{section}] {setting} {path} is empty");
        Ok(secret.trim().to_owned())
    }
}
