//! Tests of all pages: structure, security and content.

use std::collections::HashSet;
use std::fs;

use ipseity_store::OperatorRole;

use crate::console::{CONSOLE_ROUTES, ConsoleRoute};
use crate::docs::index::{DocsIndex, ErrorSection, error_sections};
use crate::view::fixtures::{
    all_pages, console_key_page, console_pages, console_visitor_pages, docs_pages, enterprise_page, invalid_field,
    key_card, key_page, key_page_with, keys_page, member_pages, reference_page,
};
use crate::view::key_badge::KeyBadge;
use crate::view::restrictions::{RestrictionFields, RestrictionsError, RestrictionsPanel};

/// The complete tags of a page that start with a prefix.
fn tags<'a>(page: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    page.match_indices(prefix).map(|(at, _)| page[at..].split_inclusive('>').next().unwrap_or_default())
}

fn attribute_value<'a>(tag: &'a str, attribute: &str) -> Option<&'a str> {
    tag.split_once(&format!(" {attribute}=\""))?.1.split('"').next()
}

/// All pages of the console, for every role.
fn all_console_pages() -> Vec<String> {
    console_visitor_pages().into_iter().chain(OperatorRole::ALL.into_iter().flat_map(console_pages)).collect()
}

fn all_pages_and_console() -> Vec<String> {
    [all_pages(), all_console_pages()].concat()
}

#[test]
fn every_page_has_a_fixture() {
    for (dir, fixtures) in
        [("view", include_str!("fixtures.rs")), ("console/view", include_str!("fixtures/console.rs"))]
    {
        let dir = format!("{}/src/{dir}", env!("CARGO_MANIFEST_DIR"));
        for file in fs::read_dir(dir).expect("list the directory") {
            let path = file.expect("read the directory").path();
            if path.is_dir() {
                continue;
            }
            let source = fs::read_to_string(path).expect("file is readable");
            for page in source.split("#[template(path").skip(1).filter_map(|rest| rest.split("struct ").nth(1)) {
                let name = page.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default();
                assert!(fixtures.contains(&format!("{name} {{")), "{name} is not rendered in the fixtures");
            }
        }
    }
}

#[test]
fn every_page_has_one_heading_a_skip_link_and_its_notice() {
    for page in all_pages() {
        assert_eq!(page.matches("<h1").count(), 1, "{page}");
        assert!(page.contains("href=\"#main\"") && page.contains("<main id=\"main\""));
        assert!(page.contains("<title>A title · Ipseity</title>") && page.contains("Saved."));
        let is_published = page.contains("<meta name=\"description\"") && page.contains("<link rel=\"canonical\"");
        assert_ne!(
            is_published,
            page.contains("<meta name=\"robots\" content=\"noindex\">"),
            "a page is either indexed or noindex"
        );
    }
}

#[test]
fn pages_contain_nothing_that_the_csp_blocks() {
    for page in all_pages_and_console() {
        for blocked in ["style=", "<style", "onclick=", "data:", "javascript:"] {
            assert!(!page.contains(blocked), "{blocked} in {page}");
        }
        for script in tags(&page, "<script") {
            assert!(attribute_value(script, "src").is_some_and(|src| src.starts_with("/assets/")), "{script}");
        }
        for file in tags(&page, "<link") {
            let is_address = ["canonical", "alternate"].iter().any(|rel| attribute_value(file, "rel") == Some(rel));
            assert!(
                is_address || attribute_value(file, "href").is_some_and(|href| href.starts_with("/assets/")),
                "{file}"
            );
        }
    }
}

#[test]
fn every_form_posts_its_csrf_token() {
    for page in all_pages_and_console() {
        for form in page.split("<form").skip(1) {
            let form = form.split("</form>").next().unwrap_or_default();
            // A search or a filter changes nothing and needs no token.
            if form.contains("method=\"get\"") {
                assert!(!form.contains("csrf"), "{form}");
                continue;
            }
            assert!(form.contains("method=\"post\""), "{form}");
            assert!(form.contains("<input type=\"hidden\" name=\"csrf\" value=\"the-token\">"), "{form}");
        }
    }
}

