//! Asking a running node on its private listener.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::Client;

/// Time for an answer; a node that takes longer is in no state to be looked at.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the node that listens there answers.
pub(super) async fn get(listen: SocketAddr, path: &str) -> Result<String> {
    let address = connect_addr(listen);
    let client = Client::builder().no_proxy().timeout(RESPONSE_TIMEOUT).build()?;
    let sent = client.get(format!("http://{address}{path}")).send().await;
    let response = sent.with_context(|| {
        format!("no node answers on {address}; is one running, and is this its [ops] listen (`--config`)?")
    })?;
    ensure!(response.status().is_success(), "{address}{path} answers {}; is another program there?", response.status());
    response.text().await.with_context(|| format!("{address}{path} broke off"))
}

/// A node that listens on every address is asked on this machine's own.
fn connect_addr(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, listen.port())
}
