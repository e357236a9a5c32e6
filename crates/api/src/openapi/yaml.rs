//! Writes a JSON value as YAML: non-empty objects and arrays in block style, everything else as JSON. Strings
//! stay quoted, so that none is read as another type.

use std::fmt::Write;

use serde_json::Value;

/// Converts the value to a YAML document.
pub(super) fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    write_block(&mut text, value, 0);
    text
}

/// Writes the value after `-` or `key:`, including the line break.
fn write_block(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                write_indent(text, depth);
                write_key(text, key);
                write_child(text, inner, depth);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for inner in list {
                write_indent(text, depth);
                text.push('-');
                write_child(text, inner, depth);
            }
        }
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            write_scalar(text, value);
        }
    }
}

fn write_child(text: &mut String, inner: &Value, depth: usize) {
    let is_inline = match inner {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    if is_inline {
        text.push(' ');
        write_scalar(text, inner);
    } else {
        text.push('\n');
        write_block(text, inner, depth + 1);
    }
}

fn write_indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

/// Writes a key. Keys that YAML could read as another type, such as `200`, are quoted.
fn write_key(text: &mut String, key: &str) {
    let is_plain = key.starts_with(|first: char| first.is_ascii_alphabetic())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&key.to_ascii_lowercase().as_str());
    if is_plain {
        text.push_str(key);
    } else {
        let quoted = Value::from(key);
        write!(text, "{quoted}").expect("writing to a String cannot fail");
    }
    text.push(':');
}

fn write_scalar(text: &mut String, value: &Value) {
    writeln!(text, "{value}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ambiguous_yaml_keys_and_strings_are_quoted() {
        let value = json!({
            "openapi": "3.1.0", "no": "yes", "200": null, "/a": [1, "- b", { "c": [] }, ["d"]], "e": {}, "f": "g: \"h\"\n", "i": true,
        });
        let expected = "openapi: \"3.1.0\"\n\"no\": \"yes\"\n\"200\": null\n\"/a\":\n  - 1\n  - \"- b\"\n  -\n    c: []\n  -\n    - \"d\"\n\
            e: {}\nf: \"g: \\\"h\\\"\\n\"\ni: true\n";
        assert_eq!(to_yaml(&value), expected);
    }
}
