//! The pages of the documentation: which there are, in which order, and each made ready once, at start.

use domain::{Field, Scope};

use super::markdown::{Section, escaped, rendered};
use super::sample;
use super::{Attribution, search};

/// A page of the documentation.
pub(crate) struct Page {
    /// Its name in addresses; empty for the first.
    pub(crate) slug: &'static str,
    pub(crate) title: String,
    /// Its first paragraph.
    pub(crate) description: String,
    pub(crate) html: String,
    pub(crate) markdown: String,
    pub(crate) sections: Vec<Section>,
}

impl Page {
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

const ATTRIBUTIONS: &str = "{{attributions}}";

/// All pages.
pub(crate) struct Library {
    groups: Vec<(&'static str, Vec<Page>)>,
    index: String,
}

impl Library {
    /// Makes every page ready.
    pub(crate) fn open(base_url: &str) -> Self {
        let page = |&(slug, source): &(&'static str, &str)| {
            let markdown = expanded(source, base_url);
            let made = rendered(&linked(&markdown, |slug| path_of(slug, "")));
            Page {
                slug,
                title: made.title,
                description: made.description,
                html: made.html,
                markdown: linked(&markdown, |slug| format!("{base_url}{}", path_of(slug, ".md"))),
                sections: made.sections,
            }
        };
        let groups: Vec<_> =
            SOURCES.iter().map(|(group, pages)| (*group, pages.iter().map(page).collect::<Vec<_>>())).collect();
        let index = search::index(groups.iter().flat_map(|(_, pages)| pages));
        Self { groups, index }
    }

    pub(crate) fn groups(&self) -> &[(&'static str, Vec<Page>)] {
        &self.groups
    }

    pub(crate) fn pages(&self) -> impl Iterator<Item = &Page> {
        self.groups.iter().flat_map(|(_, pages)| pages)
    }

    pub(crate) fn find(&self, slug: &str) -> Option<&Page> {
        self.pages().find(|page| page.slug == slug)
    }

    /// The pages before and after one, in the order in which they are read.
    pub(crate) fn neighbours(&self, slug: &str) -> (Option<&Page>, Option<&Page>) {
        let pages: Vec<_> = self.pages().collect();
        let place = pages.iter().position(|page| page.slug == slug).unwrap_or(0);
        (place.checked_sub(1).map(|before| pages[before]), pages.get(place + 1).copied())
    }

    /// All sections as JSON, for the page's own search.
    pub(crate) fn index(&self) -> &str {
        &self.index
    }
}

fn path_of(slug: &str, ending: &str) -> String {
    if slug.is_empty() { format!("/docs{ending}") } else { format!("/docs/{slug}{ending}") }
}

/// A source with its gaps filled.
fn expanded(source: &str, base_url: &str) -> String {
    source
        .replace("{{base_url}}", base_url)
        .replace("{{fields}}", &fields())
        .replace("{{samples}}", &sample::sections(base_url))
}

/// A source whose links to other files lead to their pages.
fn linked(source: &str, to: impl Fn(&str) -> String) -> String {
    let mut text = source.replace("](docs/proxies.md", &format!("]({}", to("proxies")));
    text = text.replace("](../proxies.md", &format!("]({}", to("proxies")));
    for (slug, _) in SOURCES.iter().flat_map(|(_, pages)| *pages) {
        let file = if slug.is_empty() { "index" } else { slug };
        text = text.replace(&format!("]({file}.md"), &format!("]({}", to(slug)));
    }
    text.replace("](../../CHANGELOG.md", &format!("]({}", to("changelog")))
}

/// Every field, the scope that shows it, its type and its meaning.
fn fields() -> String {
    let mut table = "| Field | Scope | Demo | Type | Meaning |\n|---|---|---|---|---|\n".to_owned();
    for field in Field::ALL {
        let (name, scope, kind) = (field.name(), Scope::name(field.scope()), field.json_type());
        let demo = if field.in_demo() { "yes" } else { "no" };
        table.push_str(&format!("| `{name}` | `{scope}` | {demo} | {kind} | {} |\n", field.meaning()));
    }
    table
}

/// Markdown with the sentences about where data comes from, as they are now.
pub(super) fn with_attributions(markdown: &str, attributions: &[Attribution]) -> String {
    let line = |Attribution { text, url }: &Attribution| match url {
        Some(url) => format!("- [{text}]({url})\n"),
        None => format!("- {text}\n"),
    };
    markdown.replace(ATTRIBUTIONS, attributions.iter().map(line).collect::<String>().trim_end())
}

/// The same in HTML.
pub(super) fn with_attributions_html(html: &str, attributions: &[Attribution]) -> String {
    let line = |Attribution { text, url }: &Attribution| match url {
        Some(url) => format!("<li><a href=\"{}\">{}</a></li>", escaped(url), escaped(text)),
        None => format!("<li>{}</li>", escaped(text)),
    };
    let list: String = attributions.iter().map(line).collect();
    html.replace(&format!("<p>{ATTRIBUTIONS}</p>"), &format!("<ul>{list}</ul>"))
}
