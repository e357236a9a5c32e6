//! What the system gives this node: open files, and the addresses that it listens on.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use super::super::private;
use super::finding::{Finding, Findings};
use crate::config::Config;

pub(super) fn files(config: &Config) -> Vec<Finding> {
    let mut findings = Findings::new("open files");
    let (limit, wanted) = (edge::raise_file_limit(), config.edge.connections_max + config.edge.files_reserved);
    if limit < wanted {
        findings.wrong(format!(
            "A process may hold {limit} open files here, and [edge] connections_max with files_reserved wants {wanted}: raise the limit (`LimitNOFILE=` of the unit, `ulimit -n`), or lower connections_max."
        ));
    }
    findings.else_well(format!("{limit} may be held, {wanted} are wanted."))
}

/// Whether the addresses can be listened on, or a node of ours does so already.
pub(super) async fn ports(config: &Config) -> Vec<Finding> {
    let mut findings = Findings::new("ports");
    let listen = config.ops.listen;
    if private::ask(listen, "/live").await.is_ok_and(|answer| answer == "live\n") {
        return findings.else_well(format!("A node runs and holds them; its private listener is {listen}."));
    }
    let settings = &config.edge;
    let tcp = settings.http.iter().chain(&settings.https).chain([&listen]);
    for address in tcp {
        if let Err(error) = TcpListener::bind(address) {
            findings.wrong(refused(*address, "TCP", &error));
        }
    }
    let quic = settings.https.iter().filter(|address| settings.http3 && !settings.proxy_protocol.contains(address));
    for address in quic {
        if let Err(error) = UdpSocket::bind(address) {
            findings.wrong(refused(*address, "UDP", &error));
        }
    }
    let count = settings.http.len() + settings.https.len() + 1;
    findings.else_well(format!("{count} addresses are free; no node runs."))
}

fn refused(address: SocketAddr, kind: &str, error: &std::io::Error) -> String {
    let port = address.port();
    let reason = error.kind();
    if reason == ErrorKind::AddrInUse {
        format!(
            "Another program has {address} ({kind}), unless systemd holds it for the service: end it (`ss -lnp 'sport = :{port}'` names it), or choose another address in [edge] or [ops]."
        )
    } else if reason == ErrorKind::PermissionDenied {
        format!(
            "This user may not listen on {address} ({kind}): give the service CAP_NET_BIND_SERVICE, or choose a port above 1023."
        )
    } else if reason == ErrorKind::AddrNotAvailable {
        format!(
            "{address} is no address of this machine: name one that `ip address` shows, or 0.0.0.0 or [::] for all, in [edge] or [ops]."
        )
    } else {
        format!("{address} ({kind}) cannot be listened on ({error}): choose another address in [edge] or [ops].")
    }
}
