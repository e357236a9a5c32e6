//! Both addresses of a caller, over every protocol, direct and through nginx and haproxy.
//!
//! `IPSEITY_PAIRS` sets the number of pairs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ipseity_domain::Scope;
use ipseity_testkit::client::quic::Http3TestOptions;
use ipseity_testkit::client::streams::StreamProtocol;
use ipseity_testkit::{Http3TestClient, StreamTestClient, TestResponse};
use serde_json::json;

use crate::connection::print_line;
use crate::fixture::{env_number, fresh_key, shared_deployment};
use crate::pairing::{LOOKUP_PATH, PAIR_PATH, addresses_of, pairing_env};
use crate::proxy_matrix::{ProxyRoute, direct_route, documented_haproxy_route, nginx_route};

/// Below the burst limit.
const PAIRS_PER_KEY: usize = 200;

enum RouteClient {
    Streams(StreamTestClient),
    Http3(Http3TestClient),
}

impl RouteClient {
    async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        let reply = match self {
            Self::Streams(client) => client.get(path, headers).await,
            Self::Http3(client) => client.get(path, headers).await,
        };
        let reply = reply.expect("response arrives");
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply
    }
}

/// Clients over IPv4 and over IPv6 for each protocol of a route.
async fn connect(route: &ProxyRoute, ca_file: &Path) -> Vec<(&'static str, [RouteClient; 2])> {
    let servers: [SocketAddr; 2] =
        [(Ipv4Addr::LOCALHOST, route.tls[0]).into(), (Ipv6Addr::LOCALHOST, route.tls[1]).into()];
    let mut clients = Vec::new();
    for (name, protocol) in [("HTTP/1.1", StreamProtocol::Http11), ("HTTP/2", StreamProtocol::Http2)] {
        let connect = |server| StreamTestClient::new(server, protocol, Some(ca_file)).expect("client connects");
        clients.push((name, servers.map(|server| RouteClient::Streams(connect(server)))));
    }
    // Neither proxy supports HTTP/3.
    if route.name == "direct" {
        let connect = async |server| {
            let options = Http3TestOptions::localhost(server, ca_file);
            RouteClient::Http3(Http3TestClient::connect(options).await.expect("connection opens"))
        };
        clients.push(("HTTP/3", [connect(servers[0]).await, connect(servers[1]).await]));
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn both_addresses_are_paired_on_every_route() {
    let deployment = shared_deployment().await;
    let ca_file = &deployment.certificate.ca_file;
    let settings = || pairing_env(&[("PAIR_TOKENS_PER_SUBNET_PER_MIN_MAX", "1000000")]);
    let routes = [
        direct_route(deployment, settings()).await,
        nginx_route(deployment, settings()).await,
        documented_haproxy_route(deployment, settings()).await,
    ];
    let pairs = env_number("IPSEITY_PAIRS", 70) / 7;
    let mut paired = 0;
    for route in &routes {
        // A connection has a maximum number of requests.
        for first in (0..pairs).step_by(PAIRS_PER_KEY) {
            for (protocol, mut clients) in connect(route, ca_file).await {
                let key = fresh_key(deployment, Scope::Ip).await;
                for pair in (first..pairs).take(PAIRS_PER_KEY) {
                    // The token of one family, the lookup over the other, in turn.
                    let (issuer, caller) = if pair % 2 == 0 { (0, 1) } else { (1, 0) };
                    let token = clients[issuer].get(PAIR_PATH, &[]).await.json().expect("valid JSON")["token"].clone();
                    let headers = [("authorization", &*key.bearer()), ("ipseity-pair", token.as_str().expect("text"))];
                    let reply = clients[caller].get(LOOKUP_PATH, &headers).await;
                    let both = (json!("127.0.0.1"), json!("::1"), None);
                    assert_eq!(addresses_of(&reply), both, "{}, {protocol}, pair {pair}", route.name);
                    paired += 1;
                }
            }
        }
        print_line(&format!("{}: {paired} pairs so far", route.name));
    }
    assert_eq!(paired, 7 * pairs);
}
