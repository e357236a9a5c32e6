//! The operations of the interface: what each is called, what it is for and how it may refuse. The router and the OpenAPI document are both made of this
//! list.

use ipseity_domain::{DEMO_DAILY_LIMIT, plan::FREE_DAILY_LIMIT};
use ipseity_ledger::{LedgerTime, Quota};

use crate::error::Refusal;

/// Moment of all examples: 2026-11-15, 14:03:22 UTC.
pub(crate) const EXAMPLE_NOW: LedgerTime = LedgerTime(1_794_751_402_000);

/// An operation, under GET and HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Lookup,
    Demo,
    Meta,
    OpenapiJson,
    OpenapiYaml,
}

impl Operation {
    pub(crate) const ALL: [Self; 5] = [Self::Lookup, Self::Demo, Self::Meta, Self::OpenapiJson, Self::OpenapiYaml];

    /// How metrics and logs call it.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Demo => "demo",
            Self::Meta => "meta",
            Self::OpenapiJson | Self::OpenapiYaml => "openapi",
        }
    }

    /// Its `operationId`, which clients are generated with: frozen.
    pub(crate) const fn operation_id(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Demo => "demo",
            Self::Meta => "meta",
            Self::OpenapiJson => "openapiJson",
            Self::OpenapiYaml => "openapiYaml",
        }
    }

    pub(crate) const fn summary(self) -> &'static str {
        match self {
            Self::Lookup => "Look yourself up",
            Self::Demo => "Try it without a key",
            Self::Meta => "Version and data in use",
            Self::OpenapiJson => "This document as JSON",
            Self::OpenapiYaml => "This document as YAML",
        }
    }

    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Lookup => {
                "The caller's own address, place, network and connection, as much of it as the key's scope allows. \
                 Charged to the key's day, and counted in its minute."
            }
            Self::Demo => {
                "A fixed set of fields: those of scope `geo` and four of the connection. All callers share one daily quota; \
                 it is for trying the API and not for production."
            }
            Self::Meta => {
                "The service's version, the geo databases in use with their build dates, and whom they are owed to. \
                 Uncharged; may be cached."
            }
            Self::OpenapiJson | Self::OpenapiYaml => "The interface as OpenAPI 3.1. Uncharged; may be cached.",
        }
    }

    /// Every way in which it may refuse, with an example of each.
    pub(crate) fn refusals(self) -> Vec<Refusal> {
        let exhausted = |limit| Quota { now: EXAMPLE_NOW, limit, day: EXAMPLE_NOW.day(), used: limit };
        let specific = match self {
            Self::Lookup => vec![
                Refusal::MissingKey,
                Refusal::InvalidKey,
                Refusal::Inactive,
                Refusal::Paused,
                Refusal::QuotaExhausted(exhausted(FREE_DAILY_LIMIT)),
                Refusal::BurstExceeded(EXAMPLE_NOW),
            ],
            Self::Demo => vec![Refusal::DemoExhausted(exhausted(DEMO_DAILY_LIMIT))],
            Self::Meta | Self::OpenapiJson | Self::OpenapiYaml => Vec::new(),
        };
        // Those that any address may give.
        specific.into_iter().chain([Refusal::UriTooLong, Refusal::Internal]).collect()
    }
}
