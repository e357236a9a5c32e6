//! Syntax highlighting of comments, strings, keys and numbers: the syntax that all languages of the documentation share.

use crate::html::escape_text;

/// Highlights code as HTML, with a class for each kind of token.
pub(crate) fn highlight_code(code: &str, language: &str) -> String {
    let comment_marker = match language {
        "json" | "http" | "text" | "" => None,
        "sh" | "bash" | "python" | "ruby" | "toml" | "yaml" | "nginx" | "haproxy" => Some("#"),
        _ => Some("//"),
    };
    if matches!(language, "text" | "http" | "") {
        return escape_text(code);
    }
    let mut html = String::with_capacity(2 * code.len());
    let mut rest = code;
    let mut is_word_start = true;
    while let Some(first) = rest.chars().next() {
        let (class, length) = match first {
            _ if is_word_start && comment_marker.is_some_and(|comment_marker| rest.starts_with(comment_marker)) => {
                ("code-comment", rest.find('\n').unwrap_or(rest.len()))
            }
            '"' | '\'' | '`' => match string_literal_len(rest, first) {
                Some(length) if rest[length..].trim_start().starts_with(':') && language == "json" => {
                    ("code-key", length)
                }
                Some(length) => ("code-text", length),
                None => ("", first.len_utf8()),
            },
            '0'..='9' | '-' if is_word_start && language == "json" => ("code-number", word_len(rest)),
            't' | 'f' | 'n' if is_word_start && language == "json" => ("code-number", word_len(rest)),
            _ => ("", first.len_utf8()),
        };
        let (piece, after) = rest.split_at(length);
        if class.is_empty() {
            html.push_str(&escape_text(piece));
        } else {
            html.push_str(&format!("<span class=\"{class}\">{}</span>", escape_text(piece)));
        }
        is_word_start = piece.ends_with(|last: char| last.is_whitespace() || "([{,=;".contains(last));
        rest = after;
    }
    html
}

/// Length of a quoted string that ends on the same line.
fn string_literal_len(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (index, character) in rest.char_indices().skip(1) {
        match character {
            '\n' => return None,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return Some(index + character.len_utf8()),
            _ => {}
        }
    }
    None
}

fn word_len(rest: &str) -> usize {
    let is_word_char = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.' | '+');
    rest.find(|character| !is_word_char(character)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_highlighting_marks_keys_strings_and_numbers() {
        let html = highlight_code("{ \"a\": \"<b>\", \"c\": -1.5, \"d\": null }", "json");
        assert_eq!(
            html,
            "{ <span class=\"code-key\">\"a\"</span>: <span class=\"code-text\">\"&lt;b&gt;\"</span>, \
             <span class=\"code-key\">\"c\"</span>: <span class=\"code-number\">-1.5</span>, \
             <span class=\"code-key\">\"d\"</span>: <span class=\"code-number\">null</span> }"
        );
    }

    #[test]
    fn comments_end_with_their_line_and_urls_are_not_comments() {
        let html = highlight_code("curl https://a # why\nok", "sh");
        assert_eq!(html, "curl https://a <span class=\"code-comment\"># why</span>\nok");
        assert_eq!(highlight_code("fetch(\"https://a\") // b", "js").matches("code-comment").count(), 1);
        assert_eq!(highlight_code("don't <stop>", "text"), "don't &lt;stop&gt;");
        assert_eq!(highlight_code("it's", "sh"), "it's", "an unterminated quote is not highlighted");
    }
}
