//! The short programs, with a key and as the restrictions of the key need them.

use ipseity_domain::Restrictions;

use crate::docs::highlight::highlight_code;
use crate::docs::snippets::{SNIPPETS, Snippet};
use crate::view::code_tabs::{CodeTab, CodeTabs};

/// The programs, with a key and the base URL of this service. For a key with allowed origins, only those that can send one.
pub(crate) fn code_tabs(base_url: &str, key: &str, restrictions: &Restrictions) -> CodeTabs {
    let origin = allowed_origin(restrictions);
    let tabs = SNIPPETS.iter().filter(|snippet| origin.is_none() || snippet.runs_in_pages || snippet.id == "curl");
    let tab = |snippet: &Snippet| {
        let text = snippet.program(base_url, key);
        let text = match &origin {
            Some(origin) => text.replacen("curl ", &format!("curl -H 'Origin: {origin}' "), 1),
            None => text,
        };
        let html = highlight_code(text.trim_end(), snippet.language);
        CodeTab { id: snippet.id.to_owned(), title: snippet.title.to_owned(), html }
    };
    let (group, label) = ("key".to_owned(), "Request with the key".to_owned());
    CodeTabs { group, label, has_anchors: false, tabs: tabs.map(tab).collect() }
}

/// An origin with which the key works, if it does not work without.
fn allowed_origin(restrictions: &Restrictions) -> Option<String> {
    restrictions.origins.first().map(|origin| origin.as_str().replacen("*.", "www.", 1))
}

#[cfg(test)]
mod tests {
    use ipseity_domain::restrictions::origin::AllowedOrigin;

    use super::*;

    #[test]
    fn every_program_has_the_key_and_the_url() {
        let CodeTabs { tabs, .. } = code_tabs("https://me.example", "ips_key", &Restrictions::default());
        assert_eq!(tabs.len(), SNIPPETS.len());
        for tab in tabs {
            for part in ["https://me.example/api/v1/ip", "Bearer ips_key"] {
                let shown = tab.html.contains(part) || tab.id == "rust" && tab.html.contains("bearer_auth(");
                assert!(shown, "{} lacks {part}", tab.id);
            }
            assert!(tab.html.contains("ips_key") && !tab.html.contains("ips_…"), "{}", tab.id);
            assert!(!tab.html.contains("[docs]") && !tab.html.contains("#!["), "{}", tab.id);
        }
    }

    #[test]
    fn curl_sends_an_allowed_origin_and_other_servers_are_not_offered() {
        for (entry, origin) in
            [("https://example.com", "https://example.com"), ("https://*.example.com", "https://www.example.com")]
        {
            let origins = vec![AllowedOrigin::parse(entry).expect("origin is valid")];
            let restrictions = Restrictions { origins, ..Restrictions::default() };
            let CodeTabs { tabs, .. } = code_tabs("https://me.example", "ips_key", &restrictions);
            assert_eq!(tabs.iter().map(|tab| &*tab.id).collect::<Vec<_>>(), ["curl", "javascript"]);
            assert!(tabs[0].html.contains(&format!("Origin: {origin}")), "{}", tabs[0].html);
            assert!(!tabs[1].html.contains("Origin"), "browsers set it themselves");
        }
    }
}
