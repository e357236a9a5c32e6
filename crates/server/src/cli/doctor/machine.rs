//! Checks the open file limit and the addresses to listen on.

use std::net::{TcpListener, UdpSocket};

use crate::cli::doctor::finding::{DoctorFinding, DoctorFindings};
use crate::cli::ops_client;
use crate::config::Config;
use crate::node::sockets::bind_error_message;

pub(super) fn check_open_files(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("open files");
    let (limit, files_needed) =
        (ipseity_edge::raise_file_limit(), config.edge.connections_max + config.edge.open_files_reserved);
    if limit < files_needed {
        findings.error(format!(
            "The open file limit is {limit}, but [edge] connections_max and open_files_reserved need {files_needed}. Raise the limit (`LimitNOFILE=` in the unit, `ulimit -n`) or lower connections_max."
        ));
    }
    findings.ok_unless_error(format!("The limit is {limit}; {files_needed} are needed."))
}

pub(super) async fn check_ports(config: &Config) -> Vec<DoctorFinding> {
    let mut findings = DoctorFindings::new("ports");
    let listen = config.ops.listen;
    if ops_client::get(listen, "/live").await.is_ok_and(|body| body == "live\n") {
        return findings.ok_unless_error(format!("In use by a running node, whose ops listener is {listen}."));
    }
    let settings = &config.edge;
    let home = config.home.listen_address().ok().flatten();
    let tcp: Vec<_> = settings.http.iter().chain(&settings.https).chain([&listen]).chain(&home).collect();
    for &address in &tcp {
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
    findings.ok_unless_error(format!("{} addresses are free. No node is running.", tcp.len()))
}
