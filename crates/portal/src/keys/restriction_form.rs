//! Reads the fields of restrictions from forms, and fills them in.

use std::fmt::Display;
use std::str::FromStr;

use ipseity_domain::restrictions::network::AllowedNetwork;
use ipseity_domain::restrictions::origin::AllowedOrigin;
use ipseity_domain::restrictions::warning::{RestrictionContext, RestrictionWarning};
use ipseity_domain::restrictions::{CALLER_LIMIT_MAX, InvalidRestrictions, NETWORKS_MAX, ORIGINS_MAX, Restrictions};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::auth::csrf_form::CsrfForm;
use crate::time;
use crate::view::restrictions::{FieldError, RestrictionField, RestrictionFields};

impl RestrictionField {
    fn new(value: String) -> Self {
        Self { value, ..Self::default() }
    }

    /// The field as it was entered.
    pub(crate) fn entered(form: &CsrfForm, name: &str) -> Self {
        Self::new(form.field(name).to_owned())
    }

    /// Takes the value, or records why it is invalid.
    fn check<T: Default>(&mut self, parsed: Result<T, Vec<FieldError>>) -> T {
        parsed.unwrap_or_else(|errors| {
            self.errors = errors;
            T::default()
        })
    }

    /// Reads allowed origins, one per line.
    pub(crate) fn parse_origins(&mut self) -> Vec<AllowedOrigin> {
        let parsed = parse_lines(&self.value, AllowedOrigin::parse, ORIGINS_MAX, InvalidRestrictions::TooManyOrigins);
        self.check(parsed)
    }

    /// Reads allowed networks, one per line.
    pub(crate) fn parse_networks(&mut self) -> Vec<AllowedNetwork> {
        let parsed =
            parse_lines(&self.value, AllowedNetwork::parse, NETWORKS_MAX, InvalidRestrictions::TooManyNetworks);
        self.check(parsed)
    }

    /// Reads an expiry in the future, or the one that is saved, which may have passed.
    fn parse_expiry(&mut self, now_s: u64, saved_s: Option<u64>) -> Option<u64> {
        if saved_s.is_some_and(|saved_s| time::format_date_time_input(saved_s) == self.value.trim()) {
            return saved_s;
        }
        let parsed = parse_optional(&self.value, |text| {
            let expires = text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?;
            Some(u64::try_from(expires.timestamp().as_second()).unwrap_or(0))
        });
        let parsed = match parsed {
            Err(()) => Err("Enter a date and a time in UTC"),
            // The clock of this machine decides only what the form accepts. Redis decides when the key expires.
            Ok(Some(expires_at_s)) if expires_at_s <= now_s => {
                Err("This time has passed. Enter a later one, or deactivate the key")
            }
            Ok(expires_at_s) => Ok(expires_at_s),
        };
        self.check(parsed.map_err(field_error))
    }

    fn parse_number<T: FromStr + PartialOrd + From<u8>>(&mut self, max: T, reason: &str) -> Option<T> {
        let is_valid = |number: &T| *number >= T::from(1) && *number <= max;
        let parsed = parse_optional(&self.value, |text| text.parse().ok().filter(is_valid));
        self.check(parsed.map_err(|()| field_error(reason)))
    }
}

impl RestrictionFields {
    /// The fields as they were entered.
    pub(crate) fn entered(form: &CsrfForm) -> Self {
        Self {
            origins: RestrictionField::entered(form, "origins"),
            networks: RestrictionField::entered(form, "networks"),
            expires: RestrictionField::entered(form, "expires"),
            caller_limit: RestrictionField::entered(form, "caller_limit"),
            daily_limit: RestrictionField::entered(form, "daily_limit"),
            tickets_only: RestrictionField::entered(form, "tickets_only"),
        }
    }

