//! Facts that follow from codes and names: name, continent, currency and EU membership of a country, code of a region,
//! and organization of an AS number.
//!
//! `tools/tables.py` generates the tables. They are parsed on first use.

use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// The 27 member states, and their territories in the European Union that have separate codes.
const EU_COUNTRIES: [&str; 34] = [
    "AT", "AX", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GF", "GP", "GR", "HR", "HU", "IE", "IT",
    "LT", "LU", "LV", "MF", "MQ", "MT", "NL", "PL", "PT", "RE", "RO", "SE", "SI", "SK", "YT",
];

/// Words for kinds of regions. `tools/tables.py` has the same list.
const REGION_KIND_WORDS: [&str; 20] = [
    "autonomous",
    "community",
    "county",
    "department",
    "district",
    "division",
    "governorate",
    "krai",
    "kray",
    "oblast",
    "of",
    "okrug",
    "parish",
    "prefecture",
    "province",
    "region",
    "republic",
    "state",
    "territory",
    "the",
];

static CURRENCY_BY_COUNTRY: LazyLock<HashMap<&str, &str>> =
    LazyLock::new(|| invert_table(include_str!("tables/currencies.txt")).collect());

static SUBDIVISION_CODES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    table_lines(include_str!("tables/subdivisions.txt")).flat_map(|line| line.split_ascii_whitespace()).collect()
});

/// Region codes with folded names, sorted by country and name.
static REGION_CODES_BY_NAME: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| table_lines(include_str!("tables/regions.txt")).filter_map(|line| line.split_once(' ')).collect());

static COUNTRIES: LazyLock<HashMap<&str, CountryInfo>> =
    LazyLock::new(|| table_lines(include_str!("tables/countries.txt")).filter_map(CountryInfo::parse).collect());

/// Facts about a country from CLDR.
#[derive(Clone, Copy)]
pub(crate) struct CountryInfo {
    pub(crate) continent: &'static str,
    pub(crate) name: &'static str,
}

impl CountryInfo {
    fn parse(line: &'static str) -> Option<(&'static str, Self)> {
        let (code, rest) = line.split_once(' ')?;
        let (continent, name) = rest.split_once(' ')?;
        Some((code, Self { continent, name }))
    }
}

pub(crate) fn table_lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

/// The members of each line, each with the first word of the line.
pub(crate) fn invert_table(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    table_lines(table)
        .filter_map(|line| line.split_once(' '))
        .flat_map(|(head, rest)| rest.split(' ').map(move |member| (member, head)))
}

/// The ISO 3166-2 code of a country and a subdivision, if it exists.
pub(crate) fn region_code(country: &str, subdivision: &str) -> Option<&'static str> {
    let found =
        SUBDIVISION_CODES.binary_search_by(|code| code[..2].cmp(country).then_with(|| code[3..].cmp(subdivision)));
    found.ok().map(|index| SUBDIVISION_CODES[index])
}

/// Whether a country is in the European Union.
pub(crate) fn is_eu(country: &str) -> bool {
    EU_COUNTRIES.binary_search(&country).is_ok()
}

/// The currency of a country.
pub(crate) fn currency(country: &str) -> Option<&'static str> {
    CURRENCY_BY_COUNTRY.get(country).copied()
}

/// The facts about a country.
pub(crate) fn country_info(code: &str) -> Option<CountryInfo> {
    COUNTRIES.get(code).copied()
}

/// The code of the region with this name, if it is unique in the country. The word for its kind is optional.
pub(crate) fn region_code_by_name(country: &str, name: &str) -> Option<&'static str> {
    let find = |name: &str| {
        let found = REGION_CODES_BY_NAME
            .binary_search_by(|(code, region_name)| code[..2].cmp(country).then_with(|| (*region_name).cmp(name)));
        found.ok().map(|index| REGION_CODES_BY_NAME[index].0)
    };
    find(&fold_name(name)).or_else(|| find(&fold_without_kind_words(name)))
}

/// A folded name without words for the kind of region, with the prefix of such names in the table.
fn fold_without_kind_words(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_alphanumeric()).map(fold_name);
    std::iter::once("~".to_owned())
        .chain(words.filter(|word| REGION_KIND_WORDS.binary_search(&word.as_str()).is_err()))
        .collect()
}

