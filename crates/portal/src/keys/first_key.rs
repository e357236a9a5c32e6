//! The first key of an account: confirming the email creates it, so that the next page is ready for a request.

use axum::response::Response;
use http::HeaderMap;
use ipseity_domain::account::KeyName;
use ipseity_domain::{PlaintextKey, Restrictions, Scope, causes};
use ipseity_store::{Account, Actor, AuthenticatedAccount, SessionStart};

use crate::auth::next_path::NextPath;
use crate::error::PortalError;
use crate::keys::new_key::random_byte;
use crate::page::Visitor;
use crate::state::Portal;
use crate::view::frame::Tab;

const FIRST_KEY_NAME: &str = "First key";

impl Portal {
    /// Signs the owner of a new account in, and shows the account's first key. If the key cannot be created, the form for keys
    /// says why.
    pub(crate) async fn welcome_with_key(
        &self,
        account: Account,
        headers: &HeaderMap,
        restrictions: &Restrictions,
    ) -> Result<Response, PortalError> {
        let plaintext = PlaintextKey::generate(random_byte);
        let (key, actor) = (plaintext.to_api_key(), Actor::Owner(account.id));
        let name = KeyName::parse(FIRST_KEY_NAME).expect("name is valid");
        if let Err(error) = self.store.keys().create(&account, actor, &name, Scope::Full, &key, restrictions).await {
            tracing::warn!(error = %causes(&error), "first key not created");
            return self.open_session(account.id, headers, SessionStart::Link, &NextPath::parse("/keys/new")).await;
        }
        let session = self.start_session(account.id, headers, SessionStart::Link).await?;
        let member = AuthenticatedAccount {
            account,
            session_id: session.id,
            is_confirmed: false,
            is_recent: true,
            has_two_factor: false,
        };
        let visitor = Visitor::signed_in(session.cookie.clone(), member);
        let frame = visitor.frame(&self.public_pages, "Your new key", Tab::Keys);
        let page = self.new_secret_page(frame, &plaintext, FIRST_KEY_NAME, restrictions, None);
        let mut response = visitor.render(self, &page);
        session.set_device_cookie(&mut response);
        Ok(response)
    }
}
