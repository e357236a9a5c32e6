//! Renders Markdown to HTML, with anchors on headings, copy buttons on code and scrollable tables. Successive code blocks with
//! `tab=ID title=TITLE` after their language become tabs.
//!
//! The input is the documentation of this project or a text of the operator, never text of a user.

use askama::Template;
use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use crate::docs::highlight::highlight_code;
use crate::docs::sample::DOCS_KEY;
use crate::html::escape_html;
use crate::view::code_tabs::{CodeTab, CodeTabs};

/// A field for the key, above the first code that has the placeholder.
const KEY_FIELD: &str = include_str!("../../templates/key_field.html");

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
pub(crate) struct RenderedMarkdown {
    /// Empty if there is no heading before the first section.
    pub(crate) title: String,
    pub(super) description: String,
    pub(crate) html: String,
    pub(super) sections: Vec<DocsSection>,
}

/// Renders a page. Its first heading becomes the title and is not part of the HTML.
pub(super) fn render_markdown(source: &str) -> RenderedMarkdown {
    render_with(MarkdownWriter::default(), source)
}

/// Renders a text of the operator in the same way. HTML in it is shown as text.
pub(crate) fn render_operator_text(source: &str) -> RenderedMarkdown {
    render_with(MarkdownWriter { escapes_html: true, ..MarkdownWriter::default() }, source)
}

fn render_with<'a>(mut writer: MarkdownWriter<'a>, source: &'a str) -> RenderedMarkdown {
    let mut events = Parser::new_ext(source, Options::ENABLE_TABLES | Options::ENABLE_HEADING_ATTRIBUTES);
    while let Some(event) = events.next() {
        writer.handle_event(event, &mut events);
    }
    writer.write_tabs();
    let mut html = String::with_capacity(2 * source.len());
    html::push_html(&mut html, writer.events.into_iter());
    let first = writer.sections.first().filter(|section| section.level == 1);
    let title = first.map(|section| section.title.clone()).unwrap_or_default();
    writer.sections.append(&mut writer.tab_sections);
    RenderedMarkdown { title, description: writer.description, html, sections: writer.sections }
}

#[derive(Default)]
struct MarkdownWriter<'a> {
    events: Vec<Event<'a>>,
    sections: Vec<DocsSection>,
    description: String,
    code_block_count: usize,
    has_key_field: bool,
    /// Tabs that are not written yet.
    tabs: Vec<CodeTab>,
    tab_group_count: usize,
    /// A section for each tab of the first group, for links and the search.
    tab_sections: Vec<DocsSection>,
    /// Whether the first paragraph is being read.
    is_in_first_paragraph: bool,
    escapes_html: bool,
}

impl<'a> MarkdownWriter<'a> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "most events pass as they are")]
    fn handle_event(&mut self, event: Event<'a>, rest: &mut Parser<'a>) {
        if !matches!(&event, Event::Start(Tag::CodeBlock(kind)) if tab_of(kind).is_some()) {
            self.write_tabs();
        }
        match event {
            Event::Html(text) | Event::InlineHtml(text) if self.escapes_html => self.events.push(Event::Text(text)),
            Event::Start(Tag::HtmlBlock) if self.escapes_html => self.events.push(Event::Start(Tag::Paragraph)),
            Event::End(TagEnd::HtmlBlock) if self.escapes_html => self.events.push(Event::End(TagEnd::Paragraph)),
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
        if level == HeadingLevel::H1 && self.sections.is_empty() {
            self.sections.push(DocsSection { anchor: String::new(), title, level: 1, text: String::new() });
            return;
        }
        let level = level.max(HeadingLevel::H2);
        let anchor = self.unique_anchor(&id.map_or_else(|| slugify(&title), |id| slugify(&id)));
        let heading_html = match title.split_once(' ') {
            Some((status, heading_html)) if status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit()) => {
                format!("<span class=\"status\">{status}</span> {}", escape_html(heading_html))
            }
            _ => escape_html(&title),
        };
        self.push_html(format!("<{level} id=\"{anchor}\"><a href=\"#{anchor}\">{heading_html}</a></{level}>\n"));
        self.sections.push(DocsSection { anchor, title, level: level as u8, text: String::new() });
    }

    /// An anchor that no other heading has.
    fn unique_anchor(&self, wanted: &str) -> String {
        let wanted = if wanted.is_empty() { "section" } else { wanted };
        let is_taken = |anchor: &str| self.sections.iter().any(|section| section.anchor == anchor);
        let numbered = (2..).map(|number| format!("{wanted}-{number}"));
        [wanted.to_owned()].into_iter().chain(numbered).find(|anchor| !is_taken(anchor)).unwrap_or_default()
    }

    /// Writes the tabs that were read. Those of the first group have anchors.
    fn write_tabs(&mut self) {
        if self.tabs.is_empty() {
            return;
        }
        self.tab_group_count += 1;
        let (group, has_anchors) = (self.tab_group_count.to_string(), self.tab_group_count == 1);
        let label = self.sections.last().map(|section| section.title.clone()).unwrap_or_default();
        let tabs = CodeTabs { group, label, has_anchors, tabs: std::mem::take(&mut self.tabs) };
        self.push_html(tabs.render().unwrap_or_default());
    }

    fn write_code_block(&mut self, kind: &CodeBlockKind<'a>, rest: &mut Parser<'a>) {
        let inner: Vec<_> = rest.take_while(|event| !matches!(event, Event::End(TagEnd::CodeBlock))).collect();
        let text: String = inner.iter().filter_map(event_text).collect();
        let language = info_of(kind).split_whitespace().next().unwrap_or_default();
        if text.contains(DOCS_KEY) && language != "json" && !self.has_key_field {
            self.has_key_field = true;
            self.push_html(KEY_FIELD.to_owned());
        }
        let highlighted = highlight_code(text.trim_end(), language);
        if let Some((id, title)) = tab_of(kind) {
            if self.tab_group_count == 0 {
                let (anchor, title) = (id.to_owned(), title.to_owned());
                self.tab_sections.push(DocsSection { anchor, title, level: 3, text });
            }
            self.tabs.push(CodeTab { id: id.to_owned(), title: title.to_owned(), html: highlighted });
            return;
        }
        self.record_text(&text);
        self.code_block_count += 1;
        let id = self.code_block_count;
        self.push_html(format!(
            "<div class=\"panel code\"><pre class=\"scroll\" tabindex=\"0\"><code id=\"code-{id}\" class=\"language-{}\">{highlighted}</code></pre>{}</div>\n",
            escape_html(language),
            copy_button(&format!("code-{id}"))
        ));
    }
}

