//! Code that sends the request of an operation.

use crate::docs::highlight::highlight_code;
use crate::docs::snippets::SNIPPETS;
use crate::view::code_tabs::{CodeTab, CodeTabs};

const KEY: &str = "<API_KEY>";

/// The programs that look up the caller, in all languages.
pub(super) fn lookup_code(base_url: &str) -> CodeTabs {
    let tabs = SNIPPETS.iter().map(|snippet| CodeTab {
        id: snippet.id.to_owned(),
        title: snippet.title.to_owned(),
        html: highlight_code(snippet.program(base_url, KEY).trim_end(), snippet.language),
    });
    let (group, label) = ("lookup".to_owned(), "Code of a lookup".to_owned());
    CodeTabs { group, label, has_anchors: false, tabs: tabs.collect() }
}

/// The command that sends a request, highlighted. With a body, it is a POST of JSON.
pub(super) fn curl_command(url: &str, needs_key: bool, body: &str) -> String {
    let key = if needs_key { format!("-H 'Authorization: Bearer {KEY}' ") } else { String::new() };
    let data = match body {
        "" => String::new(),
        body => format!("-H 'Content-Type: application/json' -d '{body}' "),
    };
    highlight_code(&format!("curl {key}{data}{url}"), "sh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_has_the_key_and_the_body_only_where_needed() {
        let url = "https://me.example/api/v1/a";
        assert_eq!(curl_command(url, false, ""), format!("curl {url}"));
        let get = curl_command(url, true, "");
        assert!(get.contains("Bearer &lt;API_KEY&gt;") && get.ends_with(url) && !get.contains("-d"), "{get}");
        let post = curl_command(url, true, "{\"uses\":1}");
        assert!(post.contains("Bearer &lt;API_KEY&gt;") && post.contains("uses") && post.ends_with(url), "{post}");
        assert_eq!(lookup_code("https://me.example").tabs.len(), SNIPPETS.len());
    }
}
