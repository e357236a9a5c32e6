//! What scripts rely on: output streams, exit codes, and errors with a hint.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::{STORE_URL_ENV, node};
use ipseity_testkit::{CommandOutput, Deployment, IssuedKey, TestDir, eventually};
use serde_json::{Value, json};

use crate::fixture::{fresh_key, shared_deployment};

/// Every command and group of commands.
const COMMANDS: [&str; 18] = [
    "",
    "serve",
    "check",
    "migrate",
    "account",
    "account create",
    "account show",
    "account list",
    "account plan",
    "key",
    "key issue",
    "key list",
    "key deactivate",
    "key reactivate",
    "key resume",
    "key rotate",
    "key delete",
    "plan",
];

/// An email address that no other test uses.
fn fresh_email() -> String {
    format!("{:016x}@example.com", fastrand::u64(..))
}

async fn run_cli(deployment: &Deployment, line: &str) -> CommandOutput {
    deployment.cli(&line.split_whitespace().collect::<Vec<_>>()).await.expect("run command")
}

/// Runs a command that succeeds and prints nothing to standard error.
async fn run_cli_ok(deployment: &Deployment, line: &str) -> CommandOutput {
    let output = run_cli(deployment, line).await;
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "ipseity {line}");
    output
}

/// Runs the program with only these settings.
pub(crate) fn run_isolated(settings: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(node::find_service_binary().expect("service binary"));
    let output = command.args(arguments).env_clear().envs(settings.iter().copied()).output().expect("run program");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    CommandOutput { code: output.status.code(), stdout: output.stdout, stderr }
}

async fn lookup_with_key(deployment: &Deployment, key: &str) -> ipseity_testkit::TestResponse {
    let bearer = format!("Bearer {key}");
    deployment.nodes[0].client().get("/api/v1/ip", &[("authorization", &bearer)]).await.expect("response")
}

async fn listed_state(deployment: &Deployment, email: &str, id: &str) -> Value {
    let keys = run_cli_ok(deployment, &format!("key list --account {email} --json")).await.json_lines();
    keys.expect("valid JSON").iter().find(|key| key["id"] == id).expect("key is listed")["state"].clone()
}

async fn rotate_key(deployment: &Deployment, id: &str, overlap_s: u32) -> IssuedKey {
    let rotated = run_cli_ok(deployment, &format!("key rotate {id} --overlap-s {overlap_s} --json")).await;
    serde_json::from_slice(&rotated.stdout).expect("valid JSON")
}

