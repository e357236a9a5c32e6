//! All combinations of protocols, TLS versions, proxies and address families, with real nginx and haproxy, curl and a
//! QUIC client. Checks every connection field.
//!
//! The proxies run the configuration in docs/proxies.md. nginx without TLS uses a separate port for HTTP/2. Impossible
//! combinations are omitted: HTTP/3 requires TLS 1.3, and neither proxy supports it.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

use ipseity_domain::Scope;
use ipseity_testkit::client::quic::{CipherSuite, Http3TestOptions};
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Deployment, Http3TestClient, IssuedKey, Node, ReverseProxy, ReverseProxyKind};
use serde_json::{Value, json};

use crate::connection::{CurlResponse, NegotiatedSession, curl_lookup, print_line};
use crate::fixture::{fresh_key, shared_deployment};
use crate::proxies::{edge_env, snippet};

/// A loopback address outside the trusted networks.
const CLIENT_ADDRESS: &str = "127.0.0.77";

/// Address families: index of the listener among a route's addresses, host in the URL, curl's source options, and the
/// reported address.
const FAMILIES: [(&str, usize, &str, &[&str], &str); 3] = [
    ("IPv4", 0, "127.0.0.1", &["--interface", CLIENT_ADDRESS], CLIENT_ADDRESS),
    ("IPv6", 1, "[::1]", &[], "::1"),
    ("IPv4-mapped", 2, "127.0.0.1", &["--interface", CLIENT_ADDRESS], CLIENT_ADDRESS),
];
const PROTOCOLS: [(&str, &str, &str); 2] =
    [("HTTP/1.1", "--http1.1", "--http1.1"), ("HTTP/2", "--http2-prior-knowledge", "--http2")];
const SESSIONS: [(&str, &[&str]); 3] =
    [("clear", &[]), ("TLS 1.2", &["--tlsv1.2", "--tls-max", "1.2"]), ("TLS 1.3", &["--tlsv1.3"])];
/// Cipher suites for QUIC clients and their names.
const QUIC_SUITES: [(CipherSuite, &str); 3] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
];

/// The documented PROXY version.
const PROXY_V2: &str = "send-proxy-v2 proxy-v2-options ssl,ssl-cipher,crc32c";

/// Maps the session that curl negotiated to the reported one.
type ExpectedSession = fn(&NegotiatedSession) -> NegotiatedSession;

/// One route to the service: its addresses for plain HTTP (HTTP/1.1, HTTP/2) and TLS, for each family.
pub(crate) struct ProxyRoute {
    pub(crate) name: &'static str,
    clear: [[u16; 3]; 2],
    pub(crate) tls: [u16; 3],
    expected_session: ExpectedSession,
    reports_rtt: bool,
    _processes: (Vec<Node>, Option<ReverseProxy>),
}

impl ProxyRoute {
    /// Checks every field of one response.
    fn check_response(&self, cell: &str, client: &str, protocol: &str, response: &CurlResponse) {
        let (ip, ipv6) = (&response.body["ip"], &response.body["ipv6"]);
        assert_eq!(if ip.is_null() { ipv6 } else { ip }, &json!(client), "{cell}");
        assert!(ip.is_null() != ipv6.is_null(), "{cell}");
        assert_eq!(response.negotiated[0], json!(protocol), "{cell}");
        assert_eq!(response.reported(), (self.expected_session)(&response.negotiated), "{cell}");
        assert_eq!(response.body["rtt"].is_u64(), self.reports_rtt, "{cell}");
        assert!(response.body["colo"].is_null(), "{cell}");
    }
}

fn same_as_negotiated(negotiated: &NegotiatedSession) -> NegotiatedSession {
    negotiated.clone()
}

fn no_session(_: &NegotiatedSession) -> NegotiatedSession {
    [Value::Null, Value::Null, Value::Null]
}

