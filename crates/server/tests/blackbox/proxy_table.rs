//! The table of protocols, TLS versions, proxies and address families: real nginx, real haproxy, curl, a caller over QUIC, and every
//! field of the connection.
//!
//! The proxies run what docs/proxies.md says; nginx without TLS takes HTTP/2 on a port of its own. Cells that cannot be are left out:
//! HTTP/3 is TLS 1.3 alone, and neither proxy speaks it.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

use domain::Scope;
use serde_json::{Value, json};
use testkit::quic::{CipherSuite, QuicOptions};
use testkit::{House, Issued, Node, Proxy, ProxyKind, QuicCaller};

use crate::connection::{Answer, Session, ask, show};
use crate::proxies::{edge, snippet};
use crate::shared::{fresh_key, house};

/// A client on the loopback that no trusted network holds.
const CLIENT: &str = "127.0.0.77";

/// How a client comes: the listener's place among a way's addresses, the host in the URL, curl's source, and the address told.
const FAMILIES: [(&str, usize, &str, &[&str], &str); 3] = [
    ("IPv4", 0, "127.0.0.1", &["--interface", CLIENT], CLIENT),
    ("IPv6", 1, "[::1]", &[], "::1"),
    ("IPv4-mapped", 2, "127.0.0.1", &["--interface", CLIENT], CLIENT),
];
const PROTOCOLS: [(&str, &str, &str); 2] =
    [("HTTP/1.1", "--http1.1", "--http1.1"), ("HTTP/2", "--http2-prior-knowledge", "--http2")];
const SESSIONS: [(&str, &[&str]); 3] =
    [("clear", &[]), ("TLS 1.2", &["--tlsv1.2", "--tls-max", "1.2"]), ("TLS 1.3", &["--tlsv1.3"])];
/// The only suite that a caller over QUIC offers, and its name.
const QUIC_SUITES: [(CipherSuite, &str); 3] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
];

/// What is told of a connection that curl sees as this.
type Told = fn(&Session) -> Session;

/// One way to the service: where it is entered, in clear (HTTP/1.1, HTTP/2) and over TLS, for each family.
struct Way {
    name: &'static str,
    clear: [[u16; 3]; 2],
    tls: [u16; 3],
    told: Told,
    tells_rtt: bool,
    _parts: (Vec<Node>, Option<Proxy>),
}

impl Way {
    /// Every field of one answer to this client.
    fn judge(&self, cell: &str, client: &str, protocol: &str, answer: &Answer) {
        let (ip, ipv6) = (&answer.body["ip"], &answer.body["ipv6"]);
        assert_eq!(if ip.is_null() { ipv6 } else { ip }, &json!(client), "{cell}");
        assert!(ip.is_null() != ipv6.is_null(), "{cell}");
        assert_eq!(answer.seen[0], json!(protocol), "{cell}");
        assert_eq!(answer.told(), (self.told)(&answer.seen), "{cell}");
        assert_eq!(answer.body["rtt"].is_u64(), self.tells_rtt, "{cell}");
        assert!(answer.body["colo"].is_null(), "{cell}");
    }
}

fn all(seen: &Session) -> Session {
    seen.clone()
}

fn nothing(_: &Session) -> Session {
    [Value::Null, Value::Null, Value::Null]
}

/// A PROXY header of version 2 tells of TLS, and by ALPN of HTTP.
fn all_of_tls(seen: &Session) -> Session {
    if seen[1].is_null() { nothing(seen) } else { seen.clone() }
}

fn protocol_alone(seen: &Session) -> Session {
    [seen[0].clone(), Value::Null, Value::Null]
}

/// Free ports for the three families: 127.0.0.1, ::1, and [::] for both.
fn listeners() -> [SocketAddr; 3] {
    ["127.0.0.1", "::1", "::"].map(|address| {
        let address: IpAddr = address.parse().expect("an address");
        TcpListener::bind((address, 0)).and_then(|port| port.local_addr()).expect("a port")
    })
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The certificate and its key in one file, as haproxy wants them.
fn pem(house: &House) -> String {
    let read = |file: &Path| std::fs::read_to_string(file).expect("a file");
    let file = house.certificate.chain.with_file_name("both.pem");
    std::fs::write(&file, read(&house.certificate.chain) + &read(&house.certificate.private_key)).expect("a file");
    file.display().to_string()
}

async fn direct(house: &House) -> Way {
    let (clear, tls) = (listeners(), listeners());
    let settings = edge(&[("TRUSTED_PROXIES", "127.0.0.1/32"), ("HTTP", &list(&clear)), ("HTTPS", &list(&tls))]);
    let node = house.start_node(&settings).await.expect("a node");
    let ports = |all: [SocketAddr; 3]| all.map(|address| address.port());
    let clear = [ports(clear), ports(clear)];
    Way { name: "direct", clear, tls: ports(tls), told: all, tells_rtt: true, _parts: (vec![node], None) }
}

async fn nginx(house: &House) -> Way {
    let settings = edge(&[("PRESET", "nginx"), ("TRUSTED_PROXIES", "127.0.0.1/32")]);
    let node = house.start_node(&settings).await.expect("a node");
    let certificate = &house.certificate;
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
            .replace("/etc/ssl/ipseity.pem", &certificate.chain.display().to_string())
            .replace("/etc/ssl/ipseity.key", &certificate.private_key.display().to_string())
            .replace("10.0.0.5:8080", &node.http().to_string())
    };
    let proxy = Proxy::start(ProxyKind::Nginx, 9, configure).await.expect("nginx");
    let ports = |from: usize| [from, from + 1, from + 2].map(|place| proxy.addresses()[place].port());
    let (clear, tls) = ([ports(0), ports(3)], ports(6));
    Way { name: "nginx", clear, tls, told: all, tells_rtt: true, _parts: (vec![node], Some(proxy)) }
}

