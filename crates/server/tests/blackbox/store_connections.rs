//! Connections to Redis with TLS, client certificates and a user with few rights.

use ipseity_domain::Scope;
use ipseity_testkit::certificate::TestCertificate;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::{LEDGER_URL_ENV, STORE_URL_ENV};
use ipseity_testkit::{CommandOutput, Deployment, DeploymentOptions, RedisOptions, TestDir};

use crate::fixture::{fresh_key, lookup_status, relaxed_timeouts};

/// The rights in docs/operations/redis.md.
fn documented_rights() -> Vec<String> {
    let page = include_str!("../../../../docs/operations/redis.md");
    let (_, command) = page.split_once("-x ACL SETUSER ipseity on ").expect("the page has a command");
    let (rights, _) = command.split_once("\nredis-cli").expect("the command ends");
    let rights = rights.split_whitespace().filter(|word| *word != "\\").map(|word| word.trim_matches('\''));
    rights.map(str::to_owned).chain([">secret".to_owned()]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_over_tls_with_the_documented_rights_serves_and_changes_keys() {
    let dir = TestDir::create().expect("directory");
    let certificate = TestCertificate::generate_in(dir.path()).expect("certificate");
    let redis = RedisOptions { tls: Some(certificate.clone()), appendonly: true, ..RedisOptions::default() };
    let options = DeploymentOptions { redis, env: relaxed_timeouts(), nodes: 0, ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    let rights = documented_rights();
    let rules: Vec<&str> =
        ["acl", "setuser", "ipseity", "on"].into_iter().chain(rights.iter().map(|rule| &**rule)).collect();
    deployment.redis.run_command(&rules).await.expect("Redis accepts the rights");
    let path = |path: &std::path::Path| path.display().to_string();
    let settings = [
        (LEDGER_URL_ENV, format!("rediss://ipseity:secret@localhost:{}", deployment.redis.tls_port())),
        ("IPSEITY__LEDGER__CA_FILE", path(&certificate.ca_file)),
        ("IPSEITY__LEDGER__CERTIFICATE_FILE", path(&certificate.chain_file)),
        ("IPSEITY__LEDGER__PRIVATE_KEY_FILE", path(&certificate.private_key_file)),
    ];
    let env: Env = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let node = deployment.start_node(&env).await.expect("node starts");
    let key = fresh_key(&deployment, Scope::Ip).await;
    assert_eq!(lookup_status(&node, &key.key).await, 200);
    let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let run = async |arguments: &[&str]| deployment.cli_with_env(&settings, arguments).await.expect("command runs");
    deployment.redis.run_command(&["set", "other", "1"]).await.expect("Redis answers");
    assert!(run(&["ledger", "reset"]).await.stderr.contains("add --yes"));
    // Without PostgreSQL, nothing says that it is the Redis of this deployment.
    let without_store: Vec<_> =
        settings.iter().copied().chain([(STORE_URL_ENV, "postgres://127.0.0.1:1/ipseity")]).collect();
    let refused = deployment.cli_with_env(&without_store, &["ledger", "reset", "--yes"]).await.expect("command runs");
    assert!(!refused.is_success() && refused.stderr.contains("nothing deleted"), "{refused:?}");
    let reset = run(&["ledger", "reset", "--yes"]).await.ensure_success().expect("command succeeds").text();
    assert!(reset.starts_with("Deleted ") && !reset.contains(" 0 keys"), "{reset}");
    let keys = String::from_utf8_lossy(&deployment.redis.dump_all().await.expect("Redis answers")).into_owned();
    assert!(keys.contains("other") && !keys.contains(&key.id), "{keys}");
    assert_eq!(lookup_status(&node, &key.key).await, 200);
    for (command, status) in
        [(&["deactivate"][..], 403), (&["reactivate"], 200), (&["rotate"], 200), (&["delete", "--yes"], 401)]
    {
        let output = run(&[&["key"], command, &[&key.id]].concat()).await.ensure_success().expect("command succeeds");
        assert_eq!(output.stderr, "", "{command:?}");
        assert_eq!(lookup_status(&node, &key.key).await, status, "{command:?}");
    }
    assert_eq!(node.client().get("/api/v1/ip/demo", &[]).await.expect("response arrives").status, 200);
    let doctor = run(&["doctor"]).await;
    assert!(!doctor.text().to_uppercase().contains("NOPERM"), "{}", doctor.text());
    let denied = deployment.redis.denied_commands().await.expect("Redis answers");
    assert!(denied.is_empty(), "{denied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_with_an_unknown_authority_or_without_a_client_certificate_is_not_used() {
    let dir = TestDir::create().expect("directory");
    let other_dir = TestDir::create().expect("directory");
    let certificate = TestCertificate::generate_in(dir.path()).expect("certificate");
    let other = TestCertificate::generate_in(other_dir.path()).expect("certificate");
    let redis = RedisOptions { tls: Some(certificate.clone()), ..RedisOptions::default() };
    let options = DeploymentOptions { redis, env: relaxed_timeouts(), nodes: 0, ..DeploymentOptions::default() };
    let deployment = Deployment::start(options).await.expect("deployment starts");
    let url = format!("rediss://localhost:{}", deployment.redis.tls_port());
    let (ca, other_ca) = (certificate.ca_file.display().to_string(), other.ca_file.display().to_string());
    let doctor = async |settings: &[(&str, &str)]| -> CommandOutput {
        let settings = [&[(LEDGER_URL_ENV, url.as_str())], settings].concat();
        deployment.cli_with_env(&settings, &["doctor"]).await.expect("command runs")
    };
    for (settings, cause) in [
        (vec![("IPSEITY__LEDGER__CA_FILE", other_ca.as_str())], "Set [ledger] ca_file"),
        (vec![], "Set [ledger] ca_file"),
        (vec![("IPSEITY__LEDGER__CA_FILE", ca.as_str())], "Set [ledger] certificate_file"),
    ] {
        let output = doctor(&settings).await;
        assert!(output.code == Some(1) && output.text().contains(cause), "{cause}: {}", output.text());
    }
    let check = deployment.cli_with_env(&[("IPSEITY__LEDGER__CA_FILE", &ca)], &["check"]).await.expect("command runs");
    assert!(check.stderr.contains("need URLs that start with rediss://"), "{}", check.stderr);
}
