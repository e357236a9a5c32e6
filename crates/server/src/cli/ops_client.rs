//! Requests to the ops listener of a running node.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Method, StatusCode};

use crate::config::Config;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// The node that a command asks.
#[derive(Args)]
pub(super) struct NodeArgument {
    /// Ops listener of the node [default: `[ops] listen`].
    #[arg(long, value_name = "ADDRESS")]
    node: Option<SocketAddr>,
}

impl NodeArgument {
    pub(super) fn address(&self, config: &Config) -> SocketAddr {
        self.node.unwrap_or(config.ops.listen)
    }
}

/// Returns the body of a successful response.
pub(super) async fn get(listen: SocketAddr, path: &str) -> Result<String> {
    let (status, body) = send(listen, Method::GET, path, "").await?;
    ensure!(
        status.is_success(),
        "{}{path} responded with {status}. Check whether another program uses this address.",
        connect_addr(listen)
    );
    Ok(body)
}

/// Sends a request with a form. Returns the status and the body of the response.
pub(super) async fn send(
    listen: SocketAddr,
    method: Method,
    path: &str,
    form: &'static str,
) -> Result<(StatusCode, String)> {
    let mut address = connect_addr(listen);
    let client = Client::builder().no_proxy().timeout(RESPONSE_TIMEOUT).build()?;
    let send_to = async |address: SocketAddr| {
        let request = client.request(method.clone(), format!("http://{address}{path}"));
        request.header(CONTENT_TYPE, FORM_TYPE).body(form).send().await
    };
    let mut response = send_to(address).await;
    if response.is_err() && listen.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        // The machine may have no IPv6, as many containers.
        address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listen.port());
        response = send_to(address).await;
    }
    let response = response.with_context(|| {
        format!("failed to reach a node on {address}. Check that it is running and that this is its [ops] listen address (--config).")
    })?;
    let status = response.status();
    let body = response.text().await.with_context(|| format!("failed to read the response of {address}{path}"))?;
    Ok((status, body))
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
