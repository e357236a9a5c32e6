//! Both addresses of a caller: tokens of one address family, sent with a lookup over the other one.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use http::Method;
use ipseity_domain::Scope;
use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{
    Deployment, Http3TestClient, IssuedKey, Node, ReservedPort, StreamTestClient, TestClient, TestDir, TestResponse,
    eventually,
};
use serde_json::{Value, json};

use crate::errors::ExpectedError;
use crate::fixture::{fresh_key, shared_deployment};
use crate::limits::rate_limit_headers;
use crate::privacy::canaries::random_v4;

pub(crate) const PAIR_PATH: &str = "/api/v1/pair";
pub(crate) const LOOKUP_PATH: &str = "/api/v1/ip";

/// Settings of a node whose URLs for one family are its loopback addresses. Its base URL has the name `localhost`.
pub(crate) fn pairing_env(settings: &[(&str, &str)]) -> Env {
    let urls = [("IPV4_URL", "https://127.0.0.1"), ("IPV6_URL", "https://[::1]")];
    let all = urls.iter().chain(settings);
    all.map(|(name, value)| (format!("IPSEITY__PUBLIC__{name}"), (*value).to_owned())).collect()
}

/// A node that listens on both loopback addresses, with the same ports.
struct DualStackNode {
    _node: Node,
    http: ReservedPort,
    https: ReservedPort,
}

impl DualStackNode {
    async fn start(deployment: &Deployment) -> Self {
        let [http, https] = [(); 2].map(|()| ReservedPort::reserve_free().expect("free port"));
        let mut env = pairing_env(&[]);
        for (name, port) in [("HTTP", &http), ("HTTPS", &https)] {
            let addresses = format!("127.0.0.1:{0},[::1]:{0}", port.number());
            env.insert(format!("IPSEITY__EDGE__{name}"), addresses);
        }
        let node = deployment.start_node(&env).await.expect("node starts");
        Self { _node: node, http, https }
    }

    /// Clients over IPv4 and over IPv6.
    fn clients(&self) -> [TestClient; 2] {
        self.addresses(&self.http).map(TestClient::new)
    }

    fn addresses(&self, port: &ReservedPort) -> [SocketAddr; 2] {
        [(Ipv4Addr::LOCALHOST, port.number()).into(), (Ipv6Addr::LOCALHOST, port.number()).into()]
    }
}

pub(crate) async fn request_token(client: &mut TestClient, headers: &[(&str, &str)]) -> String {
    let reply = client.get(PAIR_PATH, headers).await.expect("response arrives");
    assert_eq!((reply.status, reply.header("cache-control")), (200, Some("no-store")), "{}", reply.text());
    reply.json().expect("valid JSON")["token"].as_str().expect("text").to_owned()
}

async fn lookup_with_token(
    client: &mut TestClient,
    key: &IssuedKey,
    token: &str,
    headers: &[(&str, &str)],
) -> TestResponse {
    let bearer = key.bearer();
    let headers = [&[("authorization", bearer.as_str()), ("ipseity-pair", token)], headers].concat();
    let reply = client.get(LOOKUP_PATH, &headers).await.expect("response arrives");
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply
}

/// Both address fields, and why no token was used.
pub(crate) fn addresses_of(reply: &TestResponse) -> (Value, Value, Option<&str>) {
    let body = reply.json().expect("valid JSON");
    (body["ip"].clone(), body["ipv6"].clone(), reply.header("ipseity-pair-unused"))
}