/// haproxy with the snippet, its PROXY version as given, before a node with these settings.
async fn haproxy(house: &House, name: &'static str, version: &str, settings: &[(&str, &str)], told: Told) -> Way {
    let settings = edge(&[&[("PRESET", "haproxy"), ("TRUSTED_PROXIES", "127.0.0.1/32")], settings].concat());
    let node = house.start_node(&settings).await.expect("a node");
    let both = pem(house);
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
            .replace("send-proxy-v2 proxy-v2-options ssl,ssl-cipher,crc32c", version)
            .replace("10.0.0.5:8080", &node.http().to_string())
    };
    let proxy = Proxy::start(ProxyKind::Haproxy, 6, configure).await.expect("haproxy");
    let ports = |from: usize| [from, from + 1, from + 2].map(|place| proxy.addresses()[place].port());
    let (clear, tls) = ([ports(0), ports(0)], ports(3));
    Way { name, clear, tls, told, tells_rtt: false, _parts: (vec![node], Some(proxy)) }
}

/// haproxy that passes TLS on untouched, as a network load balancer does.
async fn balancer(house: &House, name: &'static str, version: &str) -> Way {
    let settings = edge(&[("PRESET", "aws-nlb"), ("TRUSTED_PROXIES", "127.0.0.1/32")]);
    let node = house.start_node(&settings).await.expect("a node");
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
    let proxy = Proxy::start(ProxyKind::Haproxy, 6, configure).await.expect("haproxy");
    let ports = |from: usize| [from, from + 1, from + 2].map(|place| proxy.addresses()[place].port());
    let (clear, tls) = ([ports(0), ports(0)], ports(3));
    Way { name, clear, tls, told: all, tells_rtt: false, _parts: (vec![node], Some(proxy)) }
}

/// Goes through all cells of one way over TCP; gives how many there were.
async fn walk(house: &House, key: &Issued, way: &Way) -> usize {
    let authority = house.certificate.authority.to_str().expect("a path");
    let mut cells = 0;
    for (place, (protocol, over_clear, over_tls)) in PROTOCOLS.into_iter().enumerate() {
        for (session, version) in SESSIONS {
            for (family, listener, host, source, client) in FAMILIES {
                let is_clear = version.is_empty();
                let port = if is_clear { way.clear[place][listener] } else { way.tls[listener] };
                let scheme = if is_clear { "http" } else { "https" };
                let url = format!("{scheme}://{host}:{port}/api/v1/ip");
                let option = if is_clear { over_clear } else { over_tls };
                let answer = ask(&url, key, &[&["--cacert", authority, option], version, source].concat()).await;
                let cell = format!("{protocol}, {session}, {}, {family}", way.name);
                way.judge(&cell, client, protocol, &answer);
                cells += 1;
            }
        }
    }
    show(&format!("{}: {cells} cells", way.name));
    cells
}

/// Goes through all cells of the direct way over QUIC, with each suite; gives how many there were.
async fn walk_quic(house: &House, key: &Issued, way: &Way) -> usize {
    let authority = &house.certificate.authority;
    let mut cells = 0;
    for (suite, suite_name) in QUIC_SUITES {
        for (family, listener, host, _, client) in FAMILIES {
            let server = format!("{host}:{}", way.tls[listener]).parse().expect("an address");
            let source = Some(client.parse().expect("an address"));
            let options = QuicOptions { suite: Some(suite), source, ..QuicOptions::to(server, authority) };
            let mut caller = QuicCaller::open(options).await.expect("a connection");
            let reply = caller.get("/api/v1/ip", &[("authorization", &key.bearer())]).await.expect("an answer");
            let agreed = caller.protocol().map(|protocol| String::from_utf8_lossy(&protocol).replace('h', "HTTP/"));
            let seen = [json!(agreed), json!("TLSv1.3"), json!(suite_name)];
            let answer = Answer { body: reply.json().expect("JSON"), seen };
            way.judge(&format!("HTTP/3, {suite_name}, {}, {family}", way.name), client, "HTTP/3", &answer);
            caller.close().await;
            cells += 1;
        }
    }
    show(&format!("{}, HTTP/3: {cells} cells", way.name));
    cells
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_field_is_right_or_null_on_every_way() {
    let house = house().await;
    let key = fresh_key(house, Scope::Full).await;
    let v2 = "send-proxy-v2 proxy-v2-options ssl,ssl-cipher,crc32c";
    let through = [("PASS_THROUGH", "http")];
    let direct = direct(house).await;
    let mut cells = walk(house, &key, &direct).await + walk_quic(house, &key, &direct).await;
    cells += walk(house, &key, &nginx(house).await).await;
    cells += walk(house, &key, &haproxy(house, "haproxy, PROXY v1", "send-proxy", &[], nothing).await).await;
    cells += walk(house, &key, &haproxy(house, "haproxy, PROXY v2", v2, &[], all_of_tls).await).await;
    let passing = haproxy(house, "haproxy passing HTTP, PROXY v1", "send-proxy", &through, protocol_alone).await;
    cells += walk(house, &key, &passing).await;
    cells += walk(house, &key, &haproxy(house, "haproxy passing HTTP, PROXY v2", v2, &through, all).await).await;
    cells += walk(house, &key, &balancer(house, "haproxy passing TLS, PROXY v1", "send-proxy").await).await;
    cells += walk(house, &key, &balancer(house, "haproxy passing TLS, PROXY v2", "send-proxy-v2").await).await;
    assert_eq!(cells, 8 * 2 * 3 * 3 + 3 * 3);
}
