//! What a new key is for. Each answer sets restrictions that suit it.

use ipseity_domain::restrictions::warning::safe_caller_limit;
use ipseity_domain::{DAY_S, Restrictions};

use crate::auth::csrf_form::CsrfForm;
use crate::keys::restriction_form::field_error;
use crate::view::keys::PresetFields;
use crate::view::restrictions::RestrictionField;

/// Requests per minute of one visitor of a page. With many nodes it is lower, so that one visitor cannot pause the key.
const WEB_PAGE_CALLER_LIMIT: u32 = 30;
const TRIAL_DAYS: u64 = 7;
const TRIAL_DAILY_LIMIT: u64 = 1_000;

/// Requests per minute of one visitor, for a key with this burst limit that is used at so many nodes.
pub(crate) fn web_page_caller_limit(burst_limit: usize, nodes: u32) -> u32 {
    safe_caller_limit(burst_limit, nodes).clamp(1, WEB_PAGE_CALLER_LIMIT)
}

/// What a new key is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeyPreset {
    /// Anything: no restrictions.
    #[default]
    Unrestricted,
    /// Pages of the member.
    WebPage,
    /// Servers of the member.
    Server,
    /// A first try.
    Trial,
}

impl KeyPreset {
    const ALL: [Self; 4] = [Self::Unrestricted, Self::WebPage, Self::Server, Self::Trial];

    /// The value in the form.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unrestricted => "unrestricted",
            Self::WebPage => "web",
            Self::Server => "server",
            Self::Trial => "trial",
        }
    }

    /// Parses the value of a form. A form without one restricts nothing.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name.is_empty() { Some(Self::default()) } else { Self::ALL.into_iter().find(|preset| preset.name() == name) }
    }

    /// The restrictions of the new key, with the origins or networks that the preset asks for. Returns `None` if they are
    /// invalid, and records why.
    pub(crate) fn restrictions(self, fields: &mut PresetFields, now_s: u64) -> Option<Restrictions> {
        let PresetFields { origins, networks, caller_limit, .. } = fields;
        let restrictions = match self {
            Self::Unrestricted => Restrictions::default(),
            Self::WebPage => {
                let allowed = origins.parse_origins();
                if allowed.is_empty() && origins.errors.is_empty() {
                    origins.errors = field_error("Enter the origin of your page");
                }
                Restrictions { origins: allowed, caller_limit: Some(*caller_limit), ..Restrictions::default() }
            }
            Self::Server => Restrictions { networks: networks.parse_networks(), ..Restrictions::default() },
            Self::Trial => Restrictions {
                expires_at_s: Some(now_s + TRIAL_DAYS * DAY_S),
                daily_limit: Some(TRIAL_DAILY_LIMIT),
                ..Restrictions::default()
            },
        };
        (origins.errors.is_empty() && networks.errors.is_empty()).then_some(restrictions)
    }
}

impl PresetFields {
    /// The fields of a new form.
    pub(crate) fn new(caller_limit: u32) -> Self {
        Self {
            selected: KeyPreset::default().name(),
            origins: RestrictionField::default(),
            networks: RestrictionField::default(),
            caller_limit,
        }
    }

    /// The fields of a form that was sent, and its preset if it is known.
    pub(crate) fn entered(form: &CsrfForm, caller_limit: u32) -> (Self, Option<KeyPreset>) {
        let preset = KeyPreset::parse(form.field("preset"));
        let fields = Self {
            selected: preset.unwrap_or_default().name(),
            origins: RestrictionField::entered(form, "origins"),
            networks: RestrictionField::entered(form, "networks"),
            caller_limit,
        };
        (fields, preset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restrictions(preset: KeyPreset, origins: &str, networks: &str) -> Option<Restrictions> {
        let field = |value: &str| RestrictionField { value: value.to_owned(), ..RestrictionField::default() };
        let mut fields = PresetFields { origins: field(origins), networks: field(networks), ..PresetFields::new(30) };
        preset.restrictions(&mut fields, 1_000)
    }

    #[test]
    fn preset_sets_only_its_restrictions() {
        let [unrestricted, web, server, trial] = KeyPreset::ALL
            .map(|preset| restrictions(preset, "https://Example.com", "192.0.2.0/24").expect("input is valid"));
        assert_eq!(unrestricted, Restrictions::default());
        assert_eq!((web.origins.len(), web.caller_limit, web.networks.len(), web.daily_limit), (1, Some(30), 0, None));
        assert_eq!(server, Restrictions { networks: server.networks.clone(), ..Restrictions::default() });
        assert_eq!((server.networks.len(), trial.expires_at_s, trial.daily_limit), (1, Some(605_800), Some(1_000)));
    }

    #[test]
    fn only_the_fields_of_the_preset_are_checked() {
        for (preset, is_valid) in KeyPreset::ALL.into_iter().zip([true, false, false, true]) {
            assert_eq!(restrictions(preset, "example.com", "example.com").is_some(), is_valid, "{preset:?}");
        }
        assert_eq!(restrictions(KeyPreset::WebPage, "", ""), None, "a page needs an origin");
        assert_eq!(restrictions(KeyPreset::Server, "", ""), Some(Restrictions::default()));
    }

    #[test]
    fn limit_of_a_visitor_is_lower_with_many_nodes() {
        assert_eq!([1, 2, 3, 10, 1_000].map(|nodes| web_page_caller_limit(300, nodes)), [30, 18, 12, 3, 1]);
    }

    #[test]
    fn unknown_preset_is_rejected() {
        assert_eq!(KeyPreset::parse(""), Some(KeyPreset::Unrestricted));
        assert_eq!(KeyPreset::parse("unknown"), None);
        for preset in KeyPreset::ALL {
            assert_eq!(KeyPreset::parse(preset.name()), Some(preset));
        }
    }
}
