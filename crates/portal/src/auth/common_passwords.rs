//! Passwords that are easy to guess: listed ones, common words, sequences, repetitions, and the owner's email address.
//!
//! `common_passwords.txt` lists passwords that are common or breached. It names its source and license. A listed password is
//! also recognized if it is repeated, or has digits and symbols before it, after it or in place of letters.
//!
//! Any other password is split into parts that a guesser tries as a whole: a word, a sequence such as `3456` or `asdf`, a repeated
//! character, up to four digits. Every other character is a part. Few parts mean few guesses.

use std::sync::LazyLock;

/// Common and breached passwords in lower case, sorted. Indexed on first use.
static LISTED: LazyLock<Vec<&str>> =
    LazyLock::new(|| include_str!("common_passwords.txt").lines().skip_while(|line| line.starts_with('#')).collect());

/// Passwords with fewer parts are rejected.
const PARTS_MIN: usize = 5;
/// Minimum length of a sequence or a repetition.
const RUN_CHARS_MIN: usize = 3;
/// Digits that count as one part, such as a year.
const DIGITS_PER_PART: usize = 4;
/// Minimum length of a word from the email address.
const EMAIL_WORD_CHARS_MIN: usize = 3;

const SEQUENCES: [&str; 8] = [
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890",
    "qwertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "qwertzuiop",
    "azertyuiop",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm",
];

/// Words that people combine in passwords, and the name of the service. The list is no replacement: a passphrase of four listed
/// words is good.
const WORDS: &str = "ipseity password passwort passw passphrase pass word secret letmein welcome login signin access admin \
    administrator root user guest test demo default changeme change please temp master monkey dragon shadow sunshine princess \
    football baseball soccer hockey superman batman pokemon starwars iloveyou love hello world freedom whatever trustno \
    computer internet google summer winter spring autumn january monday friday michael jordan ninja mustang hunter killer \
    cheese flower";

/// Whether a password is easy to guess for someone who knows the owner's email address.
pub(crate) fn is_common(password: &str, email: &str) -> bool {
    let password: Vec<char> = password.to_lowercase().chars().collect();
    if is_listed(&password) {
        return true;
    }
    let email_name = email.split('@').next().unwrap_or_default().to_lowercase();
    let email_words = email_name.split(|c: char| !c.is_alphanumeric()).chain([email_name.as_str()]);
    let words: Vec<Vec<char>> = email_words
        .filter(|word| word.chars().count() >= EMAIL_WORD_CHARS_MIN)
        .chain(WORDS.split_whitespace())
        .map(|word| word.chars().collect())
        .collect();
    count_parts(shortest_period(&password), &words) < PARTS_MIN
}

/// Whether a password is listed: as typed, without the digits and symbols after it, or without those on both sides.
fn is_listed(password: &[char]) -> bool {
    let is_letter = |c: &char| c.is_alphabetic();
    let start = password.iter().position(is_letter).unwrap_or(0);
    let end = password.iter().rposition(is_letter).map_or(0, |last| last + 1);
    let forms = [password, &password[..end], &password[start..end]];
    forms.into_iter().flat_map(|form| [form, shortest_period(form)]).any(|form| {
        let typed: String = form.iter().collect();
        let restored: String = form.iter().map(|c| look_alike(*c).unwrap_or(*c)).collect();
        [typed, restored].iter().any(|text| LISTED.binary_search(&text.as_str()).is_ok())
    })
}

/// The block that a text repeats, or the whole text.
fn shortest_period(text: &[char]) -> &[char] {
    let is_period = |length: &usize| text.iter().zip(&text[*length..]).all(|(a, b)| a == b);
    let length = (1..=text.len() / 2).find(is_period).unwrap_or(text.len());
    &text[..length]
}

/// The number of parts. Counting stops at the minimum, so that a long password takes no longer.
fn count_parts(mut rest: &[char], words: &[Vec<char>]) -> usize {
    let mut parts = 0;
    while !rest.is_empty() && parts < PARTS_MIN {
        rest = &rest[part_length(rest, words)..];
        parts += 1;
    }
    parts
}

