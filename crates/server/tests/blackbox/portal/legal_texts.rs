//! `[portal] terms_file` and `privacy_file`: pages with links, and errors of `ipseity check`.

use std::fs;

use ipseity_testkit::deployment::node::Env;
use ipseity_testkit::{Node, TestDir};

use crate::fixture::shared_deployment;

async fn page(node: &Node, path: &str, status: u16) -> String {
    let reply = node.client().get(path, &[("accept", "text/html")]).await.expect("response arrives");
    assert_eq!(reply.status, status, "{path}");
    reply.text()
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_the_operator_are_pages_linked_on_every_page() {
    let (deployment, dir) = (shared_deployment().await, TestDir::create().expect("create a directory"));
    let [terms, privacy, missing] = ["terms.md", "privacy.md", "missing.md"].map(|name| dir.path().join(name));
    fs::write(&terms, "# Our terms\n\nBe kind. <script>alert(1)</script>\n").expect("write the file");
    fs::write(&privacy, "We keep nothing.\n").expect("write the file");
    let names = ["IPSEITY__PORTAL__TERMS_FILE", "IPSEITY__PORTAL__PRIVACY_FILE", "IPSEITY__PORTAL__SIGNUP"];
    let values = [terms.display().to_string(), privacy.display().to_string(), "open".to_owned()];
    let env: Env = names.map(str::to_owned).into_iter().zip(values).collect();
    let node = deployment.start_node(&env).await.expect("node starts");
    let text = page(&node, "/terms", 200).await;
    assert!(text.contains("<h1>Our terms</h1>") && text.contains("Be kind. &lt;script&gt;alert(1)"), "{text}");
    let text = page(&node, "/privacy", 200).await;
    assert!(text.contains("<h1>Privacy policy</h1>") && text.contains("We keep nothing."), "{text}");
    for path in ["/", "/signin", "/signup"] {
        let text = page(&node, path, 200).await;
        assert!(text.contains("<a href=\"/terms\">Terms</a>") && text.contains("<a href=\"/privacy\">Privacy</a>"));
        assert_eq!(text.contains("you agree to the <a href=\"/terms\">"), path == "/signup", "{path}");
    }

    let default = &deployment.nodes[0];
    for path in ["/terms", "/privacy"] {
        let text = page(default, path, 404).await;
        assert!(text.contains("<h1>Page not found</h1>") && !text.contains("href=\"/terms\""), "{text}");
    }
    fs::write(&privacy, " \n").expect("write the file");
    for (setting, file, problem) in
        [("terms_file", &missing, "failed to read [portal] terms_file"), ("privacy_file", &privacy, "is empty")]
    {
        let config = dir.path().join("ipseity.toml");
        fs::write(&config, format!("[portal]\n{setting} = '{}'\n", file.display())).expect("write the file");
        let output =
            deployment.cli(&["--config", &config.display().to_string(), "check"]).await.expect("run the command");
        assert!(output.code == Some(1) && output.stderr.contains(problem), "{setting}: {}", output.stderr);
        assert!(output.stderr.contains(&file.display().to_string()), "{}", output.stderr);
    }
}
