//! Connections to PostgreSQL: several servers, TLS, and a pooler in between.

use std::path::Path;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::certificate::{TestCa, TestCertificate, Validity};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::deployment::postgres::CERTIFIED_ROLE;
use ipseity_testkit::deployment::{DATABASE, STORE_URL_ENV};
use ipseity_testkit::{
    CommandOutput, Deployment, DeploymentOptions, PgBouncer, PostgresOptions, TestClient, TestDir, eventually,
};

use crate::fixture::{fresh_key, lookup_status, relaxed_timeouts};

const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);
const ROLE: &str = "ipseity";

async fn run(deployment: &Deployment, url: &str, arguments: &[&str]) -> CommandOutput {
    deployment.cli_with_env(&[(STORE_URL_ENV, url)], arguments).await.expect("command runs")
}

async fn start_deployment(postgres: PostgresOptions) -> Deployment {
    let options = DeploymentOptions { nodes: 0, postgres, env: relaxed_timeouts(), ..DeploymentOptions::default() };
    Deployment::start(options).await.expect("deployment starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn node_with_several_hosts_follows_a_promotion_without_a_restart() {
    let mut deployment = start_deployment(PostgresOptions::default()).await;
    let primary = deployment.postgres.address();
    let standby = deployment.postgres.start_replica(primary).await.expect("standby starts");
    // The standby comes first.
    let hosts = format!("{},{primary}", standby.address());
    let url = format!("postgres://{ROLE}:secret@{hosts}/{DATABASE}?target_session_attrs=read-write");
    let node = deployment.start_node(&Env::from([(STORE_URL_ENV.to_owned(), url.clone())])).await.expect("node starts");
    let key = fresh_key(&deployment, Scope::Ip).await;
    assert_eq!(lookup_status(&node, &key.key).await, 200);

    let check = run(&deployment, &url, &["check"]).await.ensure_success().expect("settings are valid").text();
    let shown = format!("postgres://{ROLE}:…@{hosts}/{DATABASE}?target_session_attrs=read-write");
    assert!(check.contains(&shown) && !check.contains("secret@"), "{check}");
    let doctor = run(&deployment, &url, &["doctor"]).await.text();
    // This PostgreSQL runs without fsync, so there is no line that it is ok.
    assert!(!doctor.contains("unreachable") && !doctor.contains("read-only"), "{doctor}");

    let is_replicated = async || {
        let count = format!("select count(*) from keys where id = '{}'", key.id);
        standby.psql(DATABASE, &count).await.is_ok_and(|count| count == "1")
    };
    eventually("the standby has the key", RECOVERY_TIMEOUT, is_replicated).await.expect("standby is up to date");
    deployment.postgres.kill9();
    let failed = run(&deployment, &url, &["key", "list", "--account", "missing@example.com"]).await;
    let expected = [format!("{primary} is unreachable"), format!("{} is a standby", standby.address())];
    assert!(expected.iter().all(|cause| failed.stderr.contains(cause)), "{}", failed.stderr);
    let doctor = run(&deployment, &url, &["doctor"]).await.text();
    assert!(expected.iter().all(|cause| doctor.contains(cause)), "{doctor}");
    standby.promote().await.expect("standby is promoted");
    run(&deployment, &url, &["key", "deactivate", &key.id])
        .await
        .ensure_success()
        .expect("a command finds the primary");
    assert_eq!(lookup_status(&node, &key.key).await, 403);
    let has_recovered = async || {
        let ready = TestClient::new(node.ops()).get("/ready", &[]).await.expect("node answers");
        ready.status == 200 && ready.text().contains(r#""store":"ok""#)
    };
    eventually("the node uses the promoted standby", RECOVERY_TIMEOUT, has_recovered).await.expect("node recovers");
    let doctor = run(&deployment, &url, &["doctor"]).await.text();
    assert!(doctor.contains(&format!("{primary} is unreachable")) && doctor.contains("cannot take over"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_list_of_hosts_is_explained() {
    let deployment = start_deployment(PostgresOptions::default()).await;
    for (url, cause) in [
        ("postgres://u:secret@h1,h2/d?target_session_attrs=standby", "must be read-write or primary"),
        ("postgres://u:secret@h1,/d", "a host is empty"),
        ("postgres://u:secret@h1:port,h2/d", "invalid port number"),
    ] {
        let check = run(&deployment, url, &["check"]).await;
        let is_explained = check.stderr.contains("invalid [store] url") && check.stderr.contains(cause);
        assert!(!check.is_success() && is_explained && !check.stderr.contains("secret"), "{url}: {}", check.stderr);
    }
}

fn with_params(deployment: &Deployment, role: &str, host: &str, params: &[(&str, &Path)], mode: &str) -> String {
    let port = deployment.postgres.address().port();
    let params: String = params.iter().map(|(name, file)| format!("&{name}={}", file.display())).collect();
    format!("postgres://{role}@{host}:{port}/{DATABASE}?sslmode={mode}{params}")
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_over_tls_needs_the_right_authority_name_and_client_certificate() {
    let [dir, other_dir] = [TestDir::create(), TestDir::create()].map(|dir| dir.expect("directory"));
    let certificate = TestCertificate::generate_in(dir.path()).expect("certificate");
    let other = TestCertificate::generate_in(other_dir.path()).expect("certificate");
    let tls = Some(certificate.clone());
    let deployment = start_deployment(PostgresOptions { tls, ..PostgresOptions::default() }).await;
    let ca = ("sslrootcert", certificate.ca_file.as_path());
    let client = [("sslcert", certificate.chain_file.as_path()), ("sslkey", certificate.private_key_file.as_path())];

    let verified = with_params(&deployment, ROLE, "localhost", &[ca], "verify-full");
    let node = deployment.start_node(&Env::from([(STORE_URL_ENV.to_owned(), verified.clone())])).await;
    let node = node.expect("node starts with TLS");
    let created = run(&deployment, &verified, &["account", "create", "--email", "tls@example.com"]).await;
    created.ensure_success().expect("account is created over TLS");
    drop(node);
    let [cert, key] = client;
    let certified = with_params(&deployment, CERTIFIED_ROLE, "localhost", &[ca, cert, key], "verify-full");
    run(&deployment, &certified, &["account", "list"]).await.ensure_success().expect("client certificate is accepted");

    let without_client = with_params(&deployment, CERTIFIED_ROLE, "localhost", &[ca], "verify-full");
    let other_ca = with_params(&deployment, ROLE, "localhost", &[("sslrootcert", &other.ca_file)], "verify-full");
    let without_tls = with_params(&deployment, ROLE, "localhost", &[], "disable");
    for (url, cause) in [
        (without_client, "rejects the role or its password"),
        (other_ca, "Add `sslrootcert=FILE` to [store] url"),
        (without_tls, "rejects the role or its password"),
    ] {
        let doctor = run(&deployment, &url, &["doctor"]).await;
        assert!(doctor.code == Some(1) && doctor.text().contains(cause), "{url}: {}", doctor.text());
    }
    let missing =
        with_params(&deployment, ROLE, "localhost", &[("sslrootcert", Path::new("/missing.pem"))], "verify-ca");
    let doctor = run(&deployment, &missing, &["doctor"]).await.text();
    assert!(doctor.contains("No such file"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_for_another_name_is_refused_with_verify_full_only() {
    let dir = TestDir::create().expect("directory");
    let files = TestCertificate {
        ca_file: dir.path().join("ca.pem"),
        chain_file: dir.path().join("server.pem"),
        private_key_file: dir.path().join("server.key"),
    };
    let issued = TestCa::create(&files.ca_file)
        .and_then(|ca| ca.issue_certificate(&["db.example.com"], Validity::Current))
        .expect("certificate");
    std::fs::write(&files.chain_file, issued.chain).expect("file is written");
    std::fs::write(&files.private_key_file, issued.private_key).expect("file is written");
    let deployment = start_deployment(PostgresOptions { tls: Some(files.clone()), ..PostgresOptions::default() }).await;
    let url = |mode| with_params(&deployment, ROLE, "localhost", &[("sslrootcert", &files.ca_file)], mode);
    run(&deployment, &url("verify-ca"), &["account", "list"]).await.ensure_success().expect("the authority is trusted");
    let doctor = run(&deployment, &url("verify-full"), &["doctor"]).await.text();
    assert!(doctor.contains("is not trusted") && doctor.contains("use the name in the certificate"), "{doctor}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_refuses_a_pooler_in_front_of_postgres() {
    let deployment = start_deployment(PostgresOptions::default()).await;
    for (settings, cause) in [
        ("pool_mode = transaction", "unsupported startup parameter"),
        (
            "pool_mode = session\nignore_startup_parameters = extra_float_digits,options",
            "settings of the session are lost",
        ),
    ] {
        let pooler = PgBouncer::start(&deployment.postgres, ROLE, DATABASE, settings).await.expect("PgBouncer starts");
        let doctor = run(&deployment, &pooler.url(ROLE, DATABASE), &["doctor"]).await;
        let text = doctor.text();
        let is_explained = text.contains("Let [store] url name PostgreSQL itself") && text.contains(cause);
        assert!(doctor.code == Some(1) && is_explained, "{settings}: {text}");
    }
    // A pooler that changes the server between statements breaks prepared statements, or loses the settings.
    let settings = "pool_mode = transaction\nignore_startup_parameters = extra_float_digits,options";
    let pooler = PgBouncer::start(&deployment.postgres, ROLE, DATABASE, settings).await.expect("PgBouncer starts");
    let doctor = run(&deployment, &pooler.url(ROLE, DATABASE), &["doctor"]).await;
    assert!(doctor.text().contains("Let [store] url name PostgreSQL itself"), "{}", doctor.text());
}
