//! Builds what uses sealed tokens from the configuration: pairing and tickets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ipseity_api::{Pairing, SealingKeys, TicketLimits, Tickets, TokenSealer};

use crate::config::PublicConfig;
use crate::config::public_urls::public_urls;
use crate::node::pairing::open_pairing;

/// What uses sealed tokens, and the sealer, whose keys a task reloads.
#[derive(Clone)]
pub(crate) struct SealedTokens {
    pub(crate) sealer: Arc<TokenSealer>,
    pub(crate) pairing: Option<Arc<Pairing>>,
    pub(crate) tickets: Option<Arc<Tickets>>,
}

/// Validates the settings. There are tickets only with a key file: the visitor's node is often not the one that created the
/// ticket, and a restart must not invalidate it.
pub(crate) fn open_sealed_tokens(public: &PublicConfig) -> Result<SealedTokens> {
    let file = &public.sealing_key_file;
    let has_file = !file.as_os_str().is_empty();
    let shared_keys = has_file.then(|| parse_sealing_keys(&read_key_file(file)?, file)).transpose()?;
    let sealer = Arc::new(TokenSealer::new(public_urls(public).base, shared_keys));
    let limits = TicketLimits {
        per_key_per_min_max: public.tickets_per_key_per_min_max,
        body_timeout: Duration::from_millis(public.ticket_body_timeout_ms),
        counters_max: public.ticket_counters_max,
    };
    Ok(SealedTokens {
        pairing: open_pairing(public, &sealer)?.map(Arc::new),
        tickets: has_file.then(|| Arc::new(Tickets::new(Arc::clone(&sealer), limits))),
        sealer,
    })
}

/// Reads the file with the keys.
pub(crate) fn read_key_file(file: &Path) -> Result<String> {
    std::fs::read_to_string(file)
        .with_context(|| format!("failed to read {}, the [public] sealing_key_file", file.display()))
}

/// Parses the text of the file. No error contains a part of it.
pub(crate) fn parse_sealing_keys(text: &str, file: &Path) -> Result<SealingKeys> {
    SealingKeys::parse(text).with_context(|| format!("invalid [public] sealing_key_file {}", file.display()))
}
