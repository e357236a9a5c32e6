//! The list of all documentation pages. They are rendered once, at startup.

use ipseity_domain::{Field, FieldSet, Scope};

use crate::docs::article::DocsArticle;
use crate::docs::changelog_feed::changelog_feed;
use crate::docs::markdown::{DocsSection, render_markdown};
use crate::docs::{sample, search, snippets};
use crate::host::DataAttribution;
use crate::html::escape_html;
use crate::static_file::StaticFile;

macro_rules! sources {
    ($($group:literal { $($slug:literal $file:literal)+ })+) => {
        /// Group, slug and Markdown of each page, in reading order.
        const SOURCES: &[(&str, &[(&str, &str)])] = &[
            $(($group, &[$(($slug, include_str!(concat!("../../../../", $file)))),+])),+
        ];
    };
}

sources! {
    "Get started" {
        ""               "docs/site/index.md"
        "authentication" "docs/site/authentication.md"
        "samples"        "docs/site/samples.md"
        "web-page"       "docs/site/web-page.md"
        "recipes"        "docs/site/recipes.md"
        "demo"           "docs/site/demo.md"
        "test-keys"      "docs/site/test-keys.md"
        "migrate"        "docs/site/migrate.md"
    }
    "API" {
        "scopes"         "docs/site/scopes.md"
        "limits"         "docs/site/limits.md"
        "errors"         "docs/site/errors.md"
        "paused-keys"    "docs/site/paused-keys.md"
        "key-status"     "docs/site/key-status.md"
        "alerts"         "docs/site/alerts.md"
        "restrictions"   "docs/site/restrictions.md"
        "tickets"        "docs/site/tickets.md"
        "management"     "docs/site/management.md"
        "versioning"     "docs/site/versioning.md"
        "changelog"      "CHANGELOG.md"
    }
    "Service" {
        "data"           "docs/site/data.md"
        "privacy"        "docs/site/privacy.md"
        "promises"       "docs/site/promises.md"
        "self-hosting"   "docs/site/self-hosting.md"
        "proxies"        "docs/proxies.md"
    }
}

/// Other slugs of pages: what readers guess, and pages that were merged into others, whose anchors are the same.
const MOVED_PAGES: [(&str, &str); 2] = [("index", ""), ("browsers", "web-page")];

const ERRORS_SOURCE: &str = include_str!("../../../../docs/site/errors.md");
const WEB_PAGE_SERVER: &str = include_str!("../../../../samples/web-page/server.mjs");
const WEB_PAGE_PAGE: &str = include_str!("../../../../samples/web-page/index.html");
const CREATE_TICKET: &str = include_str!("../../../../samples/web-page/create_ticket.sh");
/// Placeholder, language and file of each recipe.
const RECIPES: [(&str, &str, &str); 4] = [
    ("{{recipe_currency}}", "javascript", include_str!("../../../../samples/recipes/currency.mjs")),
    ("{{recipe_consent}}", "javascript", include_str!("../../../../samples/recipes/consent.mjs")),
    ("{{recipe_time_zone}}", "javascript", include_str!("../../../../samples/recipes/time_zone.mjs")),
    ("{{recipe_dynamic_dns}}", "bash", include_str!("../../../../samples/recipes/dynamic_dns.sh")),
];
const ATTRIBUTIONS_PLACEHOLDER: &str = "{{attributions}}";

/// All pages of the documentation.
pub(crate) struct DocsIndex {
    groups: Vec<(&'static str, Vec<DocsArticle>)>,
    search_json: StaticFile,
    changelog_feed: StaticFile,
}

impl DocsIndex {
    /// Renders every page.
    pub(crate) fn build(base_url: &str) -> Self {
        let page = |&(slug, source): &(&'static str, &str)| {
            let markdown = expand_placeholders(source, base_url);
            let rendered = render_markdown(&rewrite_links(&markdown, |slug| docs_path(slug, "")));
            DocsArticle {
                slug,
                title: rendered.title,
                description: rendered.description,
                html: rendered.html,
                markdown: rewrite_links(&markdown, |slug| format!("{base_url}{}", docs_path(slug, ".md"))),
                sections: rendered.sections,
            }
        };
        let groups: Vec<_> =
            SOURCES.iter().map(|(group, pages)| (*group, pages.iter().map(page).collect::<Vec<_>>())).collect();
        let search_json = search::search_index_json(groups.iter().flat_map(|(_, pages)| pages));
        let changelog = groups.iter().flat_map(|(_, pages)| pages).find(|page| page.slug == "changelog");
        let feed = changelog.map(|page| changelog_feed(page, base_url)).unwrap_or_default();
        Self {
            groups,
            search_json: StaticFile::new("application/json", search_json),
            changelog_feed: StaticFile::new("application/atom+xml; charset=utf-8", feed),
        }
    }

