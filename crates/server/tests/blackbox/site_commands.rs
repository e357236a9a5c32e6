//! Commands that manage sites with remote nodes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ipseity_testkit::deployment::{DATABASE, STORE_URL_ENV};
use ipseity_testkit::{CommandOutput, Deployment, TestDir};

use crate::fixture::shared_deployment;

/// A name that no other test uses.
fn fresh_site() -> String {
    format!("site-{:012x}", fastrand::u64(..) >> 16)
}

/// Runs a command as the owner of the database, because nodes cannot change sites.
async fn run_site(deployment: &Deployment, settings: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
    let url = deployment.postgres.url(DATABASE);
    let settings = [settings, &[(STORE_URL_ENV, url.as_str())]].concat();
    deployment.cli_with_env(&settings, &[&["site"], arguments].concat()).await.expect("run command")
}

async fn listed_certificate(deployment: &Deployment, name: &str) -> Option<String> {
    let sites = run_site(deployment, &[], &["list", "--json"]).await.json_lines().expect("valid JSON");
    let site = sites.iter().find(|site| site["name"] == name)?;
    Some(site["certificate_sha256"].as_str().expect("string").to_owned())
}

fn file_mode(path: &Path) -> u32 {
    fs::metadata(path).expect("file exists").permissions().mode() & 0o777
}

/// What openssl prints about a certificate.
fn inspect_certificate(file: &Path) -> String {
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-text", "-fingerprint", "-sha256", "-in"])
        .arg(file)
        .output()
        .expect("run openssl");
    String::from_utf8(output.stdout).expect("valid UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn added_site_gets_files_for_its_nodes_until_it_is_removed() {
    let (deployment, name, parent) = (shared_deployment().await, fresh_site(), TestDir::create().expect("directory"));
    let home_ca = parent.path().join("ca.pem");
    fs::write(&home_ca, "-----BEGIN CERTIFICATE-----\n").expect("write file");
    let dir = parent.path().join("site");
    let add = ["add", &name, "--dir", dir.to_str().expect("valid UTF-8")];
    let settings = [
        ("IPSEITY__HOME__CA_FILE", home_ca.to_str().expect("valid UTF-8")),
        ("IPSEITY__HOME__ADVERTISED_URLS", "https://a.example:9443,https://b.example:9443"),
    ];
    let added = run_site(deployment, &settings, &add).await;
    assert_eq!((added.code, added.stderr.as_str()), (Some(0), ""));
    assert!(added.text().starts_with(&format!("Added site {name}. ")), "{}", added.text());

    let modes = [dir.clone(), dir.join("site.pem"), dir.join("site.key")].map(|path| file_mode(&path));
    assert_eq!(modes, [0o700, 0o644, 0o600]);
    let config = fs::read_to_string(dir.join("ipseity.toml")).expect("file exists");
    assert!(config.contains(r#"urls = ["https://a.example:9443","https://b.example:9443"]"#), "{config}");
    assert_eq!(fs::read(dir.join("home-ca.pem")).expect("file exists"), fs::read(&home_ca).expect("file exists"));
    let certificate = inspect_certificate(&dir.join("site.pem"));
    for part in [
        format!("Subject: CN = {name}"),
        format!("DNS:{name}"),
        "TLS Web Client Authentication".to_owned(),
        "ASN1 OID: prime256v1".to_owned(),
    ] {
        // Versions of openssl differ in spaces.
        assert!(certificate.replace(' ', "").contains(&part.replace(' ', "")), "{part}: {certificate}");
    }
    let listed = listed_certificate(deployment, &name).await.expect("site is listed");
    assert!(certificate.replace(':', "").to_lowercase().contains(&listed), "{listed}: {certificate}");

    let repeated = run_site(deployment, &settings, &add).await;
    assert!(repeated.code == Some(1) && repeated.stderr.contains("already exists"), "{}", repeated.stderr);
    let unconfirmed = run_site(deployment, &[], &["remove", &name]).await;
    assert!(unconfirmed.code == Some(1) && unconfirmed.stderr.contains("--yes"), "{}", unconfirmed.stderr);
    assert_eq!(listed_certificate(deployment, &name).await, Some(listed), "neither changes the site");
    let removed = run_site(deployment, &[], &["remove", &name, "--yes"]).await;
    assert_eq!((removed.code, removed.stderr.as_str()), (Some(0), ""));
    assert_eq!(listed_certificate(deployment, &name).await, None);
    let unknown = run_site(deployment, &[], &["remove", &name, "--yes"]).await;
    assert!(unknown.code == Some(1) && unknown.stderr.contains("`ipseity site list`"), "{}", unknown.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_site_is_not_trusted_and_leaves_no_files() {
    let (deployment, name, parent) = (shared_deployment().await, fresh_site(), TestDir::create().expect("directory"));
    let path = |name: &str| parent.path().join(name).to_str().expect("valid UTF-8").to_owned();
    fs::create_dir(path("used")).expect("create directory");
    fs::write(path("used/file"), "").expect("write file");
    let missing_ca = [("IPSEITY__HOME__CA_FILE", "/missing/ca.pem")];
    for (settings, site, dir, code, hint) in [
        (&[][..], name.as_str(), "used", 1, "is not empty"),
        (&missing_ca[..], &name, "new", 1, "[home] ca_file"),
        (&[], "Site", "new", 2, "lowercase letters"),
    ] {
        let output = run_site(deployment, settings, &["add", site, "--dir", &path(dir)]).await;
        assert!(output.code == Some(code) && output.stderr.contains(hint), "{hint}: {}", output.stderr);
        assert_eq!(listed_certificate(deployment, site).await, None);
    }
    assert!(!Path::new(&path("new")).exists());
    assert_eq!(fs::read_dir(path("used")).expect("read directory").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn restricted_role_lists_sites_but_cannot_change_them() {
    let (deployment, name, parent) = (shared_deployment().await, fresh_site(), TestDir::create().expect("directory"));
    let dir = parent.path().join("site");
    let add = ["site", "add", &name, "--dir", dir.to_str().expect("valid UTF-8")];
    for arguments in [&add[..], &["site", "remove", &name, "--yes"]] {
        let output = deployment.cli(arguments).await.expect("run command");
        assert!(output.code == Some(1) && output.stderr.contains("may only read sites"), "{}", output.stderr);
    }
    assert!(!dir.exists());
    assert!(deployment.cli(&["site", "list"]).await.expect("run command").is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn site_add_says_what_is_left_to_configure() {
    let (deployment, name, parent) = (shared_deployment().await, fresh_site(), TestDir::create().expect("directory"));
    let dir = parent.path().join("site");
    let settings = [("IPSEITY__PUBLIC__BASE_URL", "http://ip.example.com")];
    let added = run_site(deployment, &settings, &["add", &name, "--dir", dir.to_str().expect("valid UTF-8")]).await;
    for part in ["Set colo", "Set urls", "Set portal_url", "home-ca.pem"] {
        assert!(added.text().contains(part), "{part}: {}", added.text());
    }
    assert!(listed_certificate(deployment, &name).await.is_some());
    assert!(run_site(deployment, &[], &["list"]).await.text().starts_with("SITE "));
    assert!(run_site(deployment, &[], &["remove", &name, "--yes"]).await.is_success());
}
