//! Renders Markdown to HTML, with anchors on headings, copy buttons on code and scrollable tables.
//!
//! The input is the documentation of this project, never text of a user.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use crate::docs::highlight::highlight_code;
use crate::html::escape_html;

/// A heading and the text below it.
pub(crate) struct DocsSection {
    /// Empty for the text before the first heading.
    pub(crate) anchor: String,
    pub(crate) title: String,
    /// 1 for the page itself.
    pub(crate) level: u8,
    pub(crate) text: String,
}

/// A rendered page.
pub(super) struct RenderedMarkdown {
    pub(super) title: String,
    pub(super) description: String,
    pub(super) html: String,
    pub(super) sections: Vec<DocsSection>,
}

/// Renders a page. Its first heading becomes the title and is not part of the HTML.
pub(super) fn render_markdown(source: &str) -> RenderedMarkdown {
    let mut writer = MarkdownWriter::default();
    let mut events = Parser::new_ext(source, Options::ENABLE_TABLES | Options::ENABLE_HEADING_ATTRIBUTES);
    while let Some(event) = events.next() {
        writer.handle_event(event, &mut events);
    }
    let mut html = String::with_capacity(2 * source.len());
    html::push_html(&mut html, writer.events.into_iter());
    let title = writer.sections.first().map(|section| section.title.clone()).unwrap_or_default();
    RenderedMarkdown { title, description: writer.description, html, sections: writer.sections }
}

#[derive(Default)]
struct MarkdownWriter<'a> {
    events: Vec<Event<'a>>,
    sections: Vec<DocsSection>,
    description: String,
    code_block_count: usize,
    /// Whether the first paragraph is being read.
    is_in_first_paragraph: bool,
}

impl<'a> MarkdownWriter<'a> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "most events pass as they are")]
    fn handle_event(&mut self, event: Event<'a>, rest: &mut Parser<'a>) {
        match event {
            Event::Start(Tag::Heading { level, id, .. }) => self.write_heading(level, id, rest),
            Event::Start(Tag::CodeBlock(kind)) => self.write_code_block(&kind, rest),
            Event::Start(Tag::Table(columns)) => {
                let label = self.sections.last().map(|section| escape_html(&section.title)).unwrap_or_default();
                self.push_html(format!(
                    "<div class=\"panel scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">"
                ));
                self.events.push(Event::Start(Tag::Table(columns)));
            }
            Event::End(TagEnd::Table) => {
                self.events.push(Event::End(TagEnd::Table));
                self.push_html("</div>".to_owned());
            }
            Event::Start(Tag::Paragraph) => {
                self.is_in_first_paragraph = self.description.is_empty();
                self.events.push(Event::Start(Tag::Paragraph));
            }
            Event::End(TagEnd::Paragraph) => {
                self.is_in_first_paragraph = false;
                self.record_text(" ");
                self.events.push(Event::End(TagEnd::Paragraph));
            }
            event => {
                match &event {
                    Event::Text(text) | Event::Code(text) => self.record_text(text),
                    Event::SoftBreak | Event::HardBreak | Event::End(TagEnd::TableCell | TagEnd::Item) => {
                        self.record_text(" ")
                    }
                    _ => {}
                }
                self.events.push(event);
            }
        }
    }

    /// Records text for the search, and the first paragraph as the description.
    fn record_text(&mut self, text: &str) {
        if self.is_in_first_paragraph {
            self.description.push_str(text);
        }
        if let Some(section) = self.sections.last_mut() {
            section.text.push_str(text);
        }
    }

    fn push_html(&mut self, html: String) {
        self.events.push(Event::Html(CowStr::from(html)));
    }

    fn write_heading(&mut self, level: HeadingLevel, id: Option<CowStr<'a>>, rest: &mut Parser<'a>) {
        let inner: Vec<_> =
            rest.by_ref().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_)))).collect();
        let title: String = inner.iter().filter_map(event_text).collect();
        if level == HeadingLevel::H1 {
            self.sections.push(DocsSection { anchor: String::new(), title, level: 1, text: String::new() });
            return;
        }
        let anchor = id.map_or_else(|| slugify(&title), |id| id.to_string());
        let heading_html = match title.split_once(' ') {
            Some((status, heading_html)) if status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("<span class=\"status\">{status}</span> {}", escape_html(heading_html))
            }
            _ => escape_html(&title),
        };
        self.push_html(format!("<{level} id=\"{anchor}\"><a href=\"#{anchor}\">{heading_html}</a></{level}>\n"));
        self.sections.push(DocsSection { anchor, title, level: level as u8, text: String::new() });
    }

    fn write_code_block(&mut self, kind: &CodeBlockKind<'a>, rest: &mut Parser<'a>) {
        let inner: Vec<_> = rest.take_while(|event| !matches!(event, Event::End(TagEnd::CodeBlock))).collect();
        let text: String = inner.iter().filter_map(event_text).collect();
        self.record_text(&text);
        self.code_block_count += 1;
        let id = self.code_block_count;
        let language = match kind {
            CodeBlockKind::Fenced(info) => info.split_whitespace().next().unwrap_or_default(),
            CodeBlockKind::Indented => "",
        };
        let highlighted = highlight_code(text.trim_end(), language);
        self.push_html(format!(
            "<div class=\"panel code\"><pre class=\"scroll\" tabindex=\"0\"><code id=\"code-{id}\" class=\"language-{language}\">{highlighted}</code></pre>{}</div>\n",
            copy_button(&format!("code-{id}"))
        ));
    }
}

