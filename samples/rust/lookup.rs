//! Prints your IP address, and your country if the key's scope includes it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the sample prints its result")]
// [docs]
// cargo add reqwest --features json && cargo add serde_json && cargo add tokio --features macros,rt-multi-thread
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let url = std::env::var("IPSEITY_URL").unwrap_or("https://ip.example".to_owned());
    let response = reqwest::Client::new()
        .get(format!("{url}/api/v1/ip"))
        .bearer_auth(std::env::var("IPSEITY_KEY")?)
        .timeout(Duration::from_secs(10))
        .send()
        .await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body: Value = response.json().await?;
    let text = |name| body[name].as_str();

    if status.is_success() {
        let facts = [text("ip").or(text("ipv6")), text("country")];
        println!("{}", facts.into_iter().flatten().collect::<Vec<_>>().join(" "));
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{}: {}", text("error").unwrap_or("error"), text("message").unwrap_or("no message"));
    // The daily quota resets at midnight UTC. A paused key (403) stays paused until its owner resumes it.
    if let (Some(_), Some(seconds)) = (text("enterprise"), headers.get("retry-after")) {
        eprintln!("Try again in {} s.", seconds.to_str()?);
    }
    Ok(ExitCode::FAILURE)
}
// [/docs]