#[test]
fn every_command_has_help() {
    for command in COMMANDS.into_iter().chain(["plan list", "plan add", "geo", "geo status", "geo update"]) {
        let arguments: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let output = run_isolated(&[], &arguments);
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "ipseity {command} --help");
        let usage = format!("Usage: ipseity {command}");
        assert!(output.text().contains(usage.trim_end()), "ipseity {command} --help: {}", output.text());
    }
    assert!(
        run_isolated(&[], &["--help"]).text().starts_with("Ipseity returns"),
        "the first line describes the product"
    );
    assert!(run_isolated(&[], &["--version"]).text().starts_with("ipseity "));
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_manages_accounts_and_keys() {
    let (deployment, email) = (shared_deployment().await, fresh_email());
    let made =
        run_cli_ok(deployment, &format!("account create --email {email} --json")).await.json().expect("valid JSON");
    assert_eq!((&made["email"], &made["plan"]), (&json!(email), &json!("free")));
    assert_eq!(
        run_cli_ok(deployment, &format!("account show --email {email} --json")).await.json().expect("valid JSON"),
        made
    );
    let all = run_cli_ok(deployment, "account list --json").await.text();
    assert!(all.lines().any(|line| serde_json::from_str::<Value>(line).expect("valid JSON") == made));

    let issue = format!("key issue --account {email} --scope geo --name web --json");
    let issued = run_cli_ok(deployment, &issue).await.json().expect("valid JSON");
    let (id, key) = (issued["id"].as_str().expect("string"), issued["key"].as_str().expect("string"));
    assert_eq!(issued.as_object().expect("object").len(), 2);
    assert_eq!((id.len(), key.len(), key.starts_with(&format!("ips_{id}"))), (10, 52, true));
    for line in [format!("key list --account {email} --json"), format!("key list --account {email}")] {
        let listed = run_cli_ok(deployment, &line).await.text();
        assert!(listed.contains(id) && listed.contains("web"), "{listed}");
        assert!(!listed.contains(&key[14..]), "a key is shown only once");
    }
    for (change, state_name, status) in [("deactivate", "inactive", 403), ("reactivate", "active", 200)] {
        run_cli_ok(deployment, &format!("key {change} {id}")).await;
        assert_eq!(listed_state(deployment, &email, id).await, state_name);
        assert_eq!(lookup_with_key(deployment, key).await.status, status);
        // The ID may have its prefix, and repeating a change has no effect.
        run_cli_ok(deployment, &format!("key {change} ips_{id}")).await;
        assert_eq!(lookup_with_key(deployment, key).await.status, status);
    }
    let unconfirmed = run_cli(deployment, &format!("key delete {id}")).await;
    assert!(unconfirmed.code == Some(1) && unconfirmed.stderr.contains("add --yes"), "{}", unconfirmed.stderr);
    run_cli_ok(deployment, &format!("key delete {id} --yes")).await;
    assert_eq!(lookup_with_key(deployment, key).await.status, 401);
    assert_eq!(run_cli_ok(deployment, &format!("key list --account {email} --json")).await.text(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn reactivated_key_stays_paused_until_resumed() {
    let (deployment, email) = (shared_deployment().await, fresh_email());
    deployment.create_account(&email).await.expect("create account");
    let issued = deployment.issue_key(&email, Scope::Ip).await.expect("issue key");
    let mut caller = deployment.nodes[0].client();
    let bearer = issued.bearer();
    for expected in [200; 300].into_iter().chain([429, 403]) {
        assert_eq!(caller.get("/api/v1/ip", &[("authorization", &bearer)]).await.expect("response").status, expected);
    }
    for (change, state_name, status) in
        [("deactivate", "inactive", "deactivated"), ("reactivate", "paused", "paused"), ("resume", "active", "active")]
    {
        assert_eq!(
            run_cli_ok(deployment, &format!("key {change} {}", issued.id)).await.text(),
            format!("Key {} is {status}.\n", issued.id)
        );
        assert_eq!(listed_state(deployment, &email, &issued.id).await, state_name);
    }
    assert_eq!(lookup_with_key(deployment, &issued.key).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_change_applies_on_the_next_request() {
    let (deployment, email, plan) = (shared_deployment().await, fresh_email(), format!("p{:08x}", fastrand::u32(..)));
    run_cli_ok(deployment, &format!("plan add {plan} --daily-limit 2")).await;
    let plans = run_cli_ok(deployment, "plan list --json").await.json_lines().expect("valid JSON");
    for (name, daily_limit) in [("free", 10_000), (plan.as_str(), 2)] {
        let listed = plans.iter().find(|listed| listed["name"] == name).expect("plan is listed");
        assert_eq!(listed["limits"]["daily_limit"], daily_limit, "{listed}");
    }
    assert!(run_cli_ok(deployment, "plan list").await.text().contains(&plan));
    let made = run_cli_ok(deployment, &format!("account create --email {email} --plan {plan} --json")).await;
    assert_eq!(made.json().expect("valid JSON")["plan"], json!(plan));
    let issued = deployment.issue_key(&email, Scope::Ip).await.expect("issue key");
    for (expected, limit, left) in [(200, "2", "1"), (200, "2", "0"), (429, "2", "0")] {
        let reply = lookup_with_key(deployment, &issued.key).await;
        let limit_headers = (reply.header("x-ratelimit-limit"), reply.header("x-ratelimit-remaining"));
        assert_eq!((reply.status, limit_headers), (expected, (Some(limit), Some(left))));
    }
    run_cli_ok(deployment, &format!("account plan --email {email} --plan free")).await;
    let reply = lookup_with_key(deployment, &issued.key).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some("9997")));
}

#[tokio::test(flavor = "multi_thread")]
async fn previous_secret_works_until_the_overlap_ends() {
    let deployment = shared_deployment().await;
    let old = fresh_key(deployment, Scope::Ip).await;
    assert_eq!(lookup_with_key(deployment, &old.key).await.header("x-ratelimit-remaining"), Some("9999"));
    let new = rotate_key(deployment, &old.id, 5).await;
    let again = run_cli(deployment, &format!("key rotate {}", old.id)).await;
    assert!(again.code == Some(1) && again.stderr.contains("add --force"), "{}", again.stderr);
    assert_eq!(new.id, old.id);
    assert_eq!(lookup_with_key(deployment, &old.key).await.header("x-ratelimit-remaining"), Some("9998"));
    assert_eq!(lookup_with_key(deployment, &new.key).await.header("x-ratelimit-remaining"), Some("9997"));
    eventually("the previous secret expires", Duration::from_secs(20), async || {
        // Faster requests would pause the key.
        tokio::time::sleep(Duration::from_millis(100)).await;
        lookup_with_key(deployment, &old.key).await.status == 401
    })
    .await
    .expect("happens in time");
    let newest = rotate_key(deployment, &old.id, 0).await;
    for (key, status) in [(&old.key, 401), (&new.key, 401), (&newest.key, 200)] {
        assert_eq!(lookup_with_key(deployment, key).await.status, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn key_can_be_issued_with_a_new_or_an_existing_account() {
    let (deployment, email) = (shared_deployment().await, fresh_email());
    for name in ["first", "second"] {
        let issue = format!("key issue --account {email} --create-accounts --scope ip --name {name} --json");
        let issued = run_cli_ok(deployment, &issue).await.json().expect("valid JSON");
        assert_eq!(lookup_with_key(deployment, issued["key"].as_str().expect("string")).await.status, 200);
    }
    let account = run_cli_ok(deployment, &format!("account show --email {email} --json")).await;
    assert_eq!(account.json().expect("valid JSON")["plan"], json!("free"));
}

#[tokio::test(flavor = "multi_thread")]
async fn cli_error_goes_to_stderr_with_a_hint() {
    let (deployment, email) = (shared_deployment().await, fresh_email());
    deployment.create_account(&email).await.expect("create account");
    for _ in 0..10 {
        deployment.issue_key(&email, Scope::Ip).await.expect("issue key");
    }
    let issue = format!("key issue --account {email} --name x --scope");
    for (line, code, hint) in [
        (format!("{issue} ip"), 1, "`ipseity key delete`"),
        (format!("{issue} wide"), 2, "use ip, geo or full"),
        ("key issue --account missing@example.com --name x --scope ip".to_owned(), 1, "`ipseity account create`"),
        ("key list --account missing@example.com".to_owned(), 1, "`ipseity account create`"),
        ("account show --email missing".to_owned(), 1, "is not an email address"),
        (format!("account create --email {}", email.to_uppercase()), 1, "`ipseity account show`"),
        (format!("account create --email {} --plan none", fresh_email()), 1, "`ipseity plan list`"),
        (format!("account plan --email {email} --plan none"), 1, "`ipseity plan list`"),
        ("plan add free --daily-limit 5".to_owned(), 1, "Add one with another name"),
        ("plan add Big --daily-limit 5".to_owned(), 1, "lowercase letters"),
        ("plan add big --daily-limit 0".to_owned(), 2, "0 is not in 1.."),
        ("key deactivate 0000000000".to_owned(), 1, "`ipseity key list`"),
        ("key resume 0000000000".to_owned(), 1, "`ipseity key list`"),
        ("key rotate 0000000000".to_owned(), 1, "`ipseity key list`"),
        ("key delete 0000000000".to_owned(), 1, "`ipseity key list`"),
        ("key delete short".to_owned(), 2, "`ipseity key list`"),
        ("key rotat".to_owned(), 2, "'rotate'"),
        ("frobnicate".to_owned(), 2, "--help"),
        ("--config nowhere.toml check".to_owned(), 1, "nowhere.toml"),
    ] {
        let output = run_cli(deployment, &line).await;
        assert_eq!((output.code, output.text().as_str()), (Some(code), ""), "ipseity {line}: {}", output.stderr);
        assert!(output.stderr.starts_with("error: "), "ipseity {line}: {}", output.stderr);
        assert!(output.stderr.contains(hint), "ipseity {line}: {}", output.stderr);
    }
}

#[test]
fn check_prints_settings_without_passwords() {
    let settings = [
        ("IPSEITY__STORE__URL", "postgres://me:s3cr3t-a@db.example:5432/ipseity?password=s3cr3t-b"),
        ("IPSEITY__LEDGER__URL", "redis://:s3cr3t-c@counters.example:6379/2"),
        ("IPSEITY__OTLP__ENDPOINT", "http://me:s3cr3t-d@collector.example:4318"),
        ("IPSEITY__EDGE__COLO", "FRA"),
    ];
    let output = run_isolated(&settings, &["check"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let text = output.text();
    for line in ["edge.colo = \"FRA\"", "ledger.timeout_ms = 50", "The configuration is valid."] {
        assert!(text.lines().any(|shown| shown == line), "{line} is missing: {text}");
    }
    for host in ["me:…@db.example:5432/ipseity", "counters.example:6379/2", "me:…@collector.example:4318"] {
        assert!(text.contains(host), "{text}");
    }
    assert!(!text.contains("s3cr3t"), "{text}");
}

#[test]
fn check_names_the_invalid_setting() {
    for (name, value, expected) in [
        ("EDGE__TRUSTED_PROXIES", "0.0.0.0/0", "[edge] trusted_proxies"),
        ("EDGE__TRUSTED_PROXIES", "10.0.0.0/8,::/0", "[edge] trusted_proxies"),
        ("EDGE__TRUSTED_PROXIES", "::ffff:0:0/96", "[edge] trusted_proxies"),
        ("EDGE__TRUSTED_PROXIES", "0.0.0.0/1,128.0.0.0/1", "[edge] trusted_proxies"),
        ("EDGE__TRUSTED_PROXIES", "proxy.example", "edge.trusted_proxies"),
        ("EDGE__FORWARDING_HEADER", "x-client-ip", "[edge] forwarding_header"),
        ("EDGE__COLO", "fra", "[edge] colo"),
        ("EDGE__HTTPS", "127.0.0.1:8443", "certificate_file"),
        ("EDGE__TRUSTED_PROXIES", "10.0.0.7", "Use one such as 10.0.0.0/8 or 10.0.0.7/32"),
        ("EDGE__HTTP", "here", "edge.http"),
        ("EDGE__HTTP", "8080", "\"8080\" is not an IP address with a port. Use one such as 127.0.0.1:8080"),
        ("OPS__LISTEN", "9191", "Use one such as 127.0.0.1:9191"),
        ("EDGE__SHAPE", "round", "IPSEITY__EDGE__SHAPE is not a setting"),
        ("EGDE__COLO", "FRA", "IPSEITY__EGDE__COLO is not a setting. Did you mean IPSEITY__EDGE__COLO?"),
        ("GEO__SOURCES", "https://s3cr3t", "IPSEITY__GEO__SOURCES must be a JSON array"),
        ("LEDGER__TIMEOUT_MS", "soon", "ledger.timeout_ms"),
        ("LEDGER__URL", "u:s3cr3t@nowhere", "[ledger] url"),
        ("LEDGER__URL", "http://localhost", "it must be like redis://host:6379"),
        ("STORE__URL", "u:s3cr3t@nowhere", "[store] url"),
        ("STORE__URL_FILE", "nowhere.txt", "nowhere.txt"),
        ("GEO__FILES", "nowhere.mmdb", "nowhere.mmdb"),
        ("LOG__LEVEL", "loud", "[log] level"),
        ("LOG__FORMAT", "xml", "log.format"),
        ("LOG__FORMAT", "xml", "use one of: json, text"),
        ("EDGE__PRESET", "traefik", "use one of: none, nginx, haproxy, cloudflare, aws-nlb, aws-alb"),
        ("PORTAL__SIGNUP", "maybe", "use one of: open, closed"),
        ("LEDGER__TIMEOUT_MS", "0", "[ledger] timeout_ms must be at least 1"),
        ("LEDGER__TIMEOUT_MS", "", "ledger.timeout_ms"),
        ("EDGE__HTTP", "", "[edge] http and https are both empty"),
        ("EDGE__CONNECTIONS_MAX", "0", "[edge] connections_max must be at least 1"),
        ("PUBLIC__BASE_URL", "ip.example.com", "[public] base_url must be a URL"),
        ("PUBLIC__BASE_URL", "", "[public] base_url must be a URL"),
        ("PUBLIC__BASE_URL", "https://ip.example.com?a=s3cr3t", "[public] base_url must have no user, no ? and no #"),
        ("PUBLIC__BASE_URL", "https://ip.example.com/#s3cr3t", "[public] base_url must have no user"),
        ("PUBLIC__BASE_URL", "https://u:s3cr3t@ip.example.com", "[public] base_url must have no user"),
        ("PUBLIC__DOCS_URL", "https://docs.example.com/#s3cr3t", "[public] docs_url must have no #"),
        ("PUBLIC__SIGNUP_URL", "https://s3cr3t@www.example.com", "[public] signup_url must have no user"),
        ("PUBLIC__ENTERPRISE_URL", "mailto:s3cr3t@example.com", "[public] enterprise_url must be a URL"),
        ("STORE__URL", "mysql://localhost/ipseity", "[store] url: it must start with postgres://"),
        ("STORE__URL", "postgres://h/d?sslmod=s3cr3t", "\"sslmod\" is not a parameter"),
        ("PORTAL__OIDC_ISSUER", "https://idp.example", "[portal] oidc_client_id is empty"),
        ("PORTAL__GITHUB_CLIENT_ID", "id", "failed to read [portal] github_client_secret_file"),
        ("ADMIN__OIDC_ISSUER", "https://idp.example", "[admin] oidc_client_id is empty"),
        ("STORE__URL", "postgres://h/d?sslpassword=s3cr3t", "\"sslpassword\" is not a parameter"),
        ("STORE__URL", "postgres://u:p?s3cr3t@h/d", "Write ? in a password as %3F"),
    ] {
        let output = run_isolated(&[(&format!("IPSEITY__{name}"), value)], &["check"]);
        assert_eq!(output.code, Some(1), "{name}={value}: {}", output.text());
        assert!(output.stderr.starts_with("error: ") && output.stderr.contains(expected), "{name}: {}", output.stderr);
        assert!(!output.text().contains("is valid"), "{name}={value}: {}", output.text());
        assert!(!format!("{}{}", output.text(), output.stderr).contains("s3cr3t"), "{name}: {}", output.stderr);
    }
}

#[test]
fn urls_have_one_form_whatever_their_case_and_spaces() {
    for (name, value, expected) in [
        ("PUBLIC__BASE_URL", " HTTPS://IP.example.com ", "public.base_url = \"https://ip.example.com\""),
        ("PUBLIC__BASE_URL", "https://ip.example.com:443/a/", "public.base_url = \"https://ip.example.com/a/\""),
        ("PUBLIC__DOCS_URL", "HTTPS://Docs.example.com", "public.docs_url = \"https://docs.example.com\""),
        ("OTLP__ENDPOINT", "HTTP://127.0.0.1:4318/", "otlp.endpoint = \"http://127.0.0.1:4318/\""),
    ] {
        let output = run_isolated(&[(&format!("IPSEITY__{name}"), value)], &["check"]);
        let text = output.ensure_success().expect("settings are valid").text();
        // Paths of URLs that may contain a key are redacted.
        let expected = expected.replace("4318/", "4318/…");
        assert!(text.lines().any(|line| line == expected), "{expected}: {text}");
    }
}

#[test]
fn check_names_settings_that_cannot_work() {
    let rediss = ("LEDGER__URL", "rediss://h:1");
    let https = ("EDGE__HTTPS", "127.0.0.1:8443");
    let acme = [("ACME__DOMAINS", "ip.example.com"), ("ACME__ACCEPT_TERMS", "true")];
    for (settings, expected) in [
        (
            vec![("OTLP__TRACE_SAMPLE_RATIO", "2"), ("OTLP__ENDPOINT", "http://127.0.0.1:4318")],
            "is 2. Use a number from",
        ),
        (vec![("OTLP__TRACE_SAMPLE_RATIO", "-1")], "[otlp] trace_sample_ratio is -1. Use a number from 0 to 1"),
        (acme.to_vec(), "[acme] domains is set, but [edge] https is empty"),
        (
            [&acme[..], &[https, ("EDGE__HTTP", ""), ("ACME__CHALLENGE", "http-01")]].concat(),
            "[acme] challenge is \"http-01\", but [edge] http is empty",
        ),
        (
            vec![("EDGE__CERTIFICATES", r#"[{"certificate_file":"/no.pem","private_key_file":"/no.key"}]"#)],
            "[[edge.certificates]] is set, but [edge] https is empty",
        ),
        (vec![("EDGE__HTTP", "127.0.0.1:80,127.0.0.1:80")], "127.0.0.1:80 is in [edge] http and again in [edge] http"),
        (vec![("EDGE__HTTP", "127.0.0.1:8443"), https], "127.0.0.1:8443 is in [edge] http and again in [edge] https"),
        (vec![("OPS__LISTEN", "127.0.0.1:8080")], "127.0.0.1:8080 is in [edge] http and again in [ops] listen"),
        (
            vec![("EDGE__HTTP", "0.0.0.0:9464")],
            "0.0.0.0:9464 in [edge] http and 127.0.0.1:9464 in [ops] listen overlap, because 0.0.0.0 is every address",
        ),
        (vec![("EDGE__HTTP", "[::1]:80,[::]:80")], "because :: is every address"),
        (vec![("EDGE__MEMORY_BYTES_MAX", "0")], "[edge] memory_bytes_max must be at least 4194304"),
        (vec![("EDGE__MEMORY_PER_CONNECTION_BYTES_MAX", "1")], "must be at least 262144"),
        (vec![("EDGE__UNSOLICITED_BYTES_MAX", "0")], "[edge] unsolicited_bytes_max must be at least 32768"),
        (vec![("EDGE__HEADER_BYTES_MAX", "1")], "[edge] header_bytes_max must be at least 1024"),
        (vec![("LEDGER__URL", "rediss://h:1/#insecure")], "invalid [ledger] url: it has a fragment. Write # as %23."),
        (vec![rediss, ("LEDGER__CA_FILE", "/etc/passwd")], "[ledger] ca_file /etc/passwd has no valid PEM certificate"),
        (
            vec![rediss, ("LEDGER__CERTIFICATE_FILE", "/etc/passwd"), ("LEDGER__PRIVATE_KEY_FILE", "/etc/passwd")],
            "[ledger] certificate_file /etc/passwd has no valid PEM certificate",
        ),
        (
            vec![("STORE__URL", "postgres://h/d?sslrootcert=/no.pem")],
            "failed to read sslrootcert /no.pem: No such file",
        ),
        (vec![("STORE__URL", "postgres://h/d?sslrootcert=/etc/passwd")], "the file of sslrootcert has no valid PEM"),
    ] {
        let settings: Vec<_> = settings.iter().map(|(name, value)| (format!("IPSEITY__{name}"), *value)).collect();
        let settings: Vec<_> = settings.iter().map(|(name, value)| (&**name, *value)).collect();
        let output = run_isolated(&settings, &["check"]);
        assert_eq!(output.code, Some(1), "{settings:?}: {}", output.text());
        assert!(output.stderr.contains(expected), "{settings:?}: {}", output.stderr);
    }
    for valid in [
        ("EDGE__HTTP", "127.0.0.1:0,127.0.0.1:0"),
        ("EDGE__HTTP", "127.0.0.1:80,[::1]:80"),
        ("OTLP__TRACE_SAMPLE_RATIO", "1"),
    ] {
        let output = run_isolated(&[(&format!("IPSEITY__{}", valid.0), valid.1)], &["check"]);
        output.ensure_success().expect("settings are valid");
    }
}

#[test]
fn errors_in_a_configuration_file_name_file_and_line() {
    let dir = TestDir::create().expect("create a directory");
    let file = dir.path().join("ipseity.toml");
    let path = file.display().to_string();
    let unique_path = Path::new(dir.path().file_name().expect("folder has a name")).join("ipseity.toml");
    let unique_path = unique_path.display().to_string();
    for (text, expected) in [
        ("[edge]\nhttpp = []\n", "has an unknown setting edge.httpp, line 2. Did you mean edge.http?"),
        ("[edge\n", "ipseity.toml"),
        ("[ledger]\ntimeout_ms = \"soon\"\n", "ledger.timeout_ms"),
    ] {
        std::fs::write(&file, text).expect("write the file");
        let output = run_isolated(&[], &["--config", &path, "check"]);
        // The path can be relative to the working directory. The name of the folder is random.
        assert!(output.stderr.contains(expected) && output.stderr.contains(&unique_path), "{text}: {}", output.stderr);
    }
    std::fs::write(&file, "[edge]\nhttp = \"127.0.0.1:80\"\n").expect("write the file");
    let output = run_isolated(&[], &["--config", &path, "check"]);
    let is_explained = output.stderr.contains("A list needs brackets") && output.stderr.contains("edge.http");
    assert!(is_explained, "{}", output.stderr);
    let folder = dir.path().display().to_string();
    for unreadable in [&folder, "nowhere.toml"] {
        let output = run_isolated(&[], &["--config", unreadable, "check"]);
        let expected = format!("failed to read the configuration file {unreadable}");
        assert!(output.stderr.contains(&expected), "{}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_and_settings_are_read_from_files() {
    let (deployment, folder) = (shared_deployment().await, TestDir::create().expect("create directory"));
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("write file");
        path.display().to_string()
    };
    let (store, ledger) =
        (file("store", &format!("{}\n", deployment.env()[STORE_URL_ENV])), file("ledger", &deployment.redis.url()));
    let settings = file("own.toml", &format!("[store]\nurl_file = \"{store}\"\n[ledger]\nurl_file = \"{ledger}\"\n"));
    let email = fresh_email();
    // A file overrides the plain setting of a configuration file, and a variable overrides both.
    let by_variable = ("IPSEITY__LEDGER__URL", deployment.redis.url());
    let wrong_file = file("wrong", "redis://127.0.0.1:1");
    let settings_with_wrong_file =
        file("wrong.toml", &format!("[store]\nurl_file = \"{store}\"\n[ledger]\nurl_file = \"{wrong_file}\"\n"));
    let doctor = run_isolated(&[(by_variable.0, &by_variable.1)], &["--config", &settings_with_wrong_file, "check"]);
    assert!(doctor.text().contains(&by_variable.1) && !doctor.text().contains("127.0.0.1:1\""), "{}", doctor.text());
    let create = ["--config", &settings, "account", "create", "--email", &email, "--json"];
    assert_eq!(
        run_isolated(&[], &create).ensure_success().expect("command succeeds").json().expect("valid JSON")["email"],
        json!(email)
    );
    let by_environment = [("IPSEITY__STORE__URL_FILE", store.as_str()), ("IPSEITY__LEDGER__URL_FILE", &ledger)];
    let show = run_isolated(&by_environment, &["account", "show", "--email", &email]);
    assert!(show.ensure_success().expect("command succeeds").text().contains(&email));
    let unknown = file("unknown.toml", "[edge]\nshape = \"round\"\n");
    let rejected = run_isolated(&[], &["check", "--config", &unknown]);
    assert_eq!((rejected.code, rejected.stderr.contains("shape")), (Some(1), true), "{}", rejected.stderr);
}