#[tokio::test(flavor = "multi_thread")]
async fn lookup_returns_both_addresses_over_every_protocol() {
    let deployment = shared_deployment().await;
    let (dual, key) = (DualStackNode::start(deployment).await, fresh_key(deployment, Scope::Ip).await);
    let [mut over_ipv4, mut over_ipv6] = dual.clients();
    let pair = over_ipv6.get(PAIR_PATH, &[("origin", "https://shop.example.com")]).await.expect("response arrives");
    let pair_body = pair.json().expect("valid JSON");
    assert_eq!((&pair_body["family"], &pair_body["expires_in_s"]), (&json!("ipv6"), &json!(30)));
    assert_eq!(pair.header("access-control-allow-origin"), Some("*"));
    let tokens = [request_token(&mut over_ipv4, &[]).await, request_token(&mut over_ipv6, &[]).await].join(", ");
    let (bearer, both) = (key.bearer(), (json!("127.0.0.1"), json!("::1"), None));
    let headers = [("authorization", bearer.as_str()), ("ipseity-pair", tokens.as_str())];
    for client in [&mut over_ipv4, &mut over_ipv6] {
        assert_eq!(addresses_of(&client.get(LOOKUP_PATH, &headers).await.expect("response arrives")), both);
    }
    let ca_file = &deployment.certificate.ca_file;
    for server in dual.addresses(&dual.https) {
        let mut http2 = StreamTestClient::new(server, StreamProtocol::Http2, Some(ca_file)).expect("client connects");
        assert_eq!(addresses_of(&http2.get(LOOKUP_PATH, &headers).await.expect("response arrives")), both);
        let options = Http3TestOptions::localhost(server, ca_file);
        let mut http3 = Http3TestClient::connect(options).await.expect("connection opens");
        assert_eq!(addresses_of(&http3.get(LOOKUP_PATH, &headers).await.expect("response arrives")), both);
    }
    let meta = over_ipv4.get("/api/v1/meta", &[]).await.expect("response arrives").json().expect("valid JSON");
    assert_eq!((&meta["ipv4_url"], &meta["ipv6_url"]), (&json!("https://127.0.0.1"), &json!("https://[::1]")));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_family_for_the_host_is_misdirected() {
    let deployment = shared_deployment().await;
    let dual = DualStackNode::start(deployment).await;
    let [ipv4, ipv6] = dual.addresses(&dual.https);
    for (host, server) in [(ipv4, ipv6), (ipv6, ipv4)] {
        for protocol in ["--http1.1", "--http2"] {
            let (route, url) = (format!("{host}:{server}"), format!("https://{host}{LOOKUP_PATH}"));
            let arguments = [protocol, "--connect-to", &route, "--write-out", "%{http_code} %header{alt-svc}", &url];
            let output = deployment.curl(&arguments).await.expect("curl runs").text();
            assert!(output.contains("misdirected_request"), "{output}");
            // It names no host, so that a browser does not use the connection of one family for the other.
            assert!(output.ends_with(&format!("421 h3=\":{}\"; ma=86400", dual.https.number())), "{output}");
        }
    }
    let options =
        Http3TestOptions { name: "127.0.0.1", ..Http3TestOptions::localhost(ipv6, &deployment.certificate.ca_file) };
    let mut http3 = Http3TestClient::connect(options).await.expect("connection opens");
    ExpectedError::MISDIRECTED.assert_matches(&http3.get(PAIR_PATH, &[]).await.expect("response arrives"));

    // Behind a proxy, the family is the client's.
    let [mut over_ipv4, mut over_ipv6] = dual.clients();
    for (host, forwarded) in [(ipv4, "2001:db8::7"), (ipv6, "198.51.100.7"), (ipv4, "?")] {
        let client = if host == ipv4 { &mut over_ipv4 } else { &mut over_ipv6 };
        let headers = [("x-forwarded-for", forwarded), ("origin", "https://shop.example.com")];
        for path in [LOOKUP_PATH, "/api/v1/ip/demo", PAIR_PATH, "/api/v1/meta", "/", "/docs", "/nowhere"] {
            let reply = client.get(path, &headers).await.expect("response arrives");
            ExpectedError::MISDIRECTED.assert_matches(&reply);
        }
        let preflight = client.send(Method::OPTIONS, LOOKUP_PATH, &headers).await.expect("response arrives");
        assert_eq!(preflight.status, 204, "a script can read the 421 that follows");
    }
    let bare = deployment.nodes[0].client().get(PAIR_PATH, &[]).await.expect("response arrives");
    ExpectedError::NOT_FOUND.assert_matches(&bare);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_that_cannot_be_used_changes_nothing_and_says_why() {
    let deployment = shared_deployment().await;
    let node = deployment.start_node(&pairing_env(&[("PAIR_TOKEN_LIFETIME_S", "1")])).await.expect("node starts");
    let (mut client, key) = (node.client(), fresh_key(deployment, Scope::Full).await);
    let token = request_token(&mut client, &[]).await;
    let other_origin = request_token(&mut client, &[("origin", "https://shop.example.com")]).await;
    let own = json!("127.0.0.1");
    for (token, reason) in
        [(&*token, "same-family"), (&other_origin, "unreadable"), ("x", "unreadable"), ("", "unreadable")]
    {
        let reply = lookup_with_token(&mut client, &key, token, &[]).await;
        assert_eq!(addresses_of(&reply), (own.clone(), Value::Null, Some(reason)), "{token}");
        let exposed = reply.header("access-control-expose-headers").expect("exposed headers are set");
        assert!(exposed.contains("Ipseity-Pair-Unused"), "{exposed}");
    }
    let charged = rate_limit_headers(&lookup_with_token(&mut client, &key, &token, &[]).await);
    assert_eq!(charged.remaining, charged.limit - 5, "each lookup is charged once, and tokens are not");
    // The name of this host is `localhost`, so it is for both families.
    let mut at_base = StreamTestClient::new(node.http(), StreamProtocol::Http2, None).expect("client connects");
    let bearer = key.bearer();
    let expires = async || {
        // Few lookups, or they would pause the key.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let headers = [("authorization", &*bearer), ("ipseity-pair", &*token), ("x-forwarded-for", "2001:db8::7")];
        let reply = at_base.get(LOOKUP_PATH, &headers).await.expect("response arrives");
        addresses_of(&reply) == (Value::Null, json!("2001:db8::7"), Some("expired"))
    };
    eventually("the token expires", Duration::from_secs(10), expires).await.expect("token expires");

    let demo = client.get("/api/v1/ip/demo", &[("ipseity-pair", &token)]).await.expect("response arrives");
    assert_eq!((demo.status, demo.header("ipseity-pair-unused")), (200, None));
    let unpaired = &mut deployment.nodes[0].client();
    let reply = lookup_with_token(unpaired, &key, &token, &[]).await;
    assert_eq!(addresses_of(&reply), (own, Value::Null, Some("unreadable")), "this node has no pairing");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_address_of_the_other_family_is_added_behind_a_proxy() {
    let deployment = shared_deployment().await;
    let env = [pairing_env(&[]), verbose_logs()].into_iter().flatten().collect();
    let node = deployment.start_node(&env).await.expect("node starts");
    let (mut client, key) = (node.client(), fresh_key(deployment, Scope::Full).await);
    let mut at_base = StreamTestClient::new(node.http(), StreamProtocol::Http2, None).expect("client connects");
    let (own, others) = ("2001:db8::7".to_owned(), [(); 2].map(|()| random_v4(129..=223).to_string()));
    let bearer = key.bearer();
    let mut without_token = None;
    // Both callers are of one network, so they share the entry of the render cache.
    for other in &others {
        let token = request_token(&mut client, &[("x-forwarded-for", other)]).await;
        let headers = [("authorization", &*bearer), ("x-forwarded-for", &*own), ("ipseity-pair", &*token)];
        let reply = at_base.get(LOOKUP_PATH, &headers).await.expect("response arrives");
        let mut body = reply.json().expect("valid JSON");
        assert_eq!((&body["ip"], &body["ipv6"]), (&json!(other), &json!(own)));
        body["ip"].take();
        let plain =
            at_base.get(LOOKUP_PATH, &headers[..2]).await.expect("response arrives").json().expect("valid JSON");
        assert_eq!((&plain["ip"], &plain["ipv6"]), (&Value::Null, &json!(own)), "the next caller does not see it");
        assert_eq!(*without_token.get_or_insert(plain), body, "location and network are those of the connection");
        let log = node.log().expect("log is readable");
        assert!(log.contains("\"operation\":\"pair\""), "{log}");
        assert!(!log.contains(&token) && !log.contains(other), "{log}");
    }
}

/// Logs at their most verbose level.
fn verbose_logs() -> Env {
    [("LEVEL", "trace"), ("ACCESS", "true")]
        .map(|(name, value)| (format!("IPSEITY__LOG__{name}"), value.to_owned()))
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn landing_page_shows_its_visitor_both_addresses() {
    let deployment = shared_deployment().await;
    let node = deployment.start_node(&pairing_env(&[])).await.expect("node starts");
    let mut at_base = StreamTestClient::new(node.http(), StreamProtocol::Http2, None).expect("client connects");
    let page = at_base.get("/", &[]).await.expect("page loads");
    assert!(page.text().contains("data-pair-urls=\"https://127.0.0.1 https://[::1]\""), "{}", page.text());
    let csp = page.header("content-security-policy").expect("policy is set");
    assert!(csp.contains("connect-src 'self' https://127.0.0.1 https://[::1];"), "{csp}");
    let docs = at_base.get("/docs", &[]).await.expect("page loads");
    assert!(docs.header("content-security-policy").is_some_and(|csp| csp.contains("connect-src 'self';")));

    let base_url = node.env()["IPSEITY__PUBLIC__BASE_URL"].clone();
    // A browser sends the origin of the page to another host, and none to the same one.
    let token = request_token(&mut node.client(), &[("origin", &base_url)]).await;
    let own = ("x-forwarded-for", "2001:db8::7");
    for (site, token, status) in [
        ("same-origin", &*token, 200),
        ("cross-site", &token, 204),
        ("same-site", &token, 204),
        ("same-origin", "x", 204),
    ] {
        let headers = [("sec-fetch-site", site), ("ipseity-pair", token), own];
        let reply = at_base.get("/paired-address", &headers).await.expect("response arrives");
        assert_eq!((reply.status, reply.header("cache-control")), (status, Some("no-store")), "{site} {token}");
        if status == 200 {
            assert_eq!(addresses_of(&reply), (json!("127.0.0.1"), json!("2001:db8::7"), None));
        }
    }
    let without_site = at_base.get("/paired-address", &[("ipseity-pair", &token), own]).await;
    assert_eq!(without_site.expect("response arrives").status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_per_network_are_limited() {
    let deployment = shared_deployment().await;
    let limit = pairing_env(&[("PAIR_TOKENS_PER_SUBNET_PER_MIN_MAX", "2")]);
    let node = deployment.start_node(&limit).await.expect("node starts");
    let mut client = node.client();
    let address = random_v4(129..=223).to_string();
    let statuses = async |client: &mut TestClient, address: &str| {
        let mut replies = Vec::new();
        for _ in 0..5 {
            replies.push(client.get(PAIR_PATH, &[("x-forwarded-for", address)]).await.expect("response arrives"));
        }
        replies
    };
    // A minute may end in between.
    let replies = statuses(&mut client, &address).await;
    let limited: Vec<_> = replies.iter().filter(|reply| reply.status == 429).collect();
    assert!(!limited.is_empty() && replies[0].status == 200, "{replies:?}");
    ExpectedError::PAIR_LIMIT.assert_matches(limited[0]);
    let headers = rate_limit_headers(limited[0]);
    assert_eq!((headers.limit, headers.remaining), (2, 0));
    let other = random_v4(129..=223).to_string();
    assert_eq!(statuses(&mut client, &other).await[0].status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_pairing_settings_are_reported() {
    let deployment = shared_deployment().await;
    let dir = TestDir::create().expect("directory");
    let key_file = dir.path().join("keys");
    fs::write(&key_file, "seal s3cr3t").expect("write file");
    let key_file = key_file.display().to_string();
    let valid = [
        ("BASE_URL", "https://ip.example.com"),
        ("IPV4_URL", "https://v4.example.com"),
        ("IPV6_URL", "https://v6.example.com"),
    ];
    for (settings, expected) in [
        (&[][..], None),
        (&[("IPV6_URL", "")], Some("Set both, or neither")),
        (&[("IPV6_URL", "http://v6.example.com")], Some("ipv6_url must be https://")),
        (&[("IPV4_URL", "https://v4.example.com/path")], Some("ipv4_url must be https://")),
        (&[("IPV4_URL", "v4.example.com")], Some("[public] ipv4_url must be a URL")),
        (&[("IPV6_URL", "https://V4.example.com:8443")], Some("three different host names")),
        (&[("IPV4_URL", "https://ip.example.com:8443")], Some("three different host names")),
        (&[("PAIR_TOKEN_LIFETIME_S", "0")], Some("pair_token_lifetime_s")),
        (&[("PAIR_TOKEN_LIFETIME_S", "901")], Some("pair_token_lifetime_s")),
        (&[("SEALING_KEY_FILE", "/nonexistent")], Some("failed to read /nonexistent")),
        (&[("SEALING_KEY_FILE", &key_file)], Some("line 1 is not")),
    ] {
        let names: Vec<_> =
            valid.iter().chain(settings).map(|(name, value)| (format!("IPSEITY__PUBLIC__{name}"), value)).collect();
        let settings: Vec<_> = names.iter().map(|(name, value)| (&**name, **value)).collect();
        let output = deployment.cli_with_env(&settings, &["check"]).await.expect("command runs");
        assert_eq!(output.code == Some(0), expected.is_none(), "{settings:?}: {}", output.stderr);
        assert!(expected.is_none_or(|text| output.stderr.contains(text)), "{settings:?}: {}", output.stderr);
        assert!(!output.stderr.contains("s3cr3t") && !output.text().contains("s3cr3t"));
    }
}
