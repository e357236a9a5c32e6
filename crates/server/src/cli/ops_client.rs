//! Requests to the ops listener of a running node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Client;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the body of a successful response.
pub(super) async fn get(listen: SocketAddr, path: &str) -> Result<String> {
    let address = connect_addr(listen);
    let client = Client::builder().no_proxy().timeout(RESPONSE_TIMEOUT).build()?;
    let sent = client.get(format!("http://{address}{path}")).send().await;
    let response = sent.with_context(|| {
        format!("failed to reach a node on {address}. Check that it is running and that this is its [ops] listen address (--config).")
    })?;
    ensure!(
        response.status().is_success(),
        "{address}{path} responded with {}. Check whether another program uses this address.",
        response.status()
    );
    response.text().await.with_context(|| format!("failed to read the response of {address}{path}"))
}

/// Replaces an unspecified address by loopback.
fn connect_addr(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}