    pub(crate) fn groups(&self) -> &[(&'static str, Vec<DocsArticle>)] {
        &self.groups
    }

    pub(crate) fn articles(&self) -> impl Iterator<Item = &DocsArticle> {
        self.groups.iter().flat_map(|(_, pages)| pages)
    }

    pub(crate) fn find_article(&self, slug: &str) -> Option<&DocsArticle> {
        self.articles().find(|page| page.slug == slug)
    }

    /// The pages before and after a page, in reading order.
    pub(crate) fn previous_and_next(&self, slug: &str) -> (Option<&DocsArticle>, Option<&DocsArticle>) {
        let articles: Vec<_> = self.articles().collect();
        let index = articles.iter().position(|page| page.slug == slug).unwrap_or(0);
        (index.checked_sub(1).map(|previous| articles[previous]), articles.get(index + 1).copied())
    }

    /// The changelog as an Atom feed.
    pub(crate) fn changelog_feed(&self) -> &StaticFile {
        &self.changelog_feed
    }

    /// All sections as JSON, for the search in the browser.
    pub(crate) fn search_json(&self) -> &StaticFile {
        &self.search_json
    }
}

fn docs_path(slug: &str, suffix: &str) -> String {
    if slug.is_empty() { format!("/docs{suffix}") } else { format!("/docs/{slug}{suffix}") }
}

/// The path of the page that has replaced this one, if it was moved.
pub(super) fn moved_path(slug: &str, suffix: &str) -> Option<String> {
    let (_, new_slug) = MOVED_PAGES.iter().find(|(old_slug, _)| *old_slug == slug)?;
    Some(docs_path(new_slug, suffix))
}

/// Replaces the placeholders of a source.
fn expand_placeholders(source: &str, base_url: &str) -> String {
    let field_count = |field_set: FieldSet| field_set.fields().count().to_string();
    let mut text = source.to_owned();
    for (placeholder, language, file) in RECIPES {
        text = text.replace(placeholder, &sample::code_markdown(language, file, base_url));
    }
    text.replace("{{base_url}}", base_url)
        .replace("{{fields}}", &fields_table())
        .replace("{{geo_field_count}}", &field_count(FieldSet::Scope(Scope::Geo)))
        .replace("{{full_field_count}}", &field_count(FieldSet::Scope(Scope::Full)))
        .replace("{{demo_field_count}}", &field_count(FieldSet::Demo))
        .replace("{{errors}}", &errors_table())
        .replace("{{first_request}}", &snippets::snippets_markdown(base_url))
        .replace("{{samples}}", &sample::samples_markdown(base_url))
        .replace("{{web_page_server}}", &sample::code_markdown("javascript", WEB_PAGE_SERVER, base_url))
        .replace("{{web_page_page}}", &sample::code_markdown("html", WEB_PAGE_PAGE, base_url))
        .replace("{{create_ticket}}", &sample::code_markdown("bash", CREATE_TICKET, base_url))
}

/// Rewrites links between Markdown files to links between pages.
fn rewrite_links(source: &str, target: impl Fn(&str) -> String) -> String {
    let mut text = source.replace("](docs/proxies.md", &format!("]({}", target("proxies")));
    text = text.replace("](../proxies.md", &format!("]({}", target("proxies")));
    for (slug, _) in SOURCES.iter().flat_map(|(_, pages)| *pages) {
        let file = if slug.is_empty() { "index" } else { slug };
        text = text.replace(&format!("]({file}.md"), &format!("]({}", target(slug)));
    }
    text = text.replace("](samples)", &format!("]({})", target("samples")));
    text.replace("](../../CHANGELOG.md", &format!("]({}", target("changelog")))
}

/// The table of all response fields.
fn fields_table() -> String {
    let mut table = "| Field | Scope | Demo | Type | Meaning |\n|---|---|---|---|---|\n".to_owned();
    for field in Field::ALL {
        let (name, scope, json_type) = (field.name(), Scope::name(field.scope()), field.json_type());
        let demo = if field.in_demo() { "yes" } else { "no" };
        table.push_str(&format!("| `{name}` | `{scope}` | {demo} | {json_type} | {} |\n", field.description()));
    }
    table
}

/// An error code on the page of errors.
pub(crate) struct ErrorSection<'a> {
    pub(crate) status: &'a str,
    pub(crate) code: &'a str,
    pub(crate) anchor: &'a str,
    /// The first sentence of its cause.
    pub(crate) cause: &'a str,
}

/// The errors among the sections of a page: those whose title starts with a status and a code.
pub(crate) fn error_sections(sections: &[DocsSection]) -> impl Iterator<Item = ErrorSection<'_>> {
    sections.iter().filter_map(|DocsSection { anchor, title, text, .. }| {
        let (status, title) = title.split_once(' ').filter(|(status, _)| status.parse::<u16>().is_ok())?;
        let code = title.split([':', ',']).next().unwrap_or(title);
        let cause = text.split(". ").nth(1).unwrap_or_default();
        Some(ErrorSection { status, code, anchor, cause })
    })
}

/// The table of all errors, from the page of errors. Each row has the anchor that links used before the errors had a page.
fn errors_table() -> String {
    let mut table = "| Status | Code | When |\n|---|---|---|\n".to_owned();
    let rendered = render_markdown(ERRORS_SOURCE);
    for ErrorSection { status, code, anchor, cause } in error_sections(&rendered.sections) {
        table.push_str(&format!("| {status} | <a id=\"{anchor}\"></a>[{code}](errors.md#{anchor}) | {cause} |\n"));
    }
    table
}

/// Inserts the current data attributions into Markdown.
pub(crate) fn with_attributions(markdown: &str, attributions: &[DataAttribution]) -> String {
    let item = |DataAttribution { text, url }: &DataAttribution| match url {
        Some(url) => format!("- [{text}]({url})\n"),
        None => format!("- {text}\n"),
    };
    markdown.replace(ATTRIBUTIONS_PLACEHOLDER, attributions.iter().map(item).collect::<String>().trim_end())
}

/// Inserts the current data attributions into HTML.
pub(super) fn with_attributions_html(html: &str, attributions: &[DataAttribution]) -> String {
    let item = |DataAttribution { text, url }: &DataAttribution| match url {
        Some(url) => format!("<li><a href=\"{}\">{}</a></li>", escape_html(url), escape_html(text)),
        None => format!("<li>{}</li>", escape_html(text)),
    };
    let list: String = attributions.iter().map(item).collect();
    html.replace(&format!("<p>{ATTRIBUTIONS_PLACEHOLDER}</p>"), &format!("<ul>{list}</ul>"))
}
