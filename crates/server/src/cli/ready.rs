//! `ipseity ready` and `ipseity drain`

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use clap::Args;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::ops_client::{self, NodeArgument};
use crate::cli::output;
use crate::config::Config;

#[derive(Args)]
pub(super) struct ReadyCommand {
    #[command(flatten)]
    node: NodeArgument,
}

#[derive(Args)]
pub(super) struct DrainCommand {
    #[command(flatten)]
    node: NodeArgument,
    /// End the drain.
    #[arg(long)]
    end: bool,
}

/// The part of the response of `/ready` that the commands use.
#[derive(Deserialize)]
struct ReadyResponse {
    ready: bool,
    degraded: bool,
    reasons: Vec<String>,
}

impl ReadyResponse {
    fn to_json(&self) -> Value {
        json!({ "ready": self.ready, "degraded": self.degraded, "reasons": self.reasons })
    }
}

impl ReadyCommand {
    pub(super) async fn run(&self, config: &Config, json: bool) -> Result<()> {
        let response = send(self.node.address(config), Method::GET, "/ready", "").await?;
        if json {
            output::print_json(&response.to_json())?;
        }
        if !response.ready {
            bail!("the node is not ready: {}", response.reasons.join("; "));
        }
        if json {
            return Ok(());
        }
        output::print_line(if response.degraded { "ready, in degraded mode" } else { "ready" })
    }
}

impl DrainCommand {
    pub(super) async fn run(&self, config: &Config, json: bool) -> Result<()> {
        let form = if self.end { "draining=false" } else { "draining=true" };
        let response = send(self.node.address(config), Method::PUT, "/drain", form).await?;
        let text = if !self.end {
            "/ready returns 503 now. The node still answers requests, until you stop it or run `ipseity drain --end`."
        } else if response.ready {
            "The drain has ended. The node is ready."
        } else {
            "The drain has ended. The node is not ready: run `ipseity ready` to see why."
        };
        output::print_result(json, &response.to_json(), text)
    }
}

async fn send(node: SocketAddr, method: Method, path: &str, form: &'static str) -> Result<ReadyResponse> {
    let (status, body) = ops_client::send(node, method, path, form).await?;
    serde_json::from_str(&body).with_context(|| {
        format!("{node}{path} responded with {status}. Check whether another program or version uses this address.")
    })
}