/// The length of the longest part at the start of a text.
fn part_length(text: &[char], words: &[Vec<char>]) -> usize {
    let word = words.iter().filter(|word| starts_with_word(text, word)).map(Vec::len).max().unwrap_or(0);
    let repetition = text.iter().take_while(|c| **c == text[0]).count();
    let sequence = SEQUENCES.iter().map(|sequence| sequence_length(text, sequence)).max().unwrap_or(0);
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count().min(DIGITS_PER_PART);
    let run = [repetition, sequence].into_iter().filter(|length| *length >= RUN_CHARS_MIN).max().unwrap_or(0);
    [word, run, digits, 1].into_iter().max().unwrap_or(1)
}

/// Whether a text starts with a word, also with digits and symbols in place of letters.
fn starts_with_word(text: &[char], word: &[char]) -> bool {
    let is_same = |(typed, letter): (&char, &char)| typed == letter || look_alike(*typed) == Some(*letter);
    text.len() >= word.len() && text.iter().zip(word).all(is_same)
}

const fn look_alike(c: char) -> Option<char> {
    match c {
        '0' => Some('o'),
        '1' | '!' => Some('i'),
        '3' => Some('e'),
        '4' | '@' => Some('a'),
        '5' | '$' => Some('s'),
        '7' => Some('t'),
        _ => None,
    }
}

/// The number of characters at the start of a text that follow a sequence, forward or backward.
fn sequence_length(text: &[char], sequence: &str) -> usize {
    let forward: Vec<char> = sequence.chars().collect();
    let backward: Vec<char> = sequence.chars().rev().collect();
    let longest = |sequence: &[char]| {
        let starts = (0..sequence.len()).filter(|start| sequence[*start] == text[0]);
        starts.map(|start| text.iter().zip(&sequence[start..]).take_while(|(a, b)| a == b).count()).max().unwrap_or(0)
    };
    longest(&forward).max(longest(&backward))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST_BYTES_MAX: usize = 150_000;

    #[test]
    fn list_has_over_10_000_sorted_unique_entries_in_lower_case() {
        assert!(LISTED.len() > 10_000 && include_str!("common_passwords.txt").len() < LIST_BYTES_MAX);
        assert!(LISTED.is_sorted_by(|first, second| first < second), "the search needs sorted entries");
        for entry in LISTED.iter() {
            assert!(entry.len() >= 4 && entry.bytes().all(|byte| byte.is_ascii_graphic()), "{entry:?}");
            assert_eq!(*entry, entry.to_lowercase());
        }
    }

    #[test]
    fn every_listed_password_is_recognized() {
        for entry in LISTED.iter() {
            let upper = entry.to_uppercase();
            assert!(is_common(entry, "") && is_common(&upper, ""), "{entry}");
            assert!(!entry.ends_with(char::is_alphabetic) || is_common(&format!("{upper}-2026!"), ""), "{entry}");
        }
    }

    #[test]
    fn common_passwords_are_recognized() {
        for password in [
            "1234567890",
            "0987654321",
            "12345678910",
            "123456789012345678901234",
            "qwertyuiop",
            "1q2w3e4r5t",
            "basketball",
            "B4sketb@ll",
            "Basketball!",
            "butterfly1998",
            "12/04/1998 Jessica",
            "jessicajessica1",
            "Password123!",
            "iloveyou1234",
            "QwertyUiop123",
            "1qaz2wsx3edc",
            "zxcvbnmasdfghjkl",
            "abcdefghijkl",
            "aaaaaaaaaa",
            "abcabcabcabc",
            "Xk9Xk9Xk9Xk9",
            "password123",
            "P@ssw0rd2026!",
            "passwordpassword",
            "letmein!!!",
            "Welcome2026!",
            "adminadmin1",
            "iloveyou2024",
            "Ipseity2026",
            "ada.lovelace",
            "lovelace1815",
            "Ada.Lovelace!1",
        ] {
            assert!(is_common(password, "ada.lovelace@example.com"), "{password}");
        }
    }

    #[test]
    fn passwords_with_unpredictable_parts_are_accepted() {
        for password in [
            "correct horse battery",
            "correcthorsebatterystaple",
            "staple of the batteries",
            "a brand-new password",
            "two ways to Tipperary",
            "ten chars!",
            "k7#Qp2xw9!",
            "83920174650283746591",
            "ünïcödé wörds",
            "ada likes long walks",
            "日本語のパスワードです",
        ] {
            assert!(!is_common(password, "ada.lovelace@example.com"), "{password}");
        }
    }
}
