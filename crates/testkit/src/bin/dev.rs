//! `just dev`: a whole house on free ports with a throw-away database, until Ctrl-C.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use domain::Scope;
use serde_json::{Map, Value, json};
use testkit::node::Env;
use testkit::{House, HouseOptions, Issued, Node, samples};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: dev [--json] [--geo DIR] [--set SECTION.SETTING=VALUE]…";
const ACCOUNT: &str = "dev@example.com";

struct Options {
    json: bool,
    geo: Option<PathBuf>,
    env: Env,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = parse(std::env::args().skip(1))?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = live(options) => result?,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    progress("all ended and removed");
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let open_door = ("IPSEITY__PORTAL__SIGNUP".to_owned(), "open".to_owned());
    let mut options = Options { json: false, geo: None, env: Env::from([open_door]) };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => options.json = true,
            "--geo" => options.geo = Some(arguments.next().context(USAGE)?.into()),
            "--set" => options.env.extend([arguments.next().as_deref().and_then(setting).context(USAGE)?]),
            _ => bail!(USAGE),
        }
    }
    Ok(options)
}

/// Reads `section.setting=value` into the setting's name in the environment, and its value.
fn setting(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let (section, setting) = name.split_once('.')?;
    Some((format!("IPSEITY__{}__{}", section.to_uppercase(), setting.to_uppercase()), value.to_owned()))
}

/// Builds the house, shows it and keeps it; only dropping this ends it.
async fn live(options: Options) -> Result<()> {
    let geo_files = geo_files(options.geo.as_deref())?;
    let has_real_data = !geo_files.is_empty();
    let house = House::start(HouseOptions { geo_files, env: options.env, progress, ..HouseOptions::default() }).await?;
    progress("making an account with a key for each scope");
    house.account(ACCOUNT).await?;
    let mut keys = Vec::new();
    for scope in Scope::ALL {
        keys.push((scope, house.issue(ACCOUNT, scope).await?));
    }
    if options.json {
        show(&as_json(&house, &keys).to_string());
    } else {
        show(&as_text(&house, &keys, has_real_data));
    }
    progress("ready; Ctrl-C ends it and removes everything");
    std::future::pending().await
}

/// The databases in the folder asked for, or in `./data` if there are any.
fn geo_files(folder: Option<&Path>) -> Result<Vec<PathBuf>> {
    let asked = folder.is_some();
    let folder = folder.unwrap_or(Path::new("data"));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "mmdb") {
            files.push(entry.path().canonicalize()?);
        }
    }
    if asked && files.is_empty() {
        bail!("no .mmdb file in {}", folder.display());
    }
    files.sort();
    Ok(files)
}

fn as_json(house: &House, keys: &[(Scope, Issued)]) -> Value {
    let node = &house.nodes[0];
    let keys: Map<String, Value> =
        keys.iter().map(|(scope, issued)| (scope.name().to_owned(), issued.key.clone().into())).collect();
    json!({
        "http": format!("http://{}", node.http()),
        "https": format!("https://{}", node.https()),
        "portal": portal(node),
        "ca": house.certificate.authority,
        "ops": format!("http://{}", node.ops()),
        "keys": keys,
        "account": ACCOUNT,
        "env": node.env(),
    })
}

/// Where the pages for people are.
fn portal(node: &Node) -> &str {
    &node.env()["IPSEITY__PUBLIC__BASE_URL"]
}

fn as_text(house: &House, keys: &[(Scope, Issued)], has_real_data: bool) -> String {
    let node = &house.nodes[0];
    let (http, https, ops) = (node.http(), node.https(), node.ops());
    let authority = house.certificate.authority.display();
    let another = if has_real_data { "8.8.8.8" } else { samples::CALIFORNIA.address };
    let mut lines = vec![
        format!("clear    http://{http}"),
        format!("TLS      https://{https}   (authority: {authority})"),
        format!("portal   {}/signup", portal(node)),
        format!("private  http://{ops}   (/live, /ready, /metrics)"),
        format!("account  {ACCOUNT}"),
    ];
    lines.extend(keys.iter().map(|(scope, issued)| format!("{:<8} {}", scope.name(), issued.key)));
    lines.push(String::new());
    for (scope, Issued { key, .. }) in keys {
        lines.push(match scope {
            Scope::Ip => format!("curl -H 'Authorization: Bearer {key}' http://{http}/api/v1/ip"),
            Scope::Geo => {
                format!("curl -H 'Authorization: Bearer {key}' -H 'X-Forwarded-For: {another}' http://{http}/api/v1/ip")
            }
            Scope::Full => {
                format!("curl --cacert {authority} -H 'Authorization: Bearer {key}' https://{https}/api/v1/ip")
            }
        });
    }
    lines.join("\n")
}

#[expect(clippy::print_stderr, reason = "progress is for the person at the terminal")]
fn progress(step: &str) {
    eprintln!("dev: {step}");
}

#[expect(clippy::print_stdout, reason = "what was asked for goes to standard output")]
fn show(text: &str) {
    println!("{text}");
}
