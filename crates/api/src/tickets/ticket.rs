//! The content of a ticket, and its text.

use aws_lc_rs::rand;
use ipseity_domain::{ApiKey, Credential, KeyDigest, KeyId, RequestOrigin, Scope, TICKET_PREFIX};

use crate::sealed::{Purpose, TokenSealer};

const PURPOSE: Purpose = Purpose("ticket");

/// Distinguishes tickets, to count their uses.
pub(super) type TicketId = [u8; 16];

/// A ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) id: TicketId,
    /// The key that created it. The digest is that of the secret at that time.
    pub(crate) key: ApiKey,
    /// The version of the key's restrictions at that time.
    pub(crate) restriction_version: u64,
    pub(crate) scope: Scope,
    /// When it expires, by the clock of the key's owner.
    pub(crate) expires_at_s: u64,
    /// Maximum number of uses at each node.
    pub(crate) uses_max: u8,
    /// The origin whose pages may use it. `None` for any client.
    pub(crate) origin: Option<String>,
}

impl Ticket {
    /// A random id.
    pub(super) fn new_id() -> Option<TicketId> {
        let mut id = TicketId::default();
        rand::fill(&mut id).ok()?;
        Some(id)
    }

    /// The text of the ticket.
    pub(super) fn seal(&self, sealer: &TokenSealer, now_s: u64) -> Option<String> {
        let scope = Scope::ALL.iter().position(|scope| *scope == self.scope)?;
        let content = [
            &self.id[..],
            self.key.id.as_bytes(),
            self.key.digest.as_bytes(),
            &self.restriction_version.to_be_bytes(),
            &self.expires_at_s.to_be_bytes(),
            &[u8::try_from(scope).ok()?, self.uses_max],
            self.origin.as_deref().unwrap_or_default().as_bytes(),
        ];
        let sealed = sealer.seal(PURPOSE, b"", &content.concat(), now_s).ok()?;
        Some(format!("{TICKET_PREFIX}{sealed}"))
    }

    /// Reads a text that [`seal`](Self::seal) has returned, here or on another node.
    pub(super) fn open(sealer: &TokenSealer, text: &str, now_s: u64) -> Option<Self> {
        let content = sealer.open(PURPOSE, b"", text.strip_prefix(TICKET_PREFIX)?.as_bytes(), now_s)?;
        let (id, rest) = content.split_first_chunk()?;
        let (key_id, rest) = rest.split_first_chunk::<{ KeyId::CHARS }>()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (restriction_version, rest) = rest.split_first_chunk()?;
        let (expires_at_s, rest) = rest.split_first_chunk()?;
        let ([scope, uses_max], origin) = rest.split_first_chunk()?;
        let origin = String::from_utf8(origin.to_vec()).ok()?;
        Some(Self {
            id: *id,
            key: ApiKey { id: KeyId::parse(str::from_utf8(key_id).ok()?)?, digest: KeyDigest::new(*digest) },
            restriction_version: u64::from_be_bytes(*restriction_version),
            scope: *Scope::ALL.get(usize::from(*scope))?,
            expires_at_s: u64::from_be_bytes(*expires_at_s),
            uses_max: *uses_max,
            origin: (!origin.is_empty()).then_some(origin),
        })
    }

    /// What requests for the status are counted as. Visitors must not use up those of the key.
    pub(crate) fn status_counter(&self) -> KeyDigest {
        let mut counter = [0; 32];
        counter[..self.id.len()].copy_from_slice(&self.id);
        KeyDigest::new(counter)
    }

    /// What the restrictions of the key check.
    pub(crate) const fn credential(&self) -> Credential {
        Credential::Ticket { version: self.restriction_version }
    }

    /// Whether a page of this origin may use it.
    pub(crate) fn allows(&self, origin: RequestOrigin<'_>) -> bool {
        let is_same = |allowed: &String| origin == RequestOrigin::Value(allowed.as_bytes());
        self.origin.as_ref().is_none_or(is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::SealingKeys;
    use crate::sealed::forgeries::forgeries_of;

    const NOW_S: u64 = 1_800_000_000;

    fn sealer() -> TokenSealer {
        let keys = SealingKeys::parse(&format!("seal {}", "7".repeat(64))).expect("valid keys");
        TokenSealer::new("https://ip.example.com".to_owned(), Some(keys))
    }

    fn ticket(origin: Option<&str>) -> Ticket {
        Ticket {
            id: Ticket::new_id().expect("random bytes"),
            key: ApiKey { id: KeyId::parse("0123456789").expect("valid id"), digest: KeyDigest::new([9; 32]) },
            restriction_version: 1_800_000_000_123,
            scope: Scope::Geo,
            expires_at_s: NOW_S + 300,
            uses_max: 5,
            origin: origin.map(str::to_owned),
        }
    }

    #[test]
    fn sealed_ticket_opens_on_another_node() {
        for origin in [None, Some("https://shop.example"), Some("https://a.very.long.name.of.a.shop.example:8443")] {
            let ticket = ticket(origin);
            let text = ticket.seal(&sealer(), NOW_S).expect("ticket is sealed");
            assert!(text.starts_with(TICKET_PREFIX) && text.len() < 256, "{text}");
            assert!(!text.contains("shop") && !text.contains("0123456789"), "{text}");
            assert_eq!(Ticket::open(&sealer(), &text, NOW_S + 900), Some(ticket));
        }
    }

    #[test]
    fn only_a_ticket_opens_as_a_ticket() {
        let (sealer, text) = (sealer(), ticket(None).seal(&sealer(), NOW_S).expect("ticket is sealed"));
        let pair_token = sealer.seal(Purpose("pair"), b"", &[0; 100], NOW_S).expect("token is sealed");
        for other in ["", "ipt_", &text[4..], &format!("ips_{}", &text[4..]), &format!("{TICKET_PREFIX}{pair_token}")] {
            assert_eq!(Ticket::open(&sealer, other, NOW_S), None, "{other}");
        }
        for length in [0, 16, 75, 76] {
            let short = sealer.seal(PURPOSE, b"", &vec![b'0'; length], NOW_S).expect("token is sealed");
            assert_eq!(Ticket::open(&sealer, &format!("{TICKET_PREFIX}{short}"), NOW_S), None, "{length}");
        }
        assert!(sealer.open(Purpose("pair"), b"", &text.as_bytes()[4..], NOW_S).is_none());
    }

    #[test]
    fn forged_and_changed_tickets_never_open() {
        let (sealer, text) = (sealer(), ticket(None).seal(&sealer(), NOW_S).expect("ticket is sealed"));
        for forged in forgeries_of(&text[TICKET_PREFIX.len()..]) {
            assert_eq!(Ticket::open(&sealer, &format!("{TICKET_PREFIX}{forged}"), NOW_S), None, "{forged}");
        }
    }

    #[test]
    fn ticket_of_an_origin_is_for_its_pages_only() {
        let any = [RequestOrigin::Missing, RequestOrigin::Value(b"null"), RequestOrigin::Value(b"https://b.example")];
        assert!(any.iter().all(|origin| ticket(None).allows(*origin)));
        assert!(!any.iter().any(|origin| ticket(Some("https://a.example")).allows(*origin)));
        assert!(ticket(Some("https://a.example")).allows(RequestOrigin::Value(b"https://a.example")));
    }
}
