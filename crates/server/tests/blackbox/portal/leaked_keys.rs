//! Reports of leaked keys, by people and by GitHub.

use std::process::Command;

use ipseity_domain::Scope;
use ipseity_testkit::{TestDir, TestResponse};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::fixture::{PortalFixture, TestMember, assert_redirects_to, shared_fixture};
use crate::fixture::lookup_status;

/// GitHub: a key pair, and a server with its public key.
struct Scanner {
    dir: TestDir,
    keys_url: String,
}

impl Scanner {
    async fn start() -> Self {
        let dir = TestDir::create().expect("create directory");
        let key = dir.path().join("key.pem");
        openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key.display().to_string()]);
        let public_key = openssl(&["ec", "-in", &key.display().to_string(), "-pubout"]);
        let public_key = String::from_utf8(public_key).expect("PEM is text");
        let keys = json!({ "public_keys": [{ "key_identifier": "current", "key": public_key, "is_current": true }] });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port is free");
        let keys_url = format!("http://{}/keys", listener.local_addr().expect("socket is bound"));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let body = keys.to_string();
                let reply =
                    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(reply.as_bytes()).await;
            }
        });
        Self { dir, keys_url }
    }

    fn sign(&self, body: &str) -> String {
        let [key, file, signature] = ["key.pem", "body", "signature"].map(|name| self.dir.path().join(name));
        std::fs::write(&file, body).expect("write file");
        let [key, file, out] = [&key, &file, &signature].map(|path| path.display().to_string());
        openssl(&["dgst", "-sha256", "-sign", &key, "-out", &out, &file]);
        let encoded = openssl(&["base64", "-A", "-in", &out]);
        String::from_utf8(encoded).expect("Base64 is text").trim().to_owned()
    }

    /// Sends a report as GitHub does.
    async fn report(&self, fixture: &PortalFixture, body: &str, identifier: &str, signature: &str) -> TestResponse {
        let headers = [
            ("content-type", "application/json"),
            ("github-public-key-identifier", identifier),
            ("github-public-key-signature", signature),
        ];
        let mut client = fixture.node().client();
        client.post("/leaked-keys/github", &headers, body.to_owned()).await.expect("response arrives")
    }
}

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("openssl").args(arguments).output().expect("openssl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn findings(tokens: &[&str]) -> String {
    let findings = tokens.iter().map(|token| {
        json!({ "token": token, "type": "ipseity_api_key", "url": "https://example.com/a", "source": "content" })
    });
    Value::from(findings.collect::<Vec<_>>()).to_string()
}

fn labels(reply: &TestResponse) -> Vec<String> {
    let labels = reply.json().expect("valid JSON");
    let label = |finding: &Value| finding["label"].as_str().expect("label").to_owned();
    labels.as_array().expect("labels").iter().map(label).collect()
}

