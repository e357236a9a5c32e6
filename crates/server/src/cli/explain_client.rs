//! `ipseity check --peer …`: explains which client address a connection gets.
//!
//! This is the only command that prints addresses: those that the operator typed.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipseity_domain::Address;
use ipseity_edge::{Distance, ProxyHeader, ProxyHeaderStatus, Trust, TrustStep, parse_proxy_header};
use serde_json::json;

use crate::cli::output;
use crate::config::Config;
use crate::node::proxy_trust;

#[derive(Args)]
pub(super) struct ExplainClient {
    /// Explain which client address a connection from this address gets.
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,
    /// Request header, such as 'X-Forwarded-For: 192.0.2.1'. Can be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "peer")]
    headers: Vec<String>,
    /// Listener that receives the connection [default: the first one].
    #[arg(long, value_name = "ADDRESS", requires = "peer")]
    listener: Option<SocketAddr>,
    /// PROXY header of the connection, such as 'PROXY TCP4 192.0.2.1 198.51.100.1 4711 443'.
    #[arg(long, value_name = "LINE", requires = "peer")]
    proxy_header: Option<String>,
}

impl ExplainClient {
    pub(super) fn is_requested(&self) -> bool {
        self.peer.is_some()
    }

    pub(super) fn run(&self, config: &Config, json: bool) -> Result<()> {
        let mut explanation = Explanation::default();
        self.explain(config, &mut explanation)?;
        let Explanation { client, steps } = explanation;
        output::print_result(json, &json!({ "client": client, "steps": steps }), &steps.join("\n"))
    }

    fn explain(&self, config: &Config, explanation: &mut Explanation) -> Result<()> {
        let Some(peer) = self.peer else { return Ok(()) };
        let headers = self.parse_headers()?;
        let trust = proxy_trust::build_trust(&config.edge)?;
        let Some(peer) = self.apply_proxy_header(config, &trust, Address::new(peer), explanation)? else {
            return Ok(());
        };
        let origin = trust.trace_client_origin(peer, &headers, |step| explanation.add(describe_step(&trust, &step)));
        explanation.set_client(origin.address);
        explanation.add(match origin.distance {
            Distance::Direct if self.proxy_header.is_some() => {
                "Connection details: from the PROXY header and [edge] pass_through; otherwise null."
            }
            Distance::Direct => "Connection details: measured on this connection.",
            Distance::OneHop => "Connection details: from the connection headers of the proxy; otherwise null.",
            Distance::Unknown => "Connection details: null, because the client is unknown or more than one hop away.",
        });
        Ok(())
    }

    fn parse_headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for line in &self.headers {
            let (name, value) =
                line.split_once(':').with_context(|| format!("{line:?} is not a header. Use NAME: VALUE."))?;
            let name: HeaderName = name.trim().parse().with_context(|| format!("{name:?} is not a header name"))?;
            headers.append(name, HeaderValue::from_str(value.trim()).context("invalid header value")?);
        }
        Ok(headers)
    }

    /// The peer, replaced by the client of a PROXY header where one is expected; `None` if the explanation is complete.
    fn apply_proxy_header(
        &self,
        config: &Config,
        trust: &Trust,
        peer: Address,
        explanation: &mut Explanation,
    ) -> Result<Option<Address>> {
        let listeners = [&config.edge.http[..], &config.edge.https[..]].concat();
        let listener = self.listener.or(listeners.first().copied()).context("[edge] http and https are both empty")?;
        ensure!(listeners.contains(&listener), "{listener} is not a listener of [edge] http or https");
        let is_expected = config.edge.proxy_protocol.contains(&listener);
        let Some(proxy_header) = &self.proxy_header else {
            if is_expected {
                explanation.close(&format!("{listener} expects a PROXY header (--proxy-header)"));
            }
            return Ok((!is_expected).then_some(peer));
        };
        if !is_expected {
            explanation
                .add(format!("{listener} does not expect a PROXY header. The request is rejected with status 400."));
            return Ok(None);
        }
        if !trust.is_trusted(peer) {
            explanation.close(&format!(
                "{} may not send a PROXY header, because it is not in [edge] trusted_proxies",
                exposed_ip(peer)
            ));
            return Ok(None);
        }
        let bytes = format!("{proxy_header}\r\n");
        match parse_proxy_header(bytes.as_bytes(), config.edge.proxy_header_bytes_max) {
            ProxyHeaderStatus::Complete(ProxyHeader::Client(client), _) => {
                explanation.add(format!(
                    "{} is in [edge] trusted_proxies. Its PROXY header names the peer.",
                    exposed_ip(peer)
                ));
                Ok(Some(client.address))
            }
            ProxyHeaderStatus::Complete(ProxyHeader::Unknown, _) => {
                explanation.add("The PROXY header names no client. No other header is read.");
                explanation.set_client(Address::UNKNOWN);
                Ok(None)
            }
            ProxyHeaderStatus::Complete(ProxyHeader::Local, _) => {
                explanation.add("The connection is the proxy's own. No other header is read.");
                explanation.set_client(peer);
                Ok(None)
            }
            ProxyHeaderStatus::Partial | ProxyHeaderStatus::Invalid => {
                bail!("invalid PROXY header. The connection would be closed.")
            }
        }
    }
}

/// How the client of a connection is determined.
#[derive(Default)]
struct Explanation {
    /// `None` if it is unknown, or if the connection or the request is rejected.
    client: Option<String>,
    steps: Vec<String>,
}

impl Explanation {
    fn add(&mut self, step: impl Into<String>) {
        self.steps.push(step.into());
    }

    fn set_client(&mut self, address: Address) {
        self.client = address.expose().map(|address| address.to_string());
        self.add(format!("Client: {}", exposed_ip(address)));
    }

    fn close(&mut self, reason: &str) {
        self.add(format!("{reason}."));
        self.add("Client: none. The connection is closed.");
    }
}

fn describe_step(trust: &Trust, step: &TrustStep) -> String {
    let header = trust.forwarding_header().name();
    match step {
        TrustStep::Trusted(address) => {
            format!("{} is in [edge] trusted_proxies. Its {header} header is read.", exposed_ip(*address))
        }
        TrustStep::Untrusted(address) => {
            format!("{} is not in [edge] trusted_proxies. It is the client.", exposed_ip(*address))
        }
        TrustStep::NoHeader => format!("It sent no {header} header. It is the client."),
        TrustStep::Unparsable => {
            format!("Its {header} header has no readable address there. The client is unknown, and null in responses.")
        }
    }
}

fn exposed_ip(address: Address) -> String {
    address.expose().map_or_else(|| "unknown".to_owned(), |address| address.to_string())
}
