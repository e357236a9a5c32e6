//! Tests of all pages: structure, security and content.

use std::collections::HashSet;
use std::fs;

use ipseity_domain::KeyStatus;
use ipseity_store::OperatorRole;

use crate::console::{CONSOLE_ROUTES, ConsoleRoute};
use crate::docs::index::{DocsIndex, ErrorSection, error_sections};
use crate::view::fixtures::{
    all_pages, console_key_page, console_pages, console_visitor_pages, docs_pages, enterprise_page, invalid_field,
    key_card, key_page, key_page_with, keys_page, landing_page, member_pages, reference_page, signin_page, signup_page,
    usage_page,
};
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
    let parts = [
        include_str!("fixtures.rs"),
        include_str!("fixtures/alerts.rs"),
        include_str!("fixtures/linked_accounts.rs"),
        include_str!("fixtures/new_key.rs"),
        include_str!("fixtures/tokens.rs"),
        include_str!("fixtures/status.rs"),
        include_str!("fixtures/usage.rs"),
    ];
    let view_fixtures = parts.concat();
    for (dir, fixtures) in [("view", &*view_fixtures), ("console/view", include_str!("fixtures/console.rs"))] {
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
fn theme_is_applied_before_the_page_is_drawn_and_offered_once() {
    for page in all_pages_and_console() {
        let (head, body) = page.split_once("</head>").expect("page has a head");
        let script = head.find("/theme.js\"></script>").expect("the script blocks");
        assert!(head.find("<link rel=\"stylesheet\"").is_some_and(|styles| script < styles), "{head}");
        assert_eq!(body.matches("<div class=\"theme-choice\" hidden>").count(), 1, "hidden without the script");
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
    let page = key_page_with(key_card(1, KeyStatus::Active, false), panel);
    assert!(page.contains("Nothing was saved. Correct the marked fields.") && page.contains("<li>Has a defect.</li>"));
    assert_eq!(page.matches("aria-invalid=\"true\"").count(), 1);
    assert_eq!(page.matches("</code> has a defect.</li>").count(), 1);
}

#[test]
fn expired_and_restricted_keys_are_marked() {
    for page in
        [keys_page(vec![key_card(1, KeyStatus::Expired, false)]), key_page(key_card(1, KeyStatus::Expired, false))]
    {
        assert!(page.contains("<span class=\"badge expired\">Expired</span>") && page.contains("Restricted"));
    }
    assert!(!keys_page(vec![key_card(0, KeyStatus::Active, false)]).contains("Restricted"));
}

#[test]
fn reached_daily_limit_is_shown_with_its_reset() {
    let card = || key_card(1, KeyStatus::DailyLimitReached, false);
    for page in [keys_page(vec![card()]), key_page(card())] {
        assert!(page.contains("<span class=\"badge limit-reached\">Daily limit reached</span>"), "{page}");
        assert!(page.contains("<code>429</code>") && page.contains("href=\"/enterprise\">Need a higher limit?"));
        assert!(page.contains("<time datetime=\"2026-11-16T00:00Z\" data-countdown>in 5 h 12 min</time>"));
    }
    assert!(!key_page(key_card(1, KeyStatus::NearDailyLimit, false)).contains("<code>429</code>"));
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
    let pages = OperatorRole::ALL.map(|role| console_key_page(role, KeyStatus::Paused, true));
    // Sign out, restrictions, resume, deactivate, old secret, limits.
    assert_eq!(pages.each_ref().map(|page| forms(page)), [2, 5, 6]);
    assert!(pages.iter().all(|page| page.contains("by the owner") && page.contains("by Ipseity")));
    let deactivated = console_key_page(OperatorRole::Support, KeyStatus::Deactivated, false);
    assert!(deactivated.contains("/reactivate\"") && !deactivated.contains("/deactivate\""), "{deactivated}");
    let tabs = OperatorRole::ALL.map(|role| console_pages(role)[0].contains("href=\"/operators\""));
    assert_eq!(tabs, [false, false, true]);
}

#[test]
fn paused_key_shows_its_chart_and_one_resume_button() {
    for page in [keys_page(vec![key_card(1, KeyStatus::Paused, true)]), key_page(key_card(1, KeyStatus::Paused, true))]
    {
        assert!(page.contains("Paused on <time datetime=\"2026-11-15T14:03:22Z\">15 Nov 2026, 14:03:22 UTC</time>"));
        assert!(page.contains("<strong>301 requests</strong>") && page.contains("busiest second: 6"));
        assert!(page.contains("class=\"chart seconds\" data-counts=\"5,5,"));
        assert_eq!(page.matches("action=\"/keys/0000000001/resume\"").count(), 1);
    }
    assert!(!key_page(key_card(1, KeyStatus::Active, false)).contains("/resume"));
}

/// The section above the list. Empty without one.
fn attention_of(page: &str) -> String {
    let (_, section) = page.split_once("<section class=\"attention\"").unwrap_or_default();
    section.split("</section>").next().unwrap_or_default().to_owned()
}

#[test]
fn keys_that_need_attention_are_listed_above_the_others() {
    for status in KeyStatus::ALL {
        let mut card = key_card(1, status, false);
        let page = keys_page(vec![key_card(2, KeyStatus::Active, false), card]);
        let attention = attention_of(&page);
        let needs_attention = !matches!(status, KeyStatus::Active | KeyStatus::Deactivated);
        assert_eq!(attention.contains("href=\"/keys/0000000001\""), needs_attention, "{status:?}: {attention}");
        assert!(!attention.contains("0000000002") && page.contains("<div id=\"attention\" data-live>"), "{page}");
        assert_eq!(attention.contains(&format!(">{}</span>", status.label())), needs_attention, "{attention}");
        let has_countdown = matches!(status, KeyStatus::DailyLimitReached | KeyStatus::NearDailyLimit);
        assert_eq!(attention.contains("data-countdown"), has_countdown, "{attention}");
        card = key_card(1, status, false);
        card.expires_soon = true;
        let attention = attention_of(&keys_page(vec![card]));
        assert_eq!(
            attention.contains("14:03 UTC</time>. <a href=\"/keys/0000000001#restrictions\">"),
            status != KeyStatus::Deactivated,
            "{status:?}: {attention}"
        );
    }
    let page = keys_page(vec![key_card(1, KeyStatus::Paused, true)]);
    assert!(attention_of(&page).contains("href=\"#key-0000000001\"") && page.contains("id=\"key-0000000001\""));
}

#[test]
fn each_key_in_the_list_has_a_chart_and_a_menu_of_its_actions() {
    let page = keys_page(vec![key_card(1, KeyStatus::Active, false), key_card(2, KeyStatus::Deactivated, false)]);
    assert_eq!(page.matches("<title>130,500 requests in 30 days, at most 8,700 in one day</title>").count(), 2);
    let menus: Vec<_> =
        page.split("<details class=\"row-menu\"").skip(1).filter_map(|rest| rest.split("</details>").next()).collect();
    assert_eq!(menus.len(), 2);
    for (menu, id, action) in [(menus[0], "0000000001", "deactivate"), (menus[1], "0000000002", "reactivate")] {
        for part in [
            format!("href=\"/keys/{id}#today\">Usage"),
            format!("data-copy=\"key-id-{id}\" hidden"),
            format!("href=\"/keys/{id}#rotate-heading\">Rotate"),
            format!("action=\"/keys/{id}/{action}\""),
            format!("href=\"/keys/{id}/delete\">Delete"),
        ] {
            assert!(menu.contains(&part), "{part}: {menu}");
        }
        assert!(page.contains(&format!("<code id=\"key-id-{id}\">ips_{id}</code>")));
    }
    let key_page = key_page(key_card(1, KeyStatus::Active, false));
    assert!(key_page.contains("id=\"today\"") && key_page.contains("id=\"rotate-heading\""), "the menu leads there");
}

#[test]
fn new_key_link_is_hidden_at_ten_keys() {
    assert!(keys_page(vec![key_card(1, KeyStatus::Active, false)]).contains("href=\"/keys/new\""));
    let full = keys_page((0..10).map(|id| key_card(id, KeyStatus::Active, false)).collect());
    assert!(!full.contains("href=\"/keys/new\"") && full.contains("Delete one to add another."));
}

#[test]
fn key_page_offers_deactivate_or_reactivate_by_state() {
    let (active, inactive) =
        (key_page(key_card(1, KeyStatus::Active, false)), key_page(key_card(1, KeyStatus::Deactivated, false)));
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
fn closed_sign_up_offers_no_free_key() {
    let [open, closed] = [true, false].map(landing_page);
    assert!(open.contains("Get a free key") && !closed.contains("Get a free key"));
    assert!(closed.contains("Get an invitation"), "{closed}");
    let page = signup_page(false, "");
    assert!(page.contains("href=\"mailto:support@ipseity.example\"") && !page.contains("<form"), "{page}");
}

#[test]
fn forms_with_a_password_focus_the_first_empty_field_and_can_show_it() {
    for page in [signup_page(true, ""), signin_page(None, "")] {
        let email = tags(&page, "<input id=\"email\"").next().expect("the form asks for the email");
        assert!(email.contains("autofocus") && page.contains("data-show-password=\"password\""), "{page}");
    }
    for page in [signup_page(true, "a@b.example"), signin_page(None, "a@b.example")] {
        let password = tags(&page, "<input id=\"password\"").next().expect("the form asks for the password");
        assert!(password.contains("autofocus") && page.matches("autofocus").count() == 1, "{page}");
    }
}

/// A dot that grows looks like a circle of the accuracy.
#[test]
fn nothing_on_the_map_is_animated() {
    assert!(!include_str!("../../assets/public.css").contains("animation"));
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
fn migration_tables_name_existing_fields() {
    let source = include_str!("../../../../docs/site/migrate.md");
    let tables =
        source.split("\n\n").filter(|part| part.lines().next().is_some_and(|head| head.contains(" | Ipseity | ")));
    let mut field_count = 0;
    for row in tables.flat_map(|table| table.lines().skip(2)) {
        let cell = row.split('|').nth(2).unwrap_or_default().trim();
        for name in cell.split(", ").filter(|name| *name != "–") {
            let is_field = ipseity_domain::Field::ALL.iter().any(|field| format!("`{}`", field.name()) == name);
            assert!(is_field, "{name} in {row}");
            field_count += 1;
        }
    }
    assert!(field_count > 30, "{field_count}");
}

#[test]
fn list_of_ten_paused_keys_stays_under_80_kb() {
    let page = keys_page((0..10).map(|id| key_card(id, KeyStatus::Paused, true)).collect());
    assert!(page.len() < 80_000, "{} bytes", page.len());
}

#[test]
fn usage_page_names_the_line_of_the_limit_only_if_it_is_drawn() {
    for (limit, has_line) in [(Some(5_000_000), false), (Some(1_300_000), true), (None, false)] {
        let page = usage_page(1, true, (true, true), limit);
        assert_eq!(page.contains("<li class=\"limit\">"), has_line, "{limit:?}");
        assert_eq!(page.contains("<line class=\"limit\""), has_line, "{limit:?}");
    }
}

#[test]
fn usage_files_have_the_filter_of_the_page() {
    let page = usage_page(2, false, (true, true), None);
    for file in ["/usage.csv", "/usage.json"] {
        assert!(page.contains(&format!("href=\"{file}?range=7d&#38;outcome=burst\" download")), "{page}");
    }
    assert!(page.contains("data-live=\"/usage?range=7d&#38;outcome=burst\""), "live updates keep the filter");
    let empty = usage_page(0, false, (true, true), None);
    assert!(empty.contains("No requests in this range") && empty.contains("No keys yet."), "{empty}");
}
