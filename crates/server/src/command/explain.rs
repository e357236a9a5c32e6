//! `ipseity check --peer …`: whose address would be answered, and why.
//!
//! The one command that prints addresses: those that the operator typed.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use domain::Address;
use edge::{Announcement, Distance, Reading, Step, Trust, read_proxy_header};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::show;
use crate::config::Config;
use crate::proxies;

/// A connection to explain.
#[derive(Args)]
pub(super) struct Explain {
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
    proxy_line: Option<String>,
}

impl Explain {
    pub(super) fn is_asked(&self) -> bool {
        self.peer.is_some()
    }

    pub(super) fn run(&self, config: &Config) -> Result<()> {
        let Some(peer) = self.peer else { return Ok(()) };
        let headers = self.headers()?;
        let trust = proxies::trust(&config.edge)?;
        let Some(peer) = self.announced(config, &trust, Address::new(peer))? else { return Ok(()) };
        let origin = trust.follow(peer, &headers, |step| steps(&trust, &step));
        show::line(&format!("Answered: {}", shown(origin.address)))?;
        show::line(match origin.distance {
            Distance::Here if self.proxy_line.is_some() => {
                "Its connection: what the PROXY header tells of it, and what [edge] pass_through lets through; else null."
            }
            Distance::Here => "Its connection: this one, as it is measured here.",
            Distance::NextDoor => "Its connection: what the proxy's report headers tell of it; else null.",
            Distance::Beyond => "Its connection: null, for nobody here has seen it.",
        })
    }

    fn headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for line in &self.headers {
            let (name, value) = line.split_once(':').with_context(|| format!("{line:?} is no header: NAME: VALUE"))?;
            let name: HeaderName = name.trim().parse().with_context(|| format!("{name:?} is no header's name"))?;
            headers.append(name, HeaderValue::from_str(value.trim()).context("the header's value cannot be sent")?);
        }
        Ok(headers)
    }

    /// Whom the PROXY header puts in the peer's place, where one is expected; `None` when the connection would be closed.
    fn announced(&self, config: &Config, trust: &Trust, peer: Address) -> Result<Option<Address>> {
        let listeners = [&config.edge.http[..], &config.edge.https[..]].concat();
        let listener = self.listener.or(listeners.first().copied()).context("no listener is configured")?;
        ensure!(listeners.contains(&listener), "{listener} is not among the listeners of [edge] http and https");
        let is_expected = config.edge.proxy_protocol.contains(&listener);
        let Some(line) = &self.proxy_line else {
            if is_expected {
                closed(&format!("{listener} expects a PROXY header, and none is given (--proxy-line)"))?;
            }
            return Ok((!is_expected).then_some(peer));
        };
        if !is_expected {
            show::line(&format!("{listener} expects no PROXY header: it is a bad request, and is refused with 400."))?;
            return Ok(None);
        }
        if !trust.holds(peer) {
            closed(&format!(
                "{} may not send a PROXY header: no network of [edge] trusted_proxies holds it",
                shown(peer)
            ))?;
            return Ok(None);
        }
        let bytes = format!("{line}\r\n");
        match read_proxy_header(bytes.as_bytes(), config.edge.proxy_header_bytes_max) {
            Reading::Whole(Announcement::Client(client), _) => {
                show::line(&format!("{} is trusted, and its PROXY header stands for the peer.", shown(peer)))?;
                Ok(Some(client.address))
            }
            Reading::Whole(Announcement::Unnamed | Announcement::Proxy, _) => {
                show::line("The PROXY header names nobody; no other header is read.")?;
                show::line(&format!("Answered: {}", shown(peer)))?;
                Ok(None)
            }
            Reading::Beginning | Reading::Refused => {
                bail!("the PROXY header cannot be read, and the connection would be closed")
            }
        }
    }
}

fn closed(why: &str) -> Result<()> {
    show::line(&format!("{why}."))?;
    show::line("Answered: nobody; the connection is closed.")
}

fn steps(trust: &Trust, step: &Step) {
    let header = trust.header().name();
    let text = match step {
        Step::Trusted(address) => {
            format!("{} is in [edge] trusted_proxies: what it says in {header} is read.", shown(*address))
        }
        Step::Stranger(address) => format!("{} is in no trusted network: it is the client.", shown(*address)),
        Step::Silent => format!("It sent no {header}: it is itself the client."),
        Step::Unreadable => {
            "What stands there next is no address: the client is the last one that could be named.".to_owned()
        }
    };
    // A reader that went away is told by the next line, whose error is not dropped.
    let _ = show::line(&text);
}

fn shown(address: Address) -> IpAddr {
    address.expose()
}