#[test]
fn every_input_has_a_label() {
    for page in all_pages_and_console() {
        let inputs = tags(&page, "<input").filter(|tag| !tag.contains("hidden"));
        for input in inputs.chain(tags(&page, "<textarea")).chain(tags(&page, "<select")) {
            let is_named = attribute_value(input, "id").is_some_and(|id| page.contains(&format!("for=\"{id}\"")));
            assert!(
                is_named
                    || page.contains(&format!("<label>{input}"))
                    || page.contains(&format!("<label class=\"checkbox\">{input}")),
                "{input}"
            );
        }
    }
}

#[test]
fn descriptions_of_fields_exist() {
    for page in all_pages_and_console() {
        for ids in page.split('<').filter_map(|tag| attribute_value(tag.split('>').next()?, "aria-describedby")) {
            for id in ids.split(' ') {
                assert!(page.contains(&format!(" id=\"{id}\"")), "{id} is missing in {page}");
            }
        }
    }
}

#[test]
fn invalid_restrictions_are_shown_with_their_reasons() {
    let fields = RestrictionFields { origins: invalid_field(), ..RestrictionFields::default() };
    let panel = RestrictionsPanel { fields, has_tickets: true, version: 0, error: Some(RestrictionsError::Invalid) };
    let page = key_page_with(key_card(1, KeyBadge::Active, false), panel);
    assert!(page.contains("Nothing was saved. Correct the marked fields.") && page.contains("<li>Has a defect.</li>"));
    assert_eq!(page.matches("aria-invalid=\"true\"").count(), 1);
    assert_eq!(page.matches("</code> has a defect.</li>").count(), 1);
}

#[test]
fn expired_and_restricted_keys_are_marked() {
    for page in
        [keys_page(vec![key_card(1, KeyBadge::Expired, false)]), key_page(key_card(1, KeyBadge::Expired, false))]
    {
        assert!(page.contains("<span class=\"badge expired\">Expired</span>") && page.contains("Restricted"));
    }
    assert!(!keys_page(vec![key_card(0, KeyBadge::Active, false)]).contains("Restricted"));
}

#[test]
fn reached_daily_limit_is_shown_with_its_reset() {
    let card = || key_card(1, KeyBadge::DailyLimitReached, false);
    for page in [keys_page(vec![card()]), key_page(card())] {
        assert!(page.contains("<span class=\"badge limit-reached\">Daily limit reached</span>"), "{page}");
        assert!(page.contains("<code>429</code>") && page.contains("href=\"/enterprise\">Need a higher limit?"));
        assert!(page.contains("<time datetime=\"2026-11-16T00:00Z\" data-countdown>in 5 h 12 min</time>"));
    }
    assert!(!key_page(key_card(1, KeyBadge::NearDailyLimit, false)).contains("<code>429</code>"));
}

#[test]
fn ids_are_unique_and_live_elements_have_one() {
    for page in all_pages_and_console() {
        let mut seen = HashSet::new();
        for tag in page.split('<').skip(1).filter_map(|tag| tag.split('>').next()) {
            let id = attribute_value(tag, "id");
            assert!(id.is_none_or(|id| seen.insert(id)), "{tag}");
            assert!(id.is_some() || !tag.contains("data-live") || tag.contains("data-live-indicator"), "{tag}");
        }
    }
}

#[test]
fn key_names_are_escaped_on_every_page() {
    for page in member_pages() {
        assert!(!page.contains("<i>"), "{page}");
    }
}

