//! What a request for a ticket asks for.

use ipseity_domain::Scope;
use ipseity_domain::restrictions::origin::AllowedOrigin;
use serde_json::{Map, Value};

use crate::error::Refusal;
use crate::tickets::bounds::{LIFETIME_S_DEFAULT, LIFETIME_S_MAX, LIFETIME_S_MIN, USES_DEFAULT, USES_MAX};

/// The options of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TicketOptions {
    pub(crate) origin: Option<String>,
    pub(crate) scope: Option<Scope>,
    pub(crate) lifetime_s: u64,
    pub(crate) uses: u8,
}

impl TicketOptions {
    /// Reads the body of a request: a JSON object, or nothing.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let mut options = Self { origin: None, scope: None, lifetime_s: LIFETIME_S_DEFAULT, uses: USES_DEFAULT };
        if body.trim_ascii().is_empty() {
            return Ok(options);
        }
        let members: Map<String, Value> =
            serde_json::from_slice(body).map_err(|_| Refusal::InvalidTicketOption("JSON"))?;
        for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
            match name.as_str() {
                "origin" => options.origin = Some(parse_origin(value).ok_or(Refusal::InvalidTicketOption("`origin`"))?),
                "scope" => {
                    let scope = value.as_str().and_then(Scope::parse);
                    options.scope = Some(scope.ok_or(Refusal::InvalidTicketOption("`scope`"))?);
                }
                "lifetime_s" => {
                    let lifetime_s = parse_integer(value).filter(|s| (LIFETIME_S_MIN..=LIFETIME_S_MAX).contains(s));
                    options.lifetime_s = lifetime_s.ok_or(Refusal::InvalidTicketOption("`lifetime_s`"))?;
                }
                "uses" => {
                    let uses = parse_integer(value).and_then(|uses| u8::try_from(uses).ok());
                    let uses = uses.filter(|uses| (1..=USES_MAX).contains(uses));
                    options.uses = uses.ok_or(Refusal::InvalidTicketOption("`uses`"))?;
                }
                _ => return Err(Refusal::InvalidTicketOption("JSON")),
            }
        }
        Ok(options)
    }
}

/// In JSON, `30.0` is an integer too.
fn parse_integer(value: &Value) -> Option<u64> {
    let is_integer = |number: &f64| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number);
    value.as_u64().or_else(|| value.as_f64().filter(is_integer).map(|number| number as u64))
}

/// A single origin, as browsers send it.
fn parse_origin(value: &Value) -> Option<String> {
    let origin = AllowedOrigin::parse(value.as_str()?).ok()?.as_str().to_owned();
    (!origin.contains('*')).then_some(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_sets_the_options() {
        let defaults = TicketOptions { origin: None, scope: None, lifetime_s: 300, uses: 5 };
        for body in ["", " \n", "{}", r#"{"origin": null, "lifetime_s": 300.0, "uses": 5.0}"#] {
            assert_eq!(TicketOptions::parse(body.as_bytes()), Ok(defaults.clone()), "{body}");
        }
        let body = r#"{"origin": "https://SHOP.example:443", "scope": "ip", "lifetime_s": 30, "uses": 100}"#;
        let origin = Some("https://shop.example".to_owned());
        let expected = TicketOptions { origin, scope: Some(Scope::Ip), lifetime_s: 30, uses: 100 };
        assert_eq!(TicketOptions::parse(body.as_bytes()), Ok(expected));
    }

    #[test]
    fn invalid_option_is_named() {
        for (body, option) in [
            ("[]", "JSON"),
            ("{", "JSON"),
            ("origin=https://a.example", "JSON"),
            (r#"{"life_time": 30}"#, "JSON"),
            (r#"{"origin": "https://*.shop.example"}"#, "`origin`"),
            (r#"{"origin": "shop.example"}"#, "`origin`"),
            (r#"{"origin": ""}"#, "`origin`"),
            (r#"{"scope": "all"}"#, "`scope`"),
            (r#"{"lifetime_s": 29}"#, "`lifetime_s`"),
            (r#"{"lifetime_s": 901}"#, "`lifetime_s`"),
            (r#"{"lifetime_s": "60"}"#, "`lifetime_s`"),
            (r#"{"uses": -1}"#, "`uses`"),
            (r#"{"uses": 1e300}"#, "`uses`"),
            (r#"{"uses": 0}"#, "`uses`"),
            (r#"{"uses": 101}"#, "`uses`"),
            (r#"{"uses": 257}"#, "`uses`"),
            (r#"{"uses": 1.5}"#, "`uses`"),
        ] {
            assert_eq!(TicketOptions::parse(body.as_bytes()), Err(Refusal::InvalidTicketOption(option)), "{body}");
        }
    }
}