/// Reduces a name to lower-case ASCII letters and digits, without diacritics. `tools/tables.py` does the same.
fn fold_name(name: &str) -> String {
    let mut folded = String::with_capacity(name.len());
    for letter in name.chars().flat_map(char::to_lowercase).nfkd().filter(|letter| !is_combining_mark(*letter)) {
        match letter {
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            'ß' => folded.push_str("ss"),
            'ø' => folded.push('o'),
            'đ' | 'ð' => folded.push('d'),
            'þ' => folded.push_str("th"),
            'ł' => folded.push('l'),
            'ı' => folded.push('i'),
            'ə' => folded.push('e'),
            _ if letter.is_ascii_alphanumeric() => folded.push(letter),
            _ => {}
        }
    }
    folded
}

/// The registered organization of an AS number.
pub(crate) fn registered_organization(asn: u32) -> Option<&'static str> {
    let entry = asinfo::lookup(asn)?;
    [entry.description, entry.handle].into_iter().find(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_searched_tables_are_sorted() {
        assert!(EU_COUNTRIES.is_sorted() && REGION_KIND_WORDS.is_sorted());
        assert!(SUBDIVISION_CODES.is_sorted());
        assert!(SUBDIVISION_CODES.len() > 5000);
        assert!(SUBDIVISION_CODES.iter().all(|code| code.is_ascii() && code.len() > 3 && code.as_bytes()[2] == b'-'));
    }

    #[test]
    fn region_code_is_in_iso_3166_2_or_none() {
        assert_eq!(region_code("US", "CA"), Some("US-CA"));
        assert_eq!(region_code("GB", "ENG"), Some("GB-ENG"));
        for (country, subdivision) in [("HK", "NST"), ("US", "XX"), ("US", ""), ("", "CA"), ("USA", "CA")] {
            assert_eq!(region_code(country, subdivision), None, "{country} {subdivision}");
        }
    }

    #[test]
    fn country_has_its_current_currency() {
        for (country, code) in
            [("DE", "EUR"), ("BG", "EUR"), ("LS", "LSL"), ("PA", "PAB"), ("PS", "ILS"), ("ZW", "ZWG")]
        {
            assert_eq!(currency(country), Some(code), "{country}");
        }
        assert_eq!(currency("AQ"), None);
    }

    #[test]
    fn region_code_is_found_by_a_unique_name() {
        assert!(REGION_CODES_BY_NAME.is_sorted_by_key(|(code, name)| (&code[..2], *name)));
        assert!(REGION_CODES_BY_NAME.iter().all(|(code, name)| region_code(&code[..2], &code[3..]).is_some()
            && fold_name(name) == name.trim_start_matches('~')));
        for (country, name, code) in [
            ("DE", "Bavaria", "DE-BY"),
            ("DE", "Baden-Württemberg", "DE-BW"),
            ("FR", "Île-de-France", "FR-IDF"),
            ("BR", "Sao Paulo", "BR-SP"),
            ("US", "CALIFORNIA", "US-CA"),
            ("PL", "Łódzkie", "PL-10"),
            ("DE", "State of Bavaria", "DE-BY"),
            ("BY", "Minsk Region", "BY-MI"),
            ("ES", "Madrid", "ES-MD"),
            ("LT", "Vilnius", "LT-VL"),
            ("IR", "Esfahan Province", "IR-10"),
        ] {
            assert_eq!(region_code_by_name(country, name), Some(code), "{name}");
        }
        for (country, name) in [
            ("US", "Bavaria"),
            ("US", ""),
            ("US", "~"),
            ("US", "State"),
            ("", "Bavaria"),
            ("HK", "Sha Tin"),
            ("BY", "Minsk"),
            ("MX", "State of the City"),
        ] {
            assert_eq!(region_code_by_name(country, name), None, "{country} {name}");
        }
    }

    #[test]
    fn every_country_has_a_name_and_a_continent() {
        assert_eq!(COUNTRIES.len(), 250, "ISO 3166-1 and Kosovo");
        assert!(COUNTRIES.values().all(|country| country.continent.len() == 2 && !country.name.is_empty()));
        let germany = country_info("DE").map(|country| (country.continent, country.name));
        assert_eq!(germany, Some(("EU", "Germany")));
        assert!(country_info("ZZ").is_none());
    }

    #[test]
    fn as_number_has_a_registered_organization() {
        assert!(registered_organization(3320).is_some_and(|name| name.contains("Telekom")));
        assert_eq!(registered_organization(u32::MAX), None);
    }
}