async fn member_with_key(fixture: &PortalFixture) -> (TestMember, ipseity_testkit::IssuedKey) {
    let mut member = fixture.create_member().await;
    let key = member.create_key("shop", Scope::Ip).await;
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 200);
    (member, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn leaked_key_is_deactivated_and_its_owner_is_notified() {
    let scanner = Scanner::start().await;
    let fixture = &PortalFixture::open(&[("IPSEITY__PORTAL__GITHUB_KEYS_URL", &scanner.keys_url)]).await;
    let (mut member, key) = member_with_key(fixture).await;
    let (_, other) = member_with_key(fixture).await;
    let body = findings(&[&key.key, "ips_nonsense"]);
    for _ in 0..2 {
        let reply = scanner.report(fixture, &body, "current", &scanner.sign(&body)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(labels(&reply), ["true_positive", "false_positive"]);
    }
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 403);
    assert_eq!(lookup_status(fixture.node(), &other.key).await, 200);
    let message = fixture.smtp.wait_for_email(&member.email, "found in public").await.expect("email arrives");
    assert!(message.text.contains(&format!("shop (ips_{})", key.id)) && !message.text.contains(&key.key));
    let events = format!("select count(*) from security_events where kind = 'key_leaked' and key_id = '{}'", key.id);
    assert_eq!(fixture.psql(&events).await, "1", "a repeated report changes nothing");
    let page = format!("/keys/{}", key.id);
    assert!(member.browser.get(&page).await.text().contains("Deactivated"));

    // What the email advises must not make the leaked secret valid again.
    let rotated = member.browser.post(&format!("{page}/rotate"), &[("overlap_s", "86400")]).await;
    let new_key = super::fixture::key_shown_on(&rotated).expect("page shows the key").key;
    assert_redirects_to(&member.browser.post(&format!("{page}/reactivate"), &[]).await, &page);
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 401);
    assert_eq!(lookup_status(fixture.node(), &new_key).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn report_labels_each_finding() {
    let scanner = Scanner::start().await;
    let fixture = &PortalFixture::open(&[("IPSEITY__PORTAL__GITHUB_KEYS_URL", &scanner.keys_url)]).await;
    let (_, key) = member_with_key(fixture).await;
    let other_end = if key.key.ends_with('x') { 'y' } else { 'x' };
    let unknown = format!("{}{other_end}", &key.key[..51]);
    let body = findings(&[&key.key, &unknown]);
    let reply = scanner.report(fixture, &body, "current", &scanner.sign(&body)).await;
    assert_eq!(labels(&reply), ["true_positive", "false_positive"]);
    assert!(!reply.text().contains("ips_"), "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn report_of_an_inactive_key_warns_its_owner_once() {
    let fixture = shared_fixture().await;
    let (mut member, key) = member_with_key(fixture).await;
    let page = format!("/keys/{}", key.id);
    let mut finder = fixture.browser();
    let report = [("key", key.key.as_str())];
    assert_redirects_to(&member.browser.post(&format!("{page}/deactivate"), &[]).await, &page);
    for _ in 0..2 {
        let reply = finder.post("/leaked-keys", &report).await;
        assert!(reply.text().contains("did not work anyway"), "{}", reply.text());
    }
    let events = format!("select count(*) from security_events where kind = 'key_leaked' and key_id = '{}'", key.id);
    assert_eq!(fixture.psql(&events).await, "1");
    fixture.smtp.wait_for_email(&member.email, "found in public").await.expect("email arrives");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_report_is_rejected() {
    let (scanner, forger) = (Scanner::start().await, Scanner::start().await);
    let fixture = &PortalFixture::open(&[("IPSEITY__PORTAL__GITHUB_KEYS_URL", &scanner.keys_url)]).await;
    let (_, key) = member_with_key(fixture).await;
    let body = findings(&[&key.key]);
    let other_body = findings(&["ips_other"]);
    for (identifier, signature) in [
        ("current", forger.sign(&body)),
        ("current", scanner.sign(&other_body)),
        ("current", String::new()),
        ("current", "AAAA".to_owned()),
        ("", scanner.sign(&body)),
    ] {
        assert_eq!(scanner.report(fixture, &body, identifier, &signature).await.status, 403, "{identifier}");
    }
    // Unknown identifiers make the node read the keys again, a limited number of times.
    let mut statuses = Vec::new();
    for number in 0..8 {
        statuses.push(scanner.report(fixture, &body, &format!("unknown{number}"), &scanner.sign(&body)).await.status);
    }
    assert!(statuses.contains(&403) && statuses.ends_with(&[429]), "{statuses:?}");
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 200);
    let reply = scanner.report(fixture, "no report", "current", &scanner.sign("no report")).await;
    assert_eq!(reply.status, 400);
    let disabled = shared_fixture().await;
    assert_eq!(scanner.report(disabled, &body, "current", &scanner.sign(&body)).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn anyone_can_report_a_key_by_a_form() {
    let fixture = shared_fixture().await;
    let (mut member, key) = member_with_key(fixture).await;
    let mut finder = fixture.browser();
    let wrong = finder.post("/leaked-keys", &[("key", "ips_not-a-key")]).await;
    assert!(wrong.text().contains("contains no Ipseity key"), "{}", wrong.text());
    let rotated = member.browser.post(&format!("/keys/{}/rotate", key.id), &[("overlap_s", "3600")]).await;
    let new_key = super::fixture::key_shown_on(&rotated).expect("page shows the key").key;
    let text = format!("const KEY = '{}';", key.key);
    let reply = finder.post("/leaked-keys", &[("key", &text)]).await;
    assert!(reply.text().contains("The key no longer works"), "{}", reply.text());
    assert_eq!(lookup_status(fixture.node(), &key.key).await, 401, "the old secret is revoked");
    assert_eq!(lookup_status(fixture.node(), &new_key).await, 200, "the new one still works");
    let message = fixture.smtp.wait_for_email(&member.email, "old secret").await.expect("email arrives");
    assert!(message.text.contains("The current secret still works"), "{}", message.text);
    finder.post("/leaked-keys", &[("key", &new_key)]).await;
    assert_eq!(lookup_status(fixture.node(), &new_key).await, 403);
    let again = finder.post("/leaked-keys", &[("key", &new_key)]).await;
    assert!(again.text().contains("did not work anyway"), "{}", again.text());
}
