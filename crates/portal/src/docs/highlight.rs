//! Code in colours: comments, texts, keys and numbers. It knows the little that all languages of the documentation share.

use super::markdown::escaped;

/// Code as HTML, with a class on each piece that has a colour.
pub(crate) fn highlighted(code: &str, language: &str) -> String {
    let comment = match language {
        "json" | "http" | "text" | "" => None,
        "sh" | "bash" | "python" | "ruby" | "toml" | "yaml" | "nginx" | "haproxy" => Some("#"),
        _ => Some("//"),
    };
    if matches!(language, "text" | "http" | "") {
        return escaped(code);
    }
    let mut html = String::with_capacity(2 * code.len());
    let mut rest = code;
    let mut is_word_start = true;
    while let Some(first) = rest.chars().next() {
        let (class, length) = match first {
            _ if is_word_start && comment.is_some_and(|comment| rest.starts_with(comment)) => {
                ("code-comment", rest.find('\n').unwrap_or(rest.len()))
            }
            '"' | '\'' | '`' => match text_length(rest, first) {
                Some(length) if rest[length..].trim_start().starts_with(':') && language == "json" => {
                    ("code-key", length)
                }
                Some(length) => ("code-text", length),
                None => ("", first.len_utf8()),
            },
            '0'..='9' | '-' if is_word_start && language == "json" => ("code-number", word_length(rest)),
            't' | 'f' | 'n' if is_word_start && language == "json" => ("code-number", word_length(rest)),
            _ => ("", first.len_utf8()),
        };
        let (piece, after) = rest.split_at(length);
        if class.is_empty() {
            html.push_str(&escaped(piece));
        } else {
            html.push_str(&format!("<span class=\"{class}\">{}</span>", escaped(piece)));
        }
        is_word_start = piece.ends_with(|last: char| last.is_whitespace() || "([{,=;".contains(last));
        rest = after;
    }
    html
}

/// The length of a text in quotes that ends on its line.
fn text_length(rest: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    for (place, letter) in rest.char_indices().skip(1) {
        match letter {
            '\n' => return None,
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if letter == quote => return Some(place + letter.len_utf8()),
            _ => {}
        }
    }
    None
}

fn word_length(rest: &str) -> usize {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '+');
    rest.find(|letter| !is_part(letter)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_keys_texts_and_numbers() {
        let html = highlighted("{ \"a\": \"<b>\", \"c\": -1.5, \"d\": null }", "json");
        assert_eq!(
            html,
            "{ <span class=\"code-key\">&quot;a&quot;</span>: <span class=\"code-text\">&quot;&lt;b&gt;&quot;</span>, \
             <span class=\"code-key\">&quot;c&quot;</span>: <span class=\"code-number\">-1.5</span>, \
             <span class=\"code-key\">&quot;d&quot;</span>: <span class=\"code-number\">null</span> }"
        );
    }

    #[test]
    fn a_comment_ends_with_its_line_and_an_address_is_none() {
        let html = highlighted("curl https://a # why\nok", "sh");
        assert_eq!(html, "curl https://a <span class=\"code-comment\"># why</span>\nok");
        assert_eq!(highlighted("fetch(\"https://a\") // b", "js").matches("code-comment").count(), 1);
        assert_eq!(highlighted("don't <stop>", "text"), "don't &lt;stop&gt;");
        assert_eq!(highlighted("it's", "sh"), "it's", "a quote that does not end colours nothing");
    }
}
