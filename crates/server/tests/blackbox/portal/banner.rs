//! `[portal] banner`: on every page, escaped, and reloaded on SIGHUP.

use std::fs;
use std::time::Duration;

use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Node, TestDir, eventually};
use rustix::process::Signal;

use crate::fixture::shared_deployment;

const PAGES: [&str; 6] = ["/", "/docs", "/reference", "/signin", "/enterprise", "/link/unknown"];

async fn page(node: &Node, path: &str) -> String {
    node.client().get(path, &[]).await.expect("response arrives").text()
}

#[tokio::test(flavor = "multi_thread")]
async fn banner_is_on_every_page_escaped_and_reloaded() {
    let (deployment, dir) = (shared_deployment().await, TestDir::create().expect("create a directory"));
    let config = dir.path().join("ipseity.toml");
    let write = |banner: &str| fs::write(&config, format!("[portal]\nbanner = '{banner}'\n")).expect("write the file");
    write("Maintenance <script>alert(1)</script> & more");
    let mut node = deployment.start_node_with_config(&Env::new(), &config).await.expect("node starts");
    for path in PAGES {
        let text = page(&node, path).await;
        let (_, banner) =
            text.split_once("<p class=\"banner\" role=\"status\">").unwrap_or_else(|| panic!("{path}: {text}"));
        let (banner, _) = banner.split_once("</p>").expect("element ends");
        assert!(
            banner.starts_with("Maintenance &#60;script&#62;") && banner.ends_with("&#38; more"),
            "{path}: {banner}"
        );
        assert!(!text.contains("<script>alert"), "{path}");
    }
    write("");
    node.send_signal(Signal::HUP.as_raw());
    eventually("the banner is gone", Duration::from_secs(10), async || {
        !page(&node, "/signin").await.contains("banner")
    })
    .await
    .expect("the banner is gone");
    let log = node.log().expect("read the log");
    assert!(!log.contains("need a restart"), "{log}");

    write(&"x".repeat(501));
    let path = config.display().to_string();
    let output = deployment.cli(&["--config", &path, "check"]).await.expect("run the command");
    assert!(output.stderr.contains("[portal] banner must have at most 500 characters"), "{}", output.stderr);
}