/// A PROXY header of version 2 reports TLS, and HTTP by ALPN.
fn tls_session_only(negotiated: &NegotiatedSession) -> NegotiatedSession {
    if negotiated[1].is_null() { no_session(negotiated) } else { negotiated.clone() }
}

fn protocol_only(negotiated: &NegotiatedSession) -> NegotiatedSession {
    [negotiated[0].clone(), Value::Null, Value::Null]
}

/// Free ports for three families: 127.0.0.1, ::1, and [::] for both.
fn free_addresses() -> [SocketAddr; 3] {
    ["127.0.0.1", "::1", "::"].map(|address| {
        let address: IpAddr = address.parse().expect("valid address");
        TcpListener::bind((address, 0)).and_then(|port| port.local_addr()).expect("bind a port")
    })
}

fn join_addresses(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Certificate and key in one file, as haproxy requires.
fn combined_pem(deployment: &Deployment) -> String {
    let read = |file: &Path| std::fs::read_to_string(file).expect("read the file");
    let file = deployment.certificate.chain_file.with_file_name("both.pem");
    std::fs::write(&file, read(&deployment.certificate.chain_file) + &read(&deployment.certificate.private_key_file))
        .expect("read the file");
    file.display().to_string()
}

pub(crate) async fn direct_route(deployment: &Deployment, more_settings: Env) -> ProxyRoute {
    let (clear, tls) = (free_addresses(), free_addresses());
    let mut settings = edge_env(&[
        ("TRUSTED_PROXIES", "127.0.0.1/32"),
        ("HTTP", &join_addresses(&clear)),
        ("HTTPS", &join_addresses(&tls)),
    ]);
    settings.extend(more_settings);
    let node = deployment.start_node(&settings).await.expect("node starts");
    let ports = |all: [SocketAddr; 3]| all.map(|address| address.port());
    let clear = [ports(clear), ports(clear)];
    ProxyRoute {
        name: "direct",
        clear,
        tls: ports(tls),
        expected_session: same_as_negotiated,
        reports_rtt: true,
        _processes: (vec![node], None),
    }
}

pub(crate) async fn nginx_route(deployment: &Deployment, more_settings: Env) -> ProxyRoute {
    let mut settings = edge_env(&[("PRESET", "nginx"), ("TRUSTED_PROXIES", "127.0.0.1/32")]);
    settings.extend(more_settings);
    let node = deployment.start_node(&settings).await.expect("node starts");
    let certificate = &deployment.certificate;
    let configure = |ports: &[u16]| {
        let listen = |from: usize, options: &str| {
            format!(
                "listen 127.0.0.1:{} {options}; listen [::1]:{} {options}; listen [::]:{} ipv6only=off {options};",
                ports[from],
                ports[from + 1],
                ports[from + 2]
            )
        };
        snippet("nginx")
            .replace("listen 80;", &[listen(0, ""), listen(3, "http2")].concat())
            .replace("listen [::]:80;", "")
            .replace("listen 443 ssl http2;", &listen(6, "ssl http2"))
            .replace("listen [::]:443 ssl http2;", "")
            .replace("/etc/ssl/ipseity.pem", &certificate.chain_file.display().to_string())
            .replace("/etc/ssl/ipseity.key", &certificate.private_key_file.display().to_string())
            .replace("10.0.0.5:8080", &node.http().to_string())
    };
    let proxy = ReverseProxy::start(ReverseProxyKind::Nginx, 9, configure).await.expect("nginx starts");
    let ports = |from: usize| [from, from + 1, from + 2].map(|index| proxy.addresses()[index].port());
    let (clear, tls) = ([ports(0), ports(3)], ports(6));
    ProxyRoute {
        name: "nginx",
        clear,
        tls,
        expected_session: same_as_negotiated,
        reports_rtt: true,
        _processes: (vec![node], Some(proxy)),
    }
}

/// haproxy with the documented configuration, in front of a node with these settings.
pub(crate) async fn documented_haproxy_route(deployment: &Deployment, more_settings: Env) -> ProxyRoute {
    haproxy_route(deployment, "haproxy", PROXY_V2, more_settings, tls_session_only).await
}

/// haproxy with the documented configuration and this PROXY version, in front of a node with these settings.
async fn haproxy_route(
    deployment: &Deployment,
    name: &'static str,
    version: &str,
    more_settings: Env,
    expected_session: ExpectedSession,
) -> ProxyRoute {
    let mut settings = edge_env(&[("PRESET", "haproxy"), ("TRUSTED_PROXIES", "127.0.0.1/32")]);
    settings.extend(more_settings);
    let node = deployment.start_node(&settings).await.expect("node starts");
    let both = combined_pem(deployment);
    let configure = |ports: &[u16]| {
        let bind = |from: usize, options: &str| {
            format!(
                "bind 127.0.0.1:{} {options}\n    bind ::1:{} {options}\n    bind :::{} v4v6 {options}\n",
                ports[from],
                ports[from + 1],
                ports[from + 2]
            )
        };
        snippet("haproxy")
            .replace("bind :80\n", &bind(0, ""))
            .replace("    bind :::80 v6only\n", "")
            .replace(
                "bind :443 ssl crt /etc/ssl/ipseity.pem alpn h2,http/1.1\n",
                &bind(3, &format!("ssl crt {both} alpn h2,http/1.1")),
            )
            .replace("    bind :::443 v6only ssl crt /etc/ssl/ipseity.pem alpn h2,http/1.1\n", "")
            .replace(PROXY_V2, version)
            .replace("10.0.0.5:8080", &node.http().to_string())
    };
    let proxy = ReverseProxy::start(ReverseProxyKind::Haproxy, 6, configure).await.expect("haproxy starts");
    let ports = |from: usize| [from, from + 1, from + 2].map(|index| proxy.addresses()[index].port());
    let (clear, tls) = ([ports(0), ports(0)], ports(3));
    ProxyRoute { name, clear, tls, expected_session, reports_rtt: false, _processes: (vec![node], Some(proxy)) }
}

/// haproxy that forwards TLS unchanged, like a network load balancer.
async fn load_balancer_route(deployment: &Deployment, name: &'static str, version: &str) -> ProxyRoute {
    let settings = edge_env(&[("PRESET", "aws-nlb"), ("TRUSTED_PROXIES", "127.0.0.1/32")]);
    let node = deployment.start_node(&settings).await.expect("node starts");
    let configure = |ports: &[u16]| {
        let section = |name: &str, from: usize, target: SocketAddr| {
            format!(
                "listen {name}\n    mode tcp\n    bind 127.0.0.1:{}\n    bind ::1:{}\n    bind :::{} v4v6\n    server node {target} {version}\n",
                ports[from],
                ports[from + 1],
                ports[from + 2]
            )
        };
        section("clear", 0, node.http()) + &section("secure", 3, node.https())
    };
    let proxy = ReverseProxy::start(ReverseProxyKind::Haproxy, 6, configure).await.expect("haproxy starts");
    let ports = |from: usize| [from, from + 1, from + 2].map(|index| proxy.addresses()[index].port());
    let (clear, tls) = ([ports(0), ports(0)], ports(3));
    ProxyRoute {
        name,
        clear,
        tls,
        expected_session: same_as_negotiated,
        reports_rtt: false,
        _processes: (vec![node], Some(proxy)),
    }
}

/// Checks all combinations of a route over TCP; returns their number.
async fn check_route(deployment: &Deployment, key: &IssuedKey, route: &ProxyRoute) -> usize {
    let authority = deployment.certificate.ca_file.to_str().expect("valid path");
    let mut cells = 0;
    for (protocol_index, (protocol, over_clear, over_tls)) in PROTOCOLS.into_iter().enumerate() {
        for (session, version) in SESSIONS {
            for (family, listener, host, source, client) in FAMILIES {
                let is_clear = version.is_empty();
                let port = if is_clear { route.clear[protocol_index][listener] } else { route.tls[listener] };
                let scheme = if is_clear { "http" } else { "https" };
                let url = format!("{scheme}://{host}:{port}/api/v1/ip");
                let option = if is_clear { over_clear } else { over_tls };
                let response =
                    curl_lookup(&url, key, &[&["--cacert", authority, option], version, source].concat()).await;
                let cell = format!("{protocol}, {session}, {}, {family}", route.name);
                route.check_response(&cell, client, protocol, &response);
                cells += 1;
            }
        }
    }
    print_line(&format!("{}: {cells} cells", route.name));
    cells
}

/// Checks all combinations of the direct route over QUIC with each cipher suite; returns their number.
async fn check_route_over_quic(deployment: &Deployment, key: &IssuedKey, route: &ProxyRoute) -> usize {
    let authority = &deployment.certificate.ca_file;
    let mut cells = 0;
    for (suite, suite_name) in QUIC_SUITES {
        for (family, listener, host, _, client) in FAMILIES {
            let server = format!("{host}:{}", route.tls[listener]).parse().expect("valid address");
            let source = Some(client.parse().expect("valid address"));
            let options = Http3TestOptions {
                cipher_suite: Some(suite),
                source_ip: source,
                ..Http3TestOptions::localhost(server, authority)
            };
            let mut caller = Http3TestClient::connect(options).await.expect("connection opens");
            let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("response arrives");
            let agreed =
                caller.alpn_protocol().map(|protocol| String::from_utf8_lossy(&protocol).replace('h', "HTTP/"));
            let negotiated = [json!(agreed), json!("TLSv1.3"), json!(suite_name)];
            let response = CurlResponse { body: reply.json().expect("valid JSON"), negotiated };
            route.check_response(
                &format!("HTTP/3, {suite_name}, {}, {family}", route.name),
                client,
                "HTTP/3",
                &response,
            );
            caller.close().await;
            cells += 1;
        }
    }
    print_line(&format!("{}, HTTP/3: {cells} cells", route.name));
    cells
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_fields_are_exact_or_null_on_every_route() {
    let deployment = shared_deployment().await;
    let key = fresh_key(deployment, Scope::Full).await;
    let through = || edge_env(&[("PASS_THROUGH", "http")]);
    let direct = direct_route(deployment, Env::new()).await;
    let mut cells =
        check_route(deployment, &key, &direct).await + check_route_over_quic(deployment, &key, &direct).await;
    cells += check_route(deployment, &key, &nginx_route(deployment, Env::new()).await).await;
    cells += check_route(
        deployment,
        &key,
        &haproxy_route(deployment, "haproxy, PROXY v1", "send-proxy", Env::new(), no_session).await,
    )
    .await;
    cells += check_route(
        deployment,
        &key,
        &haproxy_route(deployment, "haproxy, PROXY v2", PROXY_V2, Env::new(), tls_session_only).await,
    )
    .await;
    let passing =
        haproxy_route(deployment, "haproxy, HTTP pass-through, PROXY v1", "send-proxy", through(), protocol_only).await;
    cells += check_route(deployment, &key, &passing).await;
    cells += check_route(
        deployment,
        &key,
        &haproxy_route(deployment, "haproxy, HTTP pass-through, PROXY v2", PROXY_V2, through(), same_as_negotiated)
            .await,
    )
    .await;
    cells += check_route(
        deployment,
        &key,
        &load_balancer_route(deployment, "haproxy, TLS pass-through, PROXY v1", "send-proxy").await,
    )
    .await;
    cells += check_route(
        deployment,
        &key,
        &load_balancer_route(deployment, "haproxy, TLS pass-through, PROXY v2", "send-proxy-v2").await,
    )
    .await;
    assert_eq!(cells, 8 * 2 * 3 * 3 + 3 * 3);
}
