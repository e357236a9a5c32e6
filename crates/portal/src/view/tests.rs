//! What holds for every page, and what each must show.

use std::collections::HashSet;

use super::samples::{all, card, docs, key_page, keys_page, rooms};

/// The tags of a page that begin so, whole.
fn tags<'a>(page: &'a str, beginning: &'a str) -> impl Iterator<Item = &'a str> {
    page.match_indices(beginning).map(|(at, _)| page[at..].split_inclusive('>').next().unwrap_or_default())
}

fn value<'a>(tag: &'a str, attribute: &str) -> Option<&'a str> {
    tag.split_once(&format!(" {attribute}=\""))?.1.split('"').next()
}

#[test]
fn every_page_has_one_heading_a_skip_link_and_what_was_done() {
    for page in all() {
        assert_eq!(page.matches("<h1").count(), 1, "{page}");
        assert!(page.contains("href=\"#main\"") && page.contains("<main id=\"main\""));
        assert!(page.contains("<title>A title · Ipseity</title>") && page.contains("Something was done."));
        let is_published = page.contains("<meta name=\"description\"") && page.contains("<link rel=\"canonical\"");
        assert_ne!(is_published, page.contains("<meta name=\"robots\" content=\"noindex\">"), "either found or not");
    }
}

#[test]
fn no_page_holds_what_the_policy_refuses() {
    for page in all() {
        for refused in ["style=", "<style", "onclick=", "data:", "javascript:"] {
            assert!(!page.contains(refused), "{refused} in {page}");
        }
        for script in tags(&page, "<script") {
            assert!(value(script, "src").is_some_and(|src| src.starts_with("/assets/")), "{script}");
        }
        for file in tags(&page, "<link") {
            let is_address = ["canonical", "alternate"].iter().any(|rel| value(file, "rel") == Some(rel));
            assert!(is_address || value(file, "href").is_some_and(|href| href.starts_with("/assets/")), "{file}");
        }
    }
}

#[test]
fn every_form_is_posted_with_its_token() {
    for page in all() {
        for form in page.split("<form").skip(1) {
            let form = form.split("</form>").next().unwrap_or_default();
            // A search changes nothing.
            if form.contains("role=\"search\"") {
                assert!(form.contains("method=\"get\"") && !form.contains("csrf"), "{form}");
                continue;
            }
            assert!(form.contains("method=\"post\""), "{form}");
            assert!(form.contains("<input type=\"hidden\" name=\"csrf\" value=\"the-token\">"), "{form}");
        }
    }
}

#[test]
fn every_field_to_fill_in_has_a_label() {
    for page in all() {
        for input in tags(&page, "<input").filter(|tag| !tag.contains("hidden")) {
            let is_named = value(input, "id").is_some_and(|id| page.contains(&format!("for=\"{id}\"")));
            assert!(
                is_named
                    || page.contains(&format!("<label>{input}"))
                    || page.contains(&format!("<label class=\"check\">{input}")),
                "{input}"
            );
        }
    }
}

#[test]
fn no_page_has_an_id_twice_and_what_is_live_has_one() {
    for page in all() {
        let mut seen = HashSet::new();
        for tag in page.split('<').skip(1).filter_map(|tag| tag.split('>').next()) {
            let id = value(tag, "id");
            assert!(id.is_none_or(|id| seen.insert(id)), "{tag}");
            assert!(id.is_some() || !tag.contains("data-live") || tag.contains("data-live-sign"), "{tag}");
        }
    }
}

#[test]
fn a_name_is_text_wherever_it_stands() {
    for page in rooms() {
        assert!(!page.contains("<i>"), "{page}");
    }
}

#[test]
fn a_pause_shows_its_evidence_and_one_way_out() {
    for page in [keys_page(vec![card(1, "paused", true)]), key_page(card(1, "paused", true))] {
        assert!(page.contains("Paused on 15 Nov 2026, 14:03:22 UTC"));
        assert!(page.contains("<strong>301 requests</strong>") && page.contains("busiest second: 6"));
        assert!(page.contains("class=\"chart minute\""));
        assert_eq!(page.matches("action=\"/keys/0000000001/resume\"").count(), 1);
    }
    assert!(!key_page(card(1, "active", false)).contains("/resume"));
}

