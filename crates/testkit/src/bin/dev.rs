//! `just dev`: runs a deployment on free ports with a temporary database until Ctrl-C.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ipseity_domain::Scope;
use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::fixtures::samples;
use ipseity_testkit::{Deployment, DeploymentOptions, IssuedKey, Node};
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: dev [--json] [--geo DIR] [--set SECTION.SETTING=VALUE]…";
const ACCOUNT: &str = "dev@example.com";

struct DevOptions {
    json: bool,
    geo: Option<PathBuf>,
    env: Env,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = parse_arguments(std::env::args().skip(1))?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = run_deployment(options) => result?,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    progress("stopped and removed everything");
    Ok(())
}

fn parse_arguments(mut arguments: impl Iterator<Item = String>) -> Result<DevOptions> {
    let open_signup = ("IPSEITY__PORTAL__SIGNUP".to_owned(), "open".to_owned());
    let mut options = DevOptions { json: false, geo: None, env: Env::from([open_signup]) };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => options.json = true,
            "--geo" => options.geo = Some(arguments.next().context(USAGE)?.into()),
            "--set" => options.env.extend([arguments.next().as_deref().and_then(parse_setting).context(USAGE)?]),
            _ => bail!(USAGE),
        }
    }
    Ok(options)
}

/// Parses `section.setting=value` into the environment variable and its value.
fn parse_setting(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let (section, setting) = name.split_once('.')?;
    Some((format!("IPSEITY__{}__{}", section.to_uppercase(), setting.to_uppercase()), value.to_owned()))
}

/// Starts the deployment, prints it and waits. Dropping the future ends the deployment.
async fn run_deployment(options: DevOptions) -> Result<()> {
    let geo_files = geo_files(options.geo.as_deref())?;
    let has_real_data = !geo_files.is_empty();
    let deployment =
        Deployment::start(DeploymentOptions { geo_files, env: options.env, progress, ..DeploymentOptions::default() })
            .await?;
    progress("creating an account with a key for each scope");
    deployment.create_account(ACCOUNT).await?;
    let mut keys = Vec::new();
    for scope in Scope::ALL {
        keys.push((scope, deployment.issue_key(ACCOUNT, scope).await?));
    }
    if options.json {
        print_output(&as_json(&deployment, &keys).to_string());
    } else {
        print_output(&as_text(&deployment, &keys, has_real_data));
    }
    progress("ready; press Ctrl-C to stop and remove everything");
    std::future::pending().await
}

/// The databases in this directory, or in `./data` by default.
fn geo_files(dir: Option<&Path>) -> Result<Vec<PathBuf>> {
    let is_explicit = dir.is_some();
    let dir = dir.unwrap_or(Path::new("data"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "mmdb") {
            files.push(entry.path().canonicalize()?);
        }
    }
    if is_explicit && files.is_empty() {
        bail!("no .mmdb file in {}", dir.display());
    }
    files.sort();
    Ok(files)
}

fn as_json(deployment: &Deployment, keys: &[(Scope, IssuedKey)]) -> Value {
    let node = &deployment.nodes[0];
    let keys: Map<String, Value> =
        keys.iter().map(|(scope, issued)| (scope.name().to_owned(), issued.key.clone().into())).collect();
    json!({
        "http": format!("http://{}", node.http()),
        "https": format!("https://{}", node.https()),
        "portal": portal_url(node),
        "ca": deployment.certificate.ca_file,
        "ops": format!("http://{}", node.ops()),
        "keys": keys,
        "account": ACCOUNT,
        "log": node.log_file(),
        "env": node.env(),
    })
}

/// Base URL of the portal.
fn portal_url(node: &Node) -> &str {
    &node.env()["IPSEITY__PUBLIC__BASE_URL"]
}

fn as_text(deployment: &Deployment, keys: &[(Scope, IssuedKey)], has_real_data: bool) -> String {
    let node = &deployment.nodes[0];
    let (http, https, ops) = (node.http(), node.https(), node.ops());
    let authority = deployment.certificate.ca_file.display();
    let example_ip = if has_real_data { "8.8.8.8" } else { samples::CALIFORNIA.address };
    let mut lines = vec![
        format!("HTTP     http://{http}"),
        format!("HTTPS    https://{https}   (CA: {authority})"),
        format!("portal   {}/signup", portal_url(node)),
        format!("ops      http://{ops}   (/live, /ready, /metrics)"),
        format!("account  {ACCOUNT}"),
    ];
    lines.extend(keys.iter().map(|(scope, issued)| format!("{:<8} {}", scope.name(), issued.key)));
    lines.push(String::new());
    for (scope, IssuedKey { key, .. }) in keys {
        lines.push(match scope {
            Scope::Ip => format!("curl -H 'Authorization: Bearer {key}' http://{http}/api/v1/ip"),
            Scope::Geo => {
                format!(
                    "curl -H 'Authorization: Bearer {key}' -H 'X-Forwarded-For: {example_ip}' http://{http}/api/v1/ip"
                )
            }
            Scope::Full => {
                format!("curl --cacert {authority} -H 'Authorization: Bearer {key}' https://{https}/api/v1/ip")
            }
        });
    }
    lines.join("\n")
}

#[expect(clippy::print_stderr, reason = "progress goes to the terminal")]
fn progress(step: &str) {
    eprintln!("dev: {step}");
}

#[expect(clippy::print_stdout, reason = "the result goes to standard output")]
fn print_output(text: &str) {
    println!("{text}");
}
