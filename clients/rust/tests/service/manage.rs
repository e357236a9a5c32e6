//! The client of the management API.

use std::time::Duration;

use ipseity_client::{ApiErrorKind, Error, KeyUpdate, ManagedRestrictions, ManagementClient, NewChannel, NewKey};
use ipseity_domain::PlaintextToken;
use ipseity_testkit::Deployment;

use crate::{base_url, deployment};

/// A client with a token of a new account.
async fn open(deployment: &Deployment, scopes: &str) -> ManagementClient {
    let email = format!("{:016x}@example.com", fastrand::u64(..));
    deployment.create_account(&email).await.expect("create an account");
    let token = PlaintextToken::generate(|| fastrand::u8(..));
    let sql = format!(
        "insert into personal_tokens (id, account_id, name, digest, scopes)
         select '{}', id, 'test', sha256('{}'), '{{{scopes}}}' from accounts where email = '{email}'",
        token.to_personal_token().id,
        token.expose()
    );
    deployment.postgres.psql("ipseity", &sql).await.expect("token is inserted");
    ManagementClient::open(&base_url(deployment), token.expose()).expect("client opens")
}

#[tokio::test(flavor = "multi_thread")]
async fn client_creates_changes_rotates_and_deletes_a_key() {
    let client = open(deployment().await, "keys:read,keys:write,usage:read").await;
    let new = NewKey { name: "shop".to_owned(), scope: "geo".to_owned(), restrictions: None };
    let created = client.create_key(&new).await.expect("key is created");
    assert!(created.secret.starts_with("ips_") && created.key.scope == "geo");
    let id = created.key.id;
    let update = KeyUpdate { name: Some("store".to_owned()), is_active: Some(false), ..KeyUpdate::default() };
    let changed = client.update_key(&id, &update).await.expect("key is changed");
    assert_eq!((changed.key.name.as_str(), changed.key.state.as_str(), changed.applied), ("store", "inactive", true));
    let expiring = ManagedRestrictions {
        expires_at: Some("2096-01-01T00:00:00Z".to_owned()),
        daily_limit: Some(7),
        ..ManagedRestrictions::default()
    };
    client
        .update_key(&id, &KeyUpdate { restrictions: Some(expiring.clone()), ..KeyUpdate::default() })
        .await
        .expect("restricted");
    let read = client.get_key(&id).await.expect("key").restrictions;
    assert_eq!(read, expiring, "what is read can be changed and sent back");
    let rotated = client.rotate_key(&id, Duration::from_secs(60)).await.expect("key is rotated");
    assert_ne!(rotated.secret, created.secret);
    assert_eq!(client.list_keys().await.expect("keys").len(), 1);
    assert_eq!(client.usage(None).await.expect("usage").len(), 0);
    assert_eq!(client.usage(Some(&id)).await.expect("usage").len(), 0);
    let Err(Error::Api(error)) = client.usage(Some("a&b")).await else { panic!("the key exists") };
    assert_eq!(error.status, 404);
    assert_eq!(client.list_pauses(&id).await.expect("pauses").len(), 0);
    assert!(client.delete_key(&id).await.expect("key is deleted"));
    let Err(Error::Api(error)) = client.get_key(&id).await else { panic!("the key exists") };
    assert_eq!((error.status, error.code.as_str(), &error.kind), (404, "not_found", &ApiErrorKind::Management));
    for id in ["../channels", "a/b?c#d"] {
        let Err(Error::Api(error)) = client.get_key(id).await else { panic!("another operation answered {id}") };
        assert!(matches!(error.status, 400 | 404), "{id}: {}", error.status);
    }
    let Err(Error::Api(error)) = client.resume_key(&id).await else { panic!("the scope is missing") };
    assert_eq!(error.code, "insufficient_scope");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gets_the_channel_that_it_created() {
    let client = open(deployment().await, "alerts:read,alerts:write").await;
    let new = NewChannel {
        kind: "webhook".to_owned(),
        url: "https://hooks.example/alerts".to_owned(),
        alerts: vec!["paused".to_owned()],
    };
    let created = client.create_channel(&new).await.expect("channel is created");
    client.rotate_channel_secret(created.channel.id).await.expect("secret is replaced");
    let channel = client.get_channel(created.channel.id).await.expect("channel");
    assert_eq!((channel.url, channel.alerts), (new.url, new.alerts));
    assert!(channel.previous_secret_until.is_some());
}
