//! The pages of the documentation: which there are, in which order, and each made ready once, at start.

use ipseity_domain::{Field, Scope};

use crate::docs::markdown::{DocsSection, escape_html, render_markdown};
use crate::docs::sample;
use crate::docs::{DataAttribution, search};

/// A page of the documentation.
pub(crate) struct DocsArticle {
    /// Its name in addresses; empty for the first.
    pub(crate) slug: &'static str,
    pub(crate) title: String,
    /// Its first paragraph.
    pub(crate) description: String,
    pub(crate) html: String,
    pub(crate) markdown: String,
    pub(crate) sections: Vec<DocsSection>,
}

impl DocsArticle {
    /// Where it is.
    pub(crate) fn path(&self) -> String {
        if self.slug.is_empty() { "/docs".to_owned() } else { format!("/docs/{}", self.slug) }
    }
}

macro_rules! sources {
    ($($group:literal { $($slug:literal $file:literal)+ })+) => {
        /// Group, slug and Markdown of each page, in the order in which they are read.
        const SOURCES: &[(&str, &[(&str, &str)])] = &[
            $(($group, &[$(($slug, include_str!(concat!("../../../../", $file)))),+])),+
        ];
    };
}

sources! {
    "Start" {
        ""               "docs/site/index.md"
        "authentication" "docs/site/authentication.md"
        "samples"        "docs/site/samples.md"
        "demo"           "docs/site/demo.md"
    }
    "The interface" {
        "scopes"         "docs/site/scopes.md"
        "limits"         "docs/site/limits.md"
        "errors"         "docs/site/errors.md"
        "paused-keys"    "docs/site/paused-keys.md"
        "browsers"       "docs/site/browsers.md"
        "versioning"     "docs/site/versioning.md"
        "changelog"      "CHANGELOG.md"
    }
    "The service" {
        "data"           "docs/site/data.md"
        "privacy"        "docs/site/privacy.md"
        "promises"       "docs/site/promises.md"
        "self-hosting"   "docs/site/self-hosting.md"
        "proxies"        "docs/proxies.md"
    }
}

const ATTRIBUTIONS_PLACEHOLDER: &str = "{{attributions}}";

/// All pages.
pub(crate) struct DocsIndex {
    groups: Vec<(&'static str, Vec<DocsArticle>)>,
    search_json: String,
}

impl DocsIndex {
    /// Makes every page ready.
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
        Self { groups, search_json }
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

    /// The pages before and after one, in the order in which they are read.
    pub(crate) fn previous_and_next(&self, slug: &str) -> (Option<&DocsArticle>, Option<&DocsArticle>) {
        let articles: Vec<_> = self.articles().collect();
        let index = articles.iter().position(|page| page.slug == slug).unwrap_or(0);
        (index.checked_sub(1).map(|previous| articles[previous]), articles.get(index + 1).copied())
    }

    /// All sections as JSON, for the page's own search.
    pub(crate) fn search_json(&self) -> &str {
        &self.search_json
    }
}

fn docs_path(slug: &str, suffix: &str) -> String {
    if slug.is_empty() { format!("/docs{suffix}") } else { format!("/docs/{slug}{suffix}") }
}

/// A source with its gaps filled.
fn expand_placeholders(source: &str, base_url: &str) -> String {
    source
        .replace("{{base_url}}", base_url)
        .replace("{{fields}}", &fields_table())
        .replace("{{samples}}", &sample::samples_markdown(base_url))
}

/// A source whose links to other files lead to their pages.
fn rewrite_links(source: &str, target: impl Fn(&str) -> String) -> String {
    let mut text = source.replace("](docs/proxies.md", &format!("]({}", target("proxies")));
    text = text.replace("](../proxies.md", &format!("]({}", target("proxies")));
    for (slug, _) in SOURCES.iter().flat_map(|(_, pages)| *pages) {
        let file = if slug.is_empty() { "index" } else { slug };
        text = text.replace(&format!("]({file}.md"), &format!("]({}", target(slug)));
    }
    text.replace("](../../CHANGELOG.md", &format!("]({}", target("changelog")))
}

/// Every field, the scope that shows it, its type and its meaning.
fn fields_table() -> String {
    let mut table = "| Field | Scope | Demo | Type | Meaning |\n|---|---|---|---|---|\n".to_owned();
    for field in Field::ALL {
        let (name, scope, json_type) = (field.name(), Scope::name(field.scope()), field.json_type());
        let demo = if field.in_demo() { "yes" } else { "no" };
        table.push_str(&format!("| `{name}` | `{scope}` | {demo} | {json_type} | {} |\n", field.description()));
    }
    table
}

/// Markdown with the sentences about where data comes from, as they are now.
pub(super) fn with_attributions(markdown: &str, attributions: &[DataAttribution]) -> String {
    let item = |DataAttribution { text, url }: &DataAttribution| match url {
        Some(url) => format!("- [{text}]({url})\n"),
        None => format!("- {text}\n"),
    };
    markdown.replace(ATTRIBUTIONS_PLACEHOLDER, attributions.iter().map(item).collect::<String>().trim_end())
}

/// The same in HTML.
pub(super) fn with_attributions_html(html: &str, attributions: &[DataAttribution]) -> String {
    let item = |DataAttribution { text, url }: &DataAttribution| match url {
        Some(url) => format!("<li><a href=\"{}\">{}</a></li>", escape_html(url), escape_html(text)),
        None => format!("<li>{}</li>", escape_html(text)),
    };
    let list: String = attributions.iter().map(item).collect();
    html.replace(&format!("<p>{ATTRIBUTIONS_PLACEHOLDER}</p>"), &format!("<ul>{list}</ul>"))
}
