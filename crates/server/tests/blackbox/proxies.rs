//! Proxy trust as an operator configures it: presets, settings rejected at startup, the explanations of `ipseity
//! check`, and spoofed headers through a real proxy.

use std::net::SocketAddr;
use std::process::Command;

use ipseity_domain::Scope;
use ipseity_testkit::deployment::node;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{CommandOutput, ReverseProxy, ReverseProxyKind, curl};
use serde_json::{Value, json};

use crate::certificates::metric_value;
use crate::connection::curl_lookup;
use crate::fixture::{fresh_key, shared_deployment};

type EdgeEnvPairs = &'static [(&'static str, &'static str)];
type ArgumentList = &'static [&'static str];

/// The first code block of this language in docs/proxies.md.
pub(crate) fn snippet(language: &str) -> String {
    code_blocks(language).into_iter().next().expect("docs have the snippet")
}

fn code_blocks(language: &str) -> Vec<String> {
    let text = include_str!("../../../../docs/proxies.md");
    let beginning = format!("```{language}\n");
    let blocks = text.split(&beginning).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// Environment variables of the section `edge`.
pub(crate) fn edge_env(settings: &[(&str, &str)]) -> Env {
    settings.iter().map(|(name, value)| (format!("IPSEITY__EDGE__{name}"), (*value).to_owned())).collect()
}

fn run_check(settings: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(node::find_service_binary().expect("program is built"));
    let output =
        command.arg("check").args(arguments).env_clear().envs(edge_env(settings)).output().expect("command runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    CommandOutput { code: output.status.code(), stdout: output.stdout, stderr }
}

#[test]
fn too_broad_proxy_trust_is_rejected_with_a_reason() {
    let refused: [(EdgeEnvPairs, &str); 12] = [
        (&[("TRUSTED_PROXIES", "0.0.0.0/0")], "contains every address"),
        (&[("TRUSTED_PROXIES", "::/0")], "contains every address"),
        (&[("TRUSTED_PROXIES", "0.0.0.0/1,128.0.0.0/1")], "contains every address"),
        (&[("TRUSTED_PROXIES", "::ffff:0:0/96")], "every IPv4 address"),
        (&[("TRUSTED_PROXIES", "2000::/3")], "a sixteenth or more of all IPv6"),
        (&[("TRUSTED_PROXIES", "16.0.0.0/4")], "a sixteenth or more of all IPv4"),
        (&[("PRESET", "nginx")], "trusted_proxies is empty"),
        (&[("PRESET", "haproxy")], "trusted_proxies is empty"),
        (&[("PROXY_PROTOCOL", "127.0.0.1:8080")], "trusted_proxies is empty"),
        (&[("PROXY_PROTOCOL", "127.0.0.1:1"), ("TRUSTED_PROXIES", "10.0.0.0/8")], "not in http or https"),
        (&[("FORWARDING_HEADER", "x-anything")], "Use one of"),
        (&[("RTT_HEADER", "x-forwarded-for")], "another setting already uses"),
    ];
    for (settings, reason) in refused {
        let output = run_check(settings, &[]);
        assert_eq!(output.code, Some(1), "{settings:?}");
        assert!(output.stderr.contains(reason), "{settings:?}: {}", output.stderr);
    }
}

#[test]
fn preset_fills_defaults_without_overriding() {
    const NETWORK: (&str, &str) = ("TRUSTED_PROXIES", "10.0.0.0/8");
    let shown: [(EdgeEnvPairs, ArgumentList); 6] = [
        (&[("PRESET", "none")], &["edge.forwarding_header = \"x-forwarded-for\"", "edge.proxy_protocol = []"]),
        (
            &[("PRESET", "nginx"), NETWORK],
            &["edge.rtt_header = \"x-client-rtt\"", "edge.scheme_header = \"x-forwarded-proto\""],
        ),
        (
            &[("PRESET", "haproxy"), NETWORK],
            &["edge.proxy_protocol = [\"127.0.0.1:8080\"]", "edge.pass_through = \"none\""],
        ),
        (&[("PRESET", "aws-nlb"), NETWORK, ("PASS_THROUGH", "http")], &["edge.pass_through = \"http\""]),
        (
            &[("PRESET", "aws-alb"), NETWORK],
            &["edge.forwarding_header = \"x-forwarded-for\"", "edge.scheme_header = \"x-forwarded-proto\""],
        ),
        (&[("PRESET", "cloudflare")], &["edge.forwarding_header = \"cf-connecting-ip\"", "173.245.48.0/20", "cf-ray"]),
    ];
    for (settings, lines) in shown {
        let text = run_check(settings, &[]).ensure_success().expect("valid configuration").text();
        for line in lines {
            assert!(text.contains(line), "{settings:?}: {line}");
        }
    }
}

#[test]
fn check_explains_which_client_address_is_used() {
    const TRUSTED: EdgeEnvPairs = &[("TRUSTED_PROXIES", "10.0.0.0/8")];
    const BEHIND_HAPROXY: EdgeEnvPairs = &[("TRUSTED_PROXIES", "10.0.0.0/8"), ("PRESET", "haproxy")];
    const PROXY_LINE: &str = "PROXY TCP4 198.51.100.7 192.0.2.1 4711 443";
    let explained: [(EdgeEnvPairs, ArgumentList, &str, &str); 8] = [
        (
            TRUSTED,
            &["--peer", "192.0.2.1", "--header", "X-Forwarded-For: 9.9.9.9"],
            "192.0.2.1",
            "is not in [edge] trusted_proxies",
        ),
        (TRUSTED, &["--peer", "10.0.0.1"], "10.0.0.1", "sent no x-forwarded-for"),
        (
            TRUSTED,
            &["--peer", "10.0.0.1", "--header", "X-Forwarded-For: 9.9.9.9, 198.51.100.7"],
            "198.51.100.7",
            "connection headers of the proxy",
        ),
        (
            TRUSTED,
            &["--peer", "::ffff:10.0.0.1", "--header", "x-forwarded-for: 198.51.100.7, 10.2.3.4"],
            "198.51.100.7",
            "10.2.3.4 is in [edge] trusted_proxies",
        ),
        (
            TRUSTED,
            &["--peer", "10.0.0.1", "--header", "X-Forwarded-For: 9.9.9.9, unknown"],
            "unknown",
            "has no readable address",
        ),
        (
            BEHIND_HAPROXY,
            &["--peer", "10.0.0.1", "--proxy-header", PROXY_LINE],
            "198.51.100.7",
            "Its PROXY header names the peer",
        ),
        (BEHIND_HAPROXY, &["--peer", "192.0.2.1", "--proxy-header", PROXY_LINE], "none", "may not send a PROXY header"),
        (BEHIND_HAPROXY, &["--peer", "10.0.0.1"], "none", "expects a PROXY header"),
    ];
    for (settings, arguments, expected_address, reason) in explained {
        let text = run_check(settings, arguments).ensure_success().expect("check prints an explanation").text();
        assert!(
            text.contains(&format!("Client: {expected_address}")) && text.contains(reason),
            "{arguments:?}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_a_proxy_does_not_name_is_null_and_reported_to_the_operator() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    for (header, unreadable, readable) in [
        ("x-forwarded-for", &["unknown", "garbage", "8.8.8.8, garbage", "", ","][..], "198.51.100.7, "),
        ("forwarded", &["for=unknown", "for=8.8.8.8, by=10.0.0.1", "for=\"_hidden\"", ""], "for=198.51.100.7,"),
        ("cf-connecting-ip", &["unknown", "198.51.100.7, 198.51.100.8", ""], "198.51.100.7"),
        ("x-real-ip", &["garbage", ""], "198.51.100.7"),
    ] {
        let node = deployment.start_node(&edge_env(&[("FORWARDING_HEADER", header)])).await.expect("node starts");
        let mut caller = node.client();
        let bearer = key.bearer();
        for value in unreadable {
            let headers = [("authorization", &*bearer), (header, value)];
            let reply = caller.get("/api/v1/ip", &headers).await.expect("response arrives");
            let body = reply.json().expect("valid JSON");
            let fields = body.as_object().expect("value is an object");
            let known: Vec<_> =
                fields.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str()).collect();
            assert_eq!((reply.status, known), (200, vec!["status"]), "{header}: {value:?}");
        }
        let page = caller.get("/", &[(header, unreadable[0])]).await.expect("page loads");
        assert!(page.status == 200 && page.text().contains("Unknown"), "{header}");
        let headers = [("authorization", &*bearer), (header, readable)];
        let reply = caller.get("/api/v1/ip", &headers).await.expect("response arrives");
        assert_eq!(reply.json().expect("valid JSON")["ip"], "198.51.100.7", "{header}: {readable:?}");
        let counted = metric_value(&node, "ipseity_unidentified_clients_total").await;
        assert_eq!(counted, unreadable.len() as i64 + 1, "{header}");
        let log = node.log().expect("log is readable");
        assert_eq!(log.matches("a trusted proxy did not name its client").count(), 1, "{header}: {log}");
        assert!(!log.contains("8.8.8.8") && !log.contains("garbage"), "the log repeats the header: {log}");
    }
}

#[test]
fn documented_proxy_settings_are_valid() {
    let files = code_blocks("toml");
    assert_eq!(files.len(), 7);
    for (index, text) in files.iter().enumerate() {
        let dir = ipseity_testkit::TestDir::create().expect("create a directory");
        let certificate =
            ipseity_testkit::certificate::TestCertificate::generate_in(dir.path()).expect("create a certificate");
        let mut text = text.clone();
        for (name, file) in [("pem", &certificate.chain_file), ("key", &certificate.private_key_file)] {
            for stem in ["ipseity", "origin"] {
                text = text.replace(&format!("/etc/ssl/{stem}.{name}"), &file.display().to_string());
            }
        }
        let file = dir.path().join("ipseity.toml");
        std::fs::write(&file, text).expect("write the file");
        let output = run_check(&[], &["--config", file.to_str().expect("valid path")]);
        assert_eq!(output.code, Some(0), "block {index}: {}", output.stderr);
    }
}

/// nginx with this configuration, without TLS.
pub(crate) async fn start_nginx(configuration: &str, node: SocketAddr) -> ReverseProxy {
    let configure = |ports: &[u16]| {
        let mut text = configuration.replace("listen 80;", &format!("listen 127.0.0.1:{};", ports[0]));
        for line in ["listen [::]:80;", "listen 443 ssl http2;", "listen [::]:443 ssl http2;"] {
            text = text.replace(line, "");
        }
        let kept_lines = text.lines().filter(|line| !line.contains("/etc/ssl/"));
        kept_lines.collect::<Vec<_>>().join("\n").replace("10.0.0.5:8080", &node.to_string())
    };
    ReverseProxy::start(ReverseProxyKind::Nginx, 1, configure).await.expect("nginx starts")
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_nginx_logs_neither_keys_nor_addresses() {
    // No node listens there, so each request is also an error.
    let no_node = "127.0.0.1:1".parse().expect("valid address");
    let documented = snippet("nginx");
    let logging = documented.replace("access_log off;", "").replace("error_log /dev/null;", "");
    for (configuration, is_logged) in [(documented, false), (logging, true)] {
        let proxy = start_nginx(&configuration, no_node).await;
        let url = format!("http://{}/api/v1/ip?key=ips_canary", proxy.addresses()[0]);
        // nginx logs a request after its response. The only worker has logged the first one before it answers the second.
        for _ in 0..2 {
            let output = curl(&["--interface", "127.0.0.77", &url]).await.expect("curl runs").text();
            assert!(output.contains("502"), "{output}");
        }
        for canary in ["127.0.0.77", "ips_canary"] {
            assert_eq!(proxy.log().contains(canary), is_logged, "{canary}: {}", proxy.log());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spoofed_headers_through_nginx_are_ignored() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let settings = edge_env(&[("PRESET", "nginx"), ("TRUSTED_PROXIES", "127.0.0.1/32")]);
    let node = deployment.start_node(&settings).await.expect("node starts");
    let proxy = start_nginx(&snippet("nginx"), node.http()).await;
    let url = format!("http://{}/api/v1/ip", proxy.addresses()[0]);
    let spoofed_headers = [
        "X-Forwarded-For: 203.0.113.9",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-For: \"203.0.113.9",
        "X-Forwarded-For: 203.0.113.9,",
        "Forwarded: for=203.0.113.9",
        "X-Real-IP: 203.0.113.9",
        "CF-Connecting-IP: 203.0.113.9",
        "X-Client-TLS-Version: TLSv1.3",
        "X-Client-TLS-Cipher: TLS_AES_128_GCM_SHA256",
        "X-Client-Protocol: HTTP/3",
        "X-Client-RTT: 99999ms",
        "X-Client-Colo: XXX",
    ];
    for spoofed in spoofed_headers {
        let response =
            curl_lookup(&url, &key, &["--interface", "127.0.0.77", "--header", spoofed, "--header", spoofed]).await;
        assert_eq!(response.body["ip"], "127.0.0.77", "{spoofed}");
        assert_eq!(response.reported(), [json!("HTTP/1.1"), Value::Null, Value::Null], "{spoofed}");
        assert!(
            response.body["rtt"].as_u64().is_some_and(|ms| ms < 1000) && response.body["colo"].is_null(),
            "{spoofed}"
        );
    }
}
