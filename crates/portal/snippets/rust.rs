//! Prints your IP address and what is known about it.
#![expect(clippy::print_stdout, reason = "the sample prints its result")]
// [docs]
// cargo add reqwest && cargo add tokio --features macros,rt-multi-thread
#[tokio::main]
async fn main() -> Result<(), reqwest::Error> {
    let client = reqwest::Client::new();
    let request = client.get("https://ip.example/api/v1/ip").bearer_auth("ips_…");
    println!("{}", request.send().await?.text().await?);
    Ok(())
}
// [/docs]
