//! `h3get COUNT ADDRESS NAME CA_FILE PATH [HEADER: VALUE]…`: sends COUNT requests over one HTTP/3 connection and prints
//! each body on a line, for tests in another network namespace.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use ipseity_testkit::Http3TestClient;
use ipseity_testkit::client::quic::Http3TestOptions;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [count, server, name, authority, path, headers @ ..] = &arguments[..] else {
        anyhow::bail!("usage: h3get COUNT ADDRESS NAME CA_FILE PATH [HEADER: VALUE]…");
    };
    let headers: Option<Vec<_>> = headers.iter().map(|header| header.split_once(": ")).collect();
    let headers = headers.context("a header must be NAME: VALUE")?;
    let server = server.parse().context("ADDRESS must be IP:PORT")?;
    let options = Http3TestOptions { name, ..Http3TestOptions::localhost(server, Path::new(authority)) };
    let mut caller = Http3TestClient::connect(options).await?;
    for _ in 0..count.parse::<u32>().context("COUNT must be a number")? {
        let reply = caller.get(path, &headers).await?;
        writeln!(std::io::stdout(), "{}", reply.text().trim_end())?;
    }
    caller.close().await;
    Ok(())
}