fn event_text<'e>(event: &'e Event<'_>) -> Option<&'e str> {
    if let Event::Text(text) | Event::Code(text) = event { Some(text.as_ref()) } else { None }
}

/// Must match the macro `copy_button` in `parts.html`.
fn copy_button(target: &str) -> String {
    format!(
        "<button type=\"button\" class=\"button muted copy-button\" data-copy=\"{target}\" hidden><svg class=\"icon\" viewBox=\"0 0 16 16\" \
         aria-hidden=\"true\"><rect x=\"5.75\" y=\"5.75\" width=\"7.5\" height=\"7.5\" rx=\"1.75\"/><path d=\"M10.25 5.75v-1a2 2 0 0 \
         0-2-2h-3.5a2 2 0 0 0-2 2v3.5a2 2 0 0 0 2 2h1\"/></svg><span>Copy<span class=\"visually-hidden\"> the code</span></span></button>"
    )
}

/// The anchor of a heading: lowercase letters and digits, with hyphens between words.
fn slugify(title: &str) -> String {
    let lower = title.to_lowercase();
    let words =
        lower.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_page_has_title_description_and_sections() {
        let page = render_markdown(
            "# The title\n\nFirst *words*.\n\nMore.\n\n## 401 some_code {#frozen}\n\nWhy.\n\n### What & how\n",
        );
        assert_eq!((page.title.as_str(), page.description.as_str()), ("The title", "First words."));
        assert!(
            page.html
                .contains("<h2 id=\"frozen\"><a href=\"#frozen\"><span class=\"status\">401</span> some_code</a></h2>")
        );
        assert!(page.html.contains("<h3 id=\"what-how\"><a href=\"#what-how\">What &amp; how</a></h3>"));
        assert!(!page.html.contains("The title"));
        let sections: Vec<_> = page.sections.iter().map(|section| (section.level, section.text.trim())).collect();
        assert_eq!(sections, [(1, "First words. More."), (2, "Why."), (3, "")]);
    }

    #[test]
    fn code_blocks_have_a_copy_button_and_tables_scroll() {
        let page = render_markdown("# T\n\n```sh\necho '<b>'\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n");
        assert!(page.html.contains("&lt;b&gt;") && page.html.contains("data-copy=\"code-1\""));
        assert!(
            page.html.contains("role=\"region\" aria-label=\"T\"><table>") && page.html.contains("</table>\n</div>")
        );
    }
}