#[test]
fn console_pages_have_one_heading_a_skip_link_and_their_notice() {
    for page in all_console_pages() {
        assert_eq!(page.matches("<h1").count(), 1, "{page}");
        assert!(page.contains("href=\"#main\"") && page.contains("<main id=\"main\""), "{page}");
        assert!(page.contains("<title>A title · Ipseity admin</title>") && page.contains("Saved."), "{page}");
        assert!(page.contains("<meta name=\"robots\" content=\"noindex\">"), "{page}");
        assert!(!page.contains("<i>"), "names are escaped: {page}");
    }
    for page in console_visitor_pages() {
        assert!(!page.contains("<nav") && !page.contains("/signout"), "{page}");
    }
}

/// The route of the console that a link or a form leads to.
fn console_route(method: &str, path: &str) -> Option<&'static ConsoleRoute> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_same = |known: &str, part: &str| known == part || known.starts_with('{');
    CONSOLE_ROUTES.iter().find(|route| {
        let (known, parts) = (route.path.split('/'), path.split('/'));
        route.method == method
            && known.clone().count() == parts.clone().count()
            && known.zip(parts).all(|(known, part)| is_same(known, part))
    })
}

#[test]
fn console_pages_lead_only_where_the_role_may_go() {
    for role in OperatorRole::ALL {
        for page in console_pages(role) {
            for link in tags(&page, "<a ").filter_map(|tag| attribute_value(tag, "href")) {
                let route = console_route("get", link).filter(|route| route.access.role() <= Some(role));
                assert!(
                    link.starts_with('#') || link.starts_with("https://ip.example/docs") || route.is_some(),
                    "{link} for a {}",
                    role.name()
                );
            }
            for form in page.split("<form").skip(1).filter_map(|form| form.split("</form>").next()) {
                let method = attribute_value(form, "method").expect("form has a method");
                let action = attribute_value(form, "action").expect("form has an action");
                let route = console_route(method, action).unwrap_or_else(|| panic!("{action} is no route"));
                // Viewers see restrictions in fields that they cannot change.
                let is_read_only = form.contains("<fieldset class=\"stack\" disabled>") && !form.contains("<button");
                assert!(is_read_only || route.access.role() <= Some(role), "{action} for a {}", role.name());
                if let Some(begin) = attribute_value(form, "data-begin") {
                    assert!(console_route("post", begin).is_some(), "{begin} is no route");
                }
            }
        }
    }
}

#[test]
fn console_shows_the_forms_of_the_role() {
    let forms = |page: &str| page.matches("method=\"post\"").count();
    let pages = OperatorRole::ALL.map(|role| console_key_page(role, KeyBadge::Paused, true));
    // Sign out, restrictions, resume, deactivate, old secret, limits.
    assert_eq!(pages.each_ref().map(|page| forms(page)), [2, 5, 6]);
    assert!(pages.iter().all(|page| page.contains("by the owner") && page.contains("by Ipseity")));
    let deactivated = console_key_page(OperatorRole::Support, KeyBadge::Deactivated, false);
    assert!(deactivated.contains("/reactivate\"") && !deactivated.contains("/deactivate\""), "{deactivated}");
    let tabs = OperatorRole::ALL.map(|role| console_pages(role)[0].contains("href=\"/operators\""));
    assert_eq!(tabs, [false, false, true]);
}

#[test]
fn paused_key_shows_its_chart_and_one_resume_button() {
    for page in [keys_page(vec![key_card(1, KeyBadge::Paused, true)]), key_page(key_card(1, KeyBadge::Paused, true))] {
        assert!(page.contains("Paused on 15 Nov 2026, 14:03:22 UTC"));
        assert!(page.contains("<strong>301 requests</strong>") && page.contains("busiest second: 6"));
        assert!(page.contains("class=\"chart seconds\" data-counts=\"5,5,"));
        assert_eq!(page.matches("action=\"/keys/0000000001/resume\"").count(), 1);
    }
    assert!(!key_page(key_card(1, KeyBadge::Active, false)).contains("/resume"));
}