#[test]
fn the_eleventh_key_is_not_offered() {
    assert!(keys_page(vec![card(1, "active", false)]).contains("href=\"/keys/new\""));
    let full = keys_page((0..10).map(|id| card(id, "active", false)).collect());
    assert!(!full.contains("href=\"/keys/new\"") && full.contains("Delete one to make room."));
}

#[test]
fn a_deactivated_key_offers_to_be_reactivated_and_an_active_one_the_contrary() {
    let (active, inactive) = (key_page(card(1, "active", false)), key_page(card(1, "inactive", false)));
    assert!(active.contains("/deactivate\"") && !active.contains("/reactivate\""));
    assert!(inactive.contains("/reactivate\"") && !inactive.contains("/deactivate\""));
}

#[test]
fn a_stranger_is_shown_the_door_and_a_member_the_way_out() {
    let (outside, inside) = (docs().remove(0).1, keys_page(Vec::new()));
    assert!(outside.contains("href=\"/signin\"") && !outside.contains("/signout"));
    assert!(inside.contains("action=\"/signout\"") && inside.contains("ada@example.org"));
}

#[test]
fn every_frozen_anchor_is_a_heading_about_its_error() {
    let docs = docs();
    let page = |name: &str| docs.iter().find(|(slug, _)| *slug == name).map(|(_, page)| page).expect("a page");
    for (anchor, words) in [
        ("missing_api_key", "401</span> missing_api_key"),
        ("invalid_api_key", "401</span> invalid_api_key"),
        ("inactive-keys", "403</span> inactive_api_key: a deactivated key"),
        ("paused-keys", "403</span> inactive_api_key: a paused key"),
        ("daily-quota", "429</span> rate_limit_exceeded: the daily quota"),
        ("burst-limit", "429</span> rate_limit_exceeded: the burst limit"),
        ("demo-quota", "429</span> rate_limit_exceeded: the demo"),
        ("internal_error", "500</span> internal_error"),
        ("not_found", "404</span> not_found"),
        ("method_not_allowed", "405</span> method_not_allowed"),
        ("bad_request", "414</span> uri_too_long"),
    ] {
        let heading = format!("<h3 id=\"{anchor}\"><a href=\"#{anchor}\"><span class=\"status\">{words}");
        assert!(page("errors").contains(&heading), "#{anchor} is missing");
        assert!(page("").contains(&format!("<a id=\"{anchor}\">")), "/docs#{anchor} is missing");
    }
}

#[test]
fn every_link_within_the_documentation_leads_to_a_page_and_an_anchor() {
    let docs = docs();
    for (name, page) in &docs {
        for link in tags(page, "<a ").filter_map(|tag| value(tag, "href")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => Some(page),
                "/docs" => docs.first().map(|(_, first)| first),
                path => match path.strip_prefix("/docs/").filter(|slug| !slug.ends_with(".md")) {
                    Some(slug) => docs.iter().find(|(of, _)| *of == slug).map(|(_, page)| page),
                    // What leads elsewhere is followed by the crawler.
                    None => continue,
                },
            };
            let found = target.is_some_and(|page| anchor.is_empty() || page.contains(&format!(" id=\"{anchor}\"")));
            assert!(found, "{link} on {name:?} leads nowhere");
        }
    }
}

#[test]
fn the_docs_explain_every_field() {
    let docs = docs();
    let (_, page) = docs.iter().find(|(slug, _)| *slug == "scopes").expect("the scopes");
    for field in domain::Field::ALL {
        assert!(page.contains(&format!("<td><code>{}</code>", field.name())), "{} is missing", field.name());
    }
}

#[test]
fn a_list_of_ten_pauses_stays_light() {
    let page = keys_page((0..10).map(|id| card(id, "paused", true)).collect());
    assert!(page.len() < 80_000, "{} bytes", page.len());
}
