//! What the system gives this node: open files, and the addresses that it listens on.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings};
use crate::cli::ops_client;
use crate::config::Config;

pub(super) fn check_open_files(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("open files");
    let (limit, files_needed) =
        (ipseity_edge::raise_file_limit(), config.edge.connections_max + config.edge.open_files_reserved);
    if limit < files_needed {
        findings.error(format!(
            "A process may hold {limit} open files here, and [edge] connections_max with open_files_reserved wants {files_needed}: raise the limit (`LimitNOFILE=` of the unit, `ulimit -n`), or lower connections_max."
        ));
    }
    findings.ok_unless_error(format!("{limit} may be held, {files_needed} are wanted."))
}

/// Whether the addresses can be listened on, or a node of ours does so already.
pub(super) async fn check_ports(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("ports");
    let listen = config.ops.listen;
    if ops_client::get(listen, "/live").await.is_ok_and(|body| body == "live\n") {
        return findings.ok_unless_error(format!("A node runs and holds them; its private listener is {listen}."));
    }
    let settings = &config.edge;
    let tcp = settings.http.iter().chain(&settings.https).chain([&listen]);
    for address in tcp {
        if let Err(error) = TcpListener::bind(address) {
            findings.error(bind_error_message(*address, "TCP", &error));
        }
    }
    let quic = settings.https.iter().filter(|address| settings.http3 && !settings.proxy_protocol.contains(address));
    for address in quic {
        if let Err(error) = UdpSocket::bind(address) {
            findings.error(bind_error_message(*address, "UDP", &error));
        }
    }
    let count = settings.http.len() + settings.https.len() + 1;
    findings.ok_unless_error(format!("{count} addresses are free; no node runs."))
}

fn bind_error_message(address: SocketAddr, protocol: &str, error: &std::io::Error) -> String {
    let port = address.port();
    let reason = error.kind();
    if reason == ErrorKind::AddrInUse {
        format!(
            "Another program has {address} ({protocol}), unless systemd holds it for the service: end it (`ss -lnp 'sport = :{port}'` names it), or choose another address in [edge] or [ops]."
        )
    } else if reason == ErrorKind::PermissionDenied {
        format!(
            "This user may not listen on {address} ({protocol}): give the service CAP_NET_BIND_SERVICE, or choose a port above 1023."
        )
    } else if reason == ErrorKind::AddrNotAvailable {
        format!(
            "{address} is no address of this machine: name one that `ip address` shows, or 0.0.0.0 or [::] for all, in [edge] or [ops]."
        )
    } else {
        format!("{address} ({protocol}) cannot be listened on ({error}): choose another address in [edge] or [ops].")
    }
}
