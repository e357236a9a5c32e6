//! `ipseity check --peer …`: whose address would be answered, and why.
//!
//! The one command that prints addresses: those that the operator typed.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipseity_domain::Address;
use ipseity_edge::{Distance, ProxyHeader, ProxyHeaderStatus, Trust, TrustStep, parse_proxy_header};

use crate::cli::output;
use crate::config::Config;
use crate::node::proxy_trust;

/// A connection to explain.
#[derive(Args)]
pub(super) struct ExplainClient {
    /// Explain whose address would be answered to a connection from this address.
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<IpAddr>,
    /// A header of the request, such as 'X-Forwarded-For: 192.0.2.1'; may be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "peer")]
    headers: Vec<String>,
    /// The listener that is connected to; the first one of the settings if it is left out.
    #[arg(long, value_name = "ADDRESS", requires = "peer")]
    listener: Option<SocketAddr>,
    /// The PROXY header that comes first, such as 'PROXY TCP4 192.0.2.1 198.51.100.1 4711 443'.
    #[arg(long, value_name = "LINE", requires = "peer")]
    proxy_header: Option<String>,
}

impl ExplainClient {
    pub(super) fn is_requested(&self) -> bool {
        self.peer.is_some()
    }

    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let Some(peer) = self.peer else { return Ok(()) };
        let headers = self.parse_headers()?;
        let trust = proxy_trust::build_trust(&config.edge)?;
        let Some(peer) = self.apply_proxy_header(config, &trust, Address::new(peer))? else { return Ok(()) };
        let origin = trust.trace_client_origin(peer, &headers, |step| print_step(&trust, &step));
        output::print_line(&format!("Answered: {}", exposed_ip(origin.address)))?;
        output::print_line(match origin.distance {
            Distance::Direct if self.proxy_header.is_some() => {
                "Its connection: what the PROXY header tells of it, and what [edge] pass_through lets through; else null."
            }
            Distance::Direct => "Its connection: this one, as it is measured here.",
            Distance::OneHop => "Its connection: what the proxy's report headers tell of it; else null.",
            Distance::Unknown => "Its connection: null, for nobody here has seen it.",
        })
    }

    fn parse_headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for line in &self.headers {
            let (name, value) = line.split_once(':').with_context(|| format!("{line:?} is no header: NAME: VALUE"))?;
            let name: HeaderName = name.trim().parse().with_context(|| format!("{name:?} is no header's name"))?;
            headers.append(name, HeaderValue::from_str(value.trim()).context("the header's value cannot be sent")?);
        }
        Ok(headers)
    }

    /// Whom the PROXY header puts in the peer's place, where one is expected; `None` when the connection would be closed.
    fn apply_proxy_header(&self, config: &Config, trust: &Trust, peer: Address) -> Result<Option<Address>> {
        let listeners = [&config.edge.http[..], &config.edge.https[..]].concat();
        let listener = self.listener.or(listeners.first().copied()).context("no listener is configured")?;
        ensure!(listeners.contains(&listener), "{listener} is not among the listeners of [edge] http and https");
        let is_expected = config.edge.proxy_protocol.contains(&listener);
        let Some(proxy_header) = &self.proxy_header else {
            if is_expected {
                print_closed(&format!("{listener} expects a PROXY header, and none is given (--proxy-line)"))?;
            }
            return Ok((!is_expected).then_some(peer));
        };
        if !is_expected {
            output::print_line(&format!(
                "{listener} expects no PROXY header: it is a bad request, and is refused with 400."
            ))?;
            return Ok(None);
        }
        if !trust.is_trusted(peer) {
            print_closed(&format!(
                "{} may not send a PROXY header: no network of [edge] trusted_proxies holds it",
                exposed_ip(peer)
            ))?;
            return Ok(None);
        }
        let bytes = format!("{proxy_header}\r\n");
        match parse_proxy_header(bytes.as_bytes(), config.edge.proxy_header_bytes_max) {
            ProxyHeaderStatus::Complete(ProxyHeader::Client(client), _) => {
                output::print_line(&format!(
                    "{} is trusted, and its PROXY header stands for the peer.",
                    exposed_ip(peer)
                ))?;
                Ok(Some(client.address))
            }
            ProxyHeaderStatus::Complete(ProxyHeader::Unknown | ProxyHeader::Local, _) => {
                output::print_line("The PROXY header names nobody; no other header is read.")?;
                output::print_line(&format!("Answered: {}", exposed_ip(peer)))?;
                Ok(None)
            }
            ProxyHeaderStatus::Partial | ProxyHeaderStatus::Invalid => {
                bail!("the PROXY header cannot be read, and the connection would be closed")
            }
        }
    }
}

fn print_closed(reason: &str) -> Result<()> {
    output::print_line(&format!("{reason}."))?;
    output::print_line("Answered: nobody; the connection is closed.")
}

fn print_step(trust: &Trust, step: &TrustStep) {
    let header = trust.forwarding_header().name();
    let text = match step {
        TrustStep::Trusted(address) => {
            format!("{} is in [edge] trusted_proxies: what it says in {header} is read.", exposed_ip(*address))
        }
        TrustStep::Untrusted(address) => {
            format!("{} is in no trusted network: it is the client.", exposed_ip(*address))
        }
        TrustStep::NoHeader => format!("It sent no {header}: it is itself the client."),
        TrustStep::Unparsable => {
            "What stands there next is no address: the client is the last one that could be named.".to_owned()
        }
    };
    // A reader that went away is told by the next line, whose error is not dropped.
    let _ = output::print_line(&text);
}

fn exposed_ip(address: Address) -> IpAddr {
    address.expose()
}