    /// Reads the restrictions. Returns `None` if a field is invalid, and records why.
    pub(crate) fn parse(&mut self, now_s: u64, saved_expiry_s: Option<u64>) -> Option<Restrictions> {
        let restrictions = Restrictions {
            origins: self.origins.parse_origins(),
            networks: self.networks.parse_networks(),
            expires_at_s: self.expires.parse_expiry(now_s, saved_expiry_s),
            caller_limit: self
                .caller_limit
                .parse_number(CALLER_LIMIT_MAX, &format!("Enter a number from 1 to {CALLER_LIMIT_MAX}")),
            daily_limit: self.daily_limit.parse_number(i64::MAX.unsigned_abs(), "Enter a number of at least 1"),
            tickets_only: !self.tickets_only.value.is_empty(),
            tickets_since: 0,
        };
        if restrictions.validate() == Err(InvalidRestrictions::TicketsWithOrigins) {
            self.tickets_only.errors = field_error(
                "A key with allowed origins cannot create tickets. Remove the origins here, and set one when you create a ticket",
            );
        }
        let fields =
            [&self.origins, &self.networks, &self.expires, &self.caller_limit, &self.daily_limit, &self.tickets_only];
        fields.iter().all(|field| field.errors.is_empty()).then_some(restrictions)
    }

    /// The saved restrictions, with what the member may not expect of them.
    pub(crate) fn saved(restrictions: &Restrictions, context: &RestrictionContext) -> Self {
        let Restrictions { origins, networks, expires_at_s, caller_limit, daily_limit, tickets_only, .. } =
            restrictions;
        let mut fields = Self {
            origins: RestrictionField::new(join_lines(origins.iter().map(AllowedOrigin::as_str))),
            networks: RestrictionField::new(join_lines(networks)),
            expires: RestrictionField::new(expires_at_s.map(time::format_date_time_input).unwrap_or_default()),
            caller_limit: RestrictionField::new(number_text(*caller_limit)),
            daily_limit: RestrictionField::new(number_text(*daily_limit)),
            tickets_only: RestrictionField::new(if *tickets_only { "on" } else { "" }.to_owned()),
        };
        for warning in restrictions.warnings(context) {
            let field = match warning {
                RestrictionWarning::NoNetworkOf(_) => &mut fields.networks,
                RestrictionWarning::Expired => &mut fields.expires,
                RestrictionWarning::CallerCanPause { .. } => &mut fields.caller_limit,
                RestrictionWarning::DailyLimitWithoutEffect => &mut fields.daily_limit,
            };
            field.warning = Some(warning.to_string());
        }
        fields
    }
}