#[test]
fn new_key_link_is_hidden_at_ten_keys() {
    assert!(keys_page(vec![key_card(1, KeyBadge::Active, false)]).contains("href=\"/keys/new\""));
    let full = keys_page((0..10).map(|id| key_card(id, KeyBadge::Active, false)).collect());
    assert!(!full.contains("href=\"/keys/new\"") && full.contains("Delete one to add another."));
}

#[test]
fn key_page_offers_deactivate_or_reactivate_by_state() {
    let (active, inactive) =
        (key_page(key_card(1, KeyBadge::Active, false)), key_page(key_card(1, KeyBadge::Deactivated, false)));
    assert!(active.contains("/deactivate\"") && !active.contains("/reactivate\""));
    assert!(inactive.contains("/reactivate\"") && !inactive.contains("/deactivate\""));
}

#[test]
fn visitors_see_sign_in_and_members_see_sign_out() {
    let (visitor_page, member_page) = (docs_pages().remove(0).1, keys_page(Vec::new()));
    assert!(visitor_page.contains("href=\"/signin\"") && !visitor_page.contains("/signout"));
    assert!(member_page.contains("action=\"/signout\"") && member_page.contains("ada@example.org"));
}

#[test]
fn start_page_links_to_every_error() {
    let docs_index = DocsIndex::build("https://ip.example");
    let html = |slug| docs_index.find_article(slug).expect("page exists").html.as_str();
    let errors_page = docs_index.find_article("errors").expect("page exists");
    for ErrorSection { status, code, anchor, .. } in error_sections(&errors_page.sections) {
        let heading =
            format!("<h3 id=\"{anchor}\"><a href=\"#{anchor}\"><span class=\"status\">{status}</span> {code}");
        assert!(html("errors").contains(&heading), "#{anchor} is missing");
        let link = format!("<a id=\"{anchor}\"></a><a href=\"/docs/errors#{anchor}\">{code}</a>");
        assert!(html("").contains(&link), "/docs#{anchor} is missing");
    }
}

#[test]
fn docs_links_lead_to_existing_pages_and_anchors() {
    let docs = docs_pages();
    for (name, page) in &docs {
        for link in tags(page, "<a ").filter_map(|tag| attribute_value(tag, "href")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => Some(page),
                "/docs" => docs.first().map(|(_, first)| first),
                path => match path.strip_prefix("/docs/").filter(|slug| !slug.ends_with(".md")) {
                    Some(slug) => docs.iter().find(|(page_slug, _)| *page_slug == slug).map(|(_, page)| page),
                    // The link checker of `just docs-check` follows other links.
                    None => continue,
                },
            };
            let found = target.is_some_and(|page| anchor.is_empty() || page.contains(&format!(" id=\"{anchor}\"")));
            assert!(found, "{link} on {name:?} has no target");
        }
    }
}

#[test]
fn enterprise_page_links_to_the_contact() {
    let link = "href=\"mailto:support@ipseity.example\"";
    let page = enterprise_page("mailto:support@ipseity.example");
    assert!(
        page.matches(link).count() == 2 && page.contains(">support@ipseity.example</a>"),
        "button and footer: {page}"
    );
    let page = enterprise_page("");
    assert!(page.contains("Ask the administrator") && !page.contains("href=\"\""), "{page}");
}

#[test]
fn reference_shows_no_backticks() {
    let page = reference_page();
    assert!(page.contains("Always <code>success</code>.") && !page.contains('`'), "{page}");
}

#[test]
fn docs_describe_every_field() {
    let docs = docs_pages();
    let (_, page) = docs.iter().find(|(slug, _)| *slug == "scopes").expect("the page of scopes exists");
    for field in ipseity_domain::Field::ALL {
        assert!(page.contains(&format!("<td><code>{}</code>", field.name())), "{} is missing", field.name());
    }
}

#[test]
fn list_of_ten_paused_keys_stays_under_80_kb() {
    let page = keys_page((0..10).map(|id| key_card(id, KeyBadge::Paused, true)).collect());
    assert!(page.len() < 80_000, "{} bytes", page.len());
}
