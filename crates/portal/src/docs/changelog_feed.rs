//! The changelog as an Atom feed (RFC 4287): an entry for each version.

use crate::docs::article::DocsArticle;
use crate::docs::markdown::render_markdown;
use crate::html::escape_html;

/// Where the feed is served.
pub(crate) const CHANGELOG_FEED_PATH: &str = "/changelog.xml";
/// What the first line of each version starts with, before a day such as `2026-11-19`.
const DATE_PREFIX: &str = "Last change: ";

/// A version of the changelog.
struct Version<'a> {
    name: &'a str,
    /// Such as `2026-11-19`.
    day: &'a str,
    markdown: &'a str,
}

/// The feed of the page with the changelog.
pub(super) fn changelog_feed(page: &DocsArticle, base_url: &str) -> String {
    let base_url = escape_html(base_url);
    let page_url = format!("{base_url}{}", page.path());
    let updated = versions(&page.markdown).map(|version| version.day).max().unwrap_or("1970-01-01");
    let entry = |Version { name, day, markdown }: Version<'_>| {
        let (name, html) = (escape_html(name), escape_html(&render_markdown(markdown).html));
        let anchor = name.replace('.', "-");
        format!(
            "<entry>\n<id>{page_url}#{anchor}</id>\n<title>Ipseity {name}</title>\n<updated>{day}T00:00:00Z</updated>\n\
             <link href=\"{page_url}#{anchor}\"/>\n<content type=\"html\">{html}</content>\n</entry>\n"
        )
    };
    let entries: String = versions(&page.markdown).map(entry).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed xmlns=\"http://www.w3.org/2005/Atom\" xml:lang=\"en\">\n\
         <id>{base_url}{CHANGELOG_FEED_PATH}</id>\n<title>Ipseity changelog</title>\n<updated>{updated}T00:00:00Z</updated>\n\
         <author><name>Ipseity</name></author>\n<link rel=\"self\" href=\"{base_url}{CHANGELOG_FEED_PATH}\"/>\n\
         <link href=\"{page_url}\"/>\n{entries}</feed>\n"
    )
}

/// The versions of a changelog that have a date, newest first.
fn versions(markdown: &str) -> impl Iterator<Item = Version<'_>> {
    markdown.split("\n## ").skip(1).filter_map(|section| {
        let (name, markdown) = section.split_once('\n')?;
        let (first_line, markdown) = markdown.trim_start().split_once('\n')?;
        let day = first_line.strip_prefix(DATE_PREFIX)?.trim_end_matches('.');
        day.parse::<jiff::civil::Date>().is_ok().then_some(Version { name: name.trim(), day, markdown })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs::index::DocsIndex;

    #[test]
    fn feed_has_an_entry_with_a_date_for_each_version() {
        let changelog = include_str!("../../../../CHANGELOG.md");
        let count = changelog.lines().filter(|line| line.starts_with("## ") && *line != "## Unreleased").count();
        assert_eq!(versions(changelog).count(), count, "each version starts with “{DATE_PREFIX}2026-11-19.”");
        let docs_index = DocsIndex::build("https://ip.example");
        let page = docs_index.find_article("changelog").expect("page exists");
        let feed = changelog_feed(page, "https://ip.example");
        assert!(feed.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<feed xmlns="), "{feed}");
        assert_eq!((feed.matches("<entry>").count(), feed.matches("</entry>").count()), (count, count));
        assert_eq!((feed.matches("<id>").count(), feed.matches("<updated>2").count()), (count + 1, count + 1));
        assert!(feed.contains("<id>https://ip.example/docs/changelog#0-2-0</id>\n<title>Ipseity 0.2.0</title>"));
        assert!(feed.contains("&lt;li&gt;") && !feed.contains("<li>"), "the HTML of an entry is text");
        for version in versions(changelog) {
            assert!(page.html.contains(&format!("id=\"{}\"", version.name.replace('.', "-"))), "{}", version.name);
        }
    }

    #[test]
    fn version_without_a_date_is_not_announced() {
        let names = |text| versions(text).map(|version| (version.name, version.day)).collect::<Vec<_>>();
        assert_eq!(names("# C\n\n## 2\n\nSoon.\n\n## 1\n\nLast change: 2026-01-02.\n\nText.\n"), [("1", "2026-01-02")]);
        assert_eq!(names("# C\n\n## 1\n\nLast change: 2026-13-02.\n\nText.\n"), []);
    }
}
