//! `h3get COUNT ADDRESS NAME AUTHORITY PATH [HEADER: VALUE]…`: asks so often over one HTTP/3 connection and prints each answer's body
//! on a line, for tests that call from another network.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use ipseity_testkit::Http3TestClient;
use ipseity_testkit::client::quic::Http3TestOptions;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [count, server, name, authority, path, headers @ ..] = &arguments[..] else {
        anyhow::bail!("h3get COUNT ADDRESS NAME AUTHORITY PATH [HEADER: VALUE]…");
    };
    let headers: Option<Vec<_>> = headers.iter().map(|header| header.split_once(": ")).collect();
    let headers = headers.context("a header is NAME: VALUE")?;
    let server = server.parse().context("ADDRESS is IP:PORT")?;
    let options = Http3TestOptions { name, ..Http3TestOptions::localhost(server, Path::new(authority)) };
    let mut caller = Http3TestClient::connect(options).await?;
    for _ in 0..count.parse::<u32>().context("COUNT is a number")? {
        let reply = caller.get(path, &headers).await?;
        writeln!(std::io::stdout(), "{}", reply.text().trim_end())?;
    }
    caller.close().await;
    Ok(())
}