/// Parses one entry per line. Entries that are equal once they are normalized count once.
fn parse_lines<T: PartialEq, E: Display>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    lines_max: usize,
    too_many: InvalidRestrictions,
) -> Result<Vec<T>, Vec<FieldError>> {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // Checked first, so that a long list of invalid lines is not shown again with a reason for each.
    if lines.len() > lines_max {
        return Err(field_error(&too_many.to_string()));
    }
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for line in lines {
        match parse(line) {
            Ok(entry) if entries.contains(&entry) => {}
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(FieldError { line: Some(line.to_owned()), reason: error.to_string() }),
        }
    }
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

/// Parses a field that may be empty.
fn parse_optional<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, ()> {
    let text = text.trim();
    if text.is_empty() { Ok(None) } else { parse(text).map(Some).ok_or(()) }
}

/// An error of the whole field.
pub(crate) fn field_error(reason: &str) -> Vec<FieldError> {
    vec![FieldError { line: None, reason: reason.to_owned() }]
}

fn join_lines(entries: impl IntoIterator<Item = impl Display>) -> String {
    entries.into_iter().map(|entry| entry.to_string()).collect::<Vec<_>>().join("\n")
}

fn number_text(number: Option<impl Display>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_794_700_000;
    const CONTEXT: RestrictionContext =
        RestrictionContext { daily_limit: 10_000, burst_limit: 300, nodes: 1, now_s: NOW_S };

    fn field(value: &str) -> RestrictionField {
        RestrictionField::new(value.to_owned())
    }

    #[test]
    fn saved_restrictions_are_normalized_and_parsed_again() {
        let mut entered = RestrictionFields {
            origins: field(" HTTPS://Example.com \r\n\r\nhttps://example.com:443\r\nhttps://*.example.org"),
            networks: field("198.51.100.7\n2001:DB8::/32"),
            expires: field("2026-11-15T00:00"),
            caller_limit: field(" 30 "),
            daily_limit: field("500"),
            tickets_only: field(""),
        };
        let restrictions = entered.parse(NOW_S, None).expect("input is valid");
        let mut saved = RestrictionFields::saved(&restrictions, &CONTEXT);
        assert_eq!(saved.origins.value, "https://example.com\nhttps://*.example.org");
        assert_eq!(saved.networks.value, "198.51.100.7/32\n2001:db8::/32");
        assert_eq!(saved.expires.value, "2026-11-15T00:00");
        assert_eq!((saved.caller_limit.value.as_str(), saved.daily_limit.value.as_str()), ("30", "500"));
        assert_eq!(saved.parse(NOW_S, None), Some(restrictions));
    }

    #[test]
    fn empty_fields_restrict_nothing() {
        let mut fields = RestrictionFields { origins: field(" \r\n "), ..RestrictionFields::default() };
        assert_eq!(fields.parse(NOW_S, None), Some(Restrictions::default()));
        assert_eq!(RestrictionFields::saved(&Restrictions::default(), &CONTEXT), RestrictionFields::default());
    }

    #[test]
    fn key_with_origins_cannot_accept_only_tickets() {
        let mut fields = RestrictionFields { tickets_only: field("on"), ..RestrictionFields::default() };
        let restrictions = fields.parse(NOW_S, None).expect("input is valid");
        assert!(restrictions.tickets_only);
        assert_eq!(RestrictionFields::saved(&restrictions, &CONTEXT).tickets_only.value, "on");
        fields.origins = field("https://example.com");
        assert_eq!((fields.parse(NOW_S, None), fields.tickets_only.errors.len()), (None, 1));
    }

    #[test]
    fn each_invalid_line_gets_its_reason() {
        let mut origins = field("https://example.com\nexample.org\nhttps://*.github.io");
        assert_eq!(origins.parse_origins(), []);
        let lines: Vec<_> = origins.errors.iter().filter_map(|error| error.line.as_deref()).collect();
        assert_eq!(lines, ["example.org", "https://*.github.io"]);
        assert!(origins.errors[1].reason.starts_with("allows web sites of different owners"));
    }

    #[test]
    fn too_many_lines_are_one_error() {
        for (lines, errors) in [(50, 50), (51, 1)] {
            let mut networks = field(&"x\n".repeat(lines));
            networks.parse_networks();
            assert_eq!(networks.errors.len(), errors, "{lines} lines");
        }
    }

    #[test]
    fn past_or_unreadable_expiry_is_rejected() {
        for (text, expires_at_s) in
            [("2026-11-14T23:46:41", Some(NOW_S + 1)), ("2026-11-15T00:00", Some(1_794_700_800)), ("", None)]
        {
            let mut expires = field(text);
            assert_eq!((expires.parse_expiry(NOW_S, None), expires.errors.len()), (expires_at_s, 0), "{text}");
        }
        for text in ["2026-11-14T23:46:40", "1960-01-01T00:00", "tomorrow", "2026-02-30T00:00", "2026-11-15T00:00Z"] {
            let mut expires = field(text);
            assert_eq!((expires.parse_expiry(NOW_S, None), expires.errors.len()), (None, 1), "{text}");
        }
    }

    #[test]
    fn numbers_outside_their_range_are_rejected() {
        for (text, number) in
            [("1", Some(1)), ("300", Some(300)), ("0", None), ("301", None), ("-1", None), ("1.5", None)]
        {
            let mut limit = field(text);
            assert_eq!(limit.parse_number(CALLER_LIMIT_MAX, "reason"), number, "{text}");
            assert_eq!(limit.errors.is_empty(), number.is_some(), "{text}");
        }
    }

    #[test]
    fn surprising_values_get_a_warning_at_their_field() {
        let mut entered = RestrictionFields {
            origins: RestrictionField::default(),
            networks: field("192.0.2.0/24"),
            expires: field("2020-01-01T00:00"),
            caller_limit: field("150"),
            daily_limit: field("10001"),
            tickets_only: field(""),
        };
        let restrictions = entered.parse(0, None).expect("input is valid");
        let RestrictionFields { networks, expires, caller_limit, daily_limit, .. } =
            RestrictionFields::saved(&restrictions, &CONTEXT);
        let warnings = [networks, expires, caller_limit, daily_limit].map(|field| field.warning.unwrap_or_default());
        for (warning, part) in warnings.iter().zip(["over IPv6", "has expired", "Set at most 37", "no effect"]) {
            assert!(warning.contains(part), "{warning}");
        }
    }
}