/// What follows the backquotes of a code block.
fn info_of<'k>(kind: &'k CodeBlockKind<'_>) -> &'k str {
    if let CodeBlockKind::Fenced(info) = kind { info } else { "" }
}

/// The id and the title of a code block that becomes a tab.
fn tab_of<'k>(kind: &'k CodeBlockKind<'_>) -> Option<(&'k str, &'k str)> {
    let (_, tab) = info_of(kind).split_once(" tab=")?;
    tab.split_once(" title=")
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
    fn text_of_the_operator_adds_no_markup() {
        let page = render_operator_text(
            "# Terms <script>a</script>\n\n<script>b</script>\n\nSome <b onclick=x>bold</b> **text**.\n\n\
             ## A & B {#x\"onclick=\"y}\n\n# Part\n\n## Part\n\n## §\n\n```\"><script>c\nd\n```\n",
        );
        assert!(!page.html.contains("<script") && !page.html.contains("<b "), "{}", page.html);
        assert!(page.html.contains("class=\"language-&quot;&gt;&lt;script&gt;c\""), "{}", page.html);
        assert!(page.html.contains("<p>&lt;script&gt;b&lt;/script&gt;") && page.html.contains("<strong>text</strong>"));
        let anchors: Vec<_> = page.sections.iter().map(|section| section.anchor.as_str()).collect();
        assert_eq!(anchors, ["", "x-onclick-y", "part", "part-2", "section"]);
        assert!(page.html.contains("<h2 id=\"part\">"), "a second title is a heading");
        assert_eq!(render_operator_text("Text.\n\n## Part").title, "");
    }

    #[test]
    fn successive_code_blocks_with_titles_become_tabs_that_the_search_finds() {
        let block = |id: &str| format!("```sh tab={id} title=The {id}\necho {id}\n```\n\n");
        let source = format!("# T\n\n## A\n\n{}{}between\n\n{}", block("one"), block("two"), block("one"));
        let page = render_markdown(&source);
        assert_eq!(page.html.matches("class=\"code-tabs\"").count(), 2);
        for part in ["value=\"one\" id=\"one\" checked>The one", "id=\"code-1-two\">echo two", "id=\"code-2-one\""] {
            assert!(page.html.contains(part), "{part} is not in {}", page.html);
        }
        let sections: Vec<_> = page.sections.iter().map(|section| (&*section.anchor, section.text.trim())).collect();
        assert_eq!(sections, [("", ""), ("a", "between"), ("one", "echo one"), ("two", "echo two")]);
        assert_eq!(render_markdown("# T\n\n```sh\na\n```\n\n```sh\nb\n```\n").html.matches("code-tabs").count(), 0);
    }

    #[test]
    fn first_code_with_a_key_has_a_field_for_the_key_above_it() {
        let block = |text: &str| format!("```sh\n{text}\n```\n\n");
        let source = format!("# T\n\n{}{}{}", block("one"), block("two <API_KEY>"), block("three <API_KEY>"));
        let html = render_markdown(&source).html;
        let position = |part: &str| html.find(part).expect("part is shown");
        assert!(position("one") < position("your-key") && position("your-key") < position("two"), "{html}");
        assert_eq!(html.matches("<input id=\"your-key\"").count(), 1);
        for without in [block("one"), "```json\n\"<API_KEY>\"\n```\n".to_owned()] {
            assert!(!render_markdown(&format!("# T\n\n{without}")).html.contains("your-key"), "{without}");
        }
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
