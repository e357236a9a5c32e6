//! Faults of links.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use ipseity_testkit::{FaultConfig, FaultProxy};
use tokio::time::sleep;

use crate::fault_kind::FaultKind;
use crate::history::FaultEffect;
use crate::inject::{ActiveFault, BOTH_UNREACHABLE, Injection};
use crate::links::{LinkFault, LinkScope, LinkTarget};

/// The node whose links have a fault that only one node has.
const FAULTY_NODE: usize = 0;

impl Injection<'_> {
    pub(super) fn begin_links(&mut self, active: &mut ActiveFault) {
        for fault in self.link_faults(active.kind) {
            let effect = match fault.target {
                LinkTarget::Postgres => FaultEffect::PostgresUnreachable,
                LinkTarget::Redis | LinkTarget::Home => FaultEffect::RedisUnreachable,
            };
            // A delay below the timeout is no outage.
            if active.kind != FaultKind::RedisLinkSlow {
                match fault.scope {
                    LinkScope::Node(node) => self.open_for_node(active, effect, node),
                    LinkScope::CommandLine => {}
                    LinkScope::Nodes | LinkScope::All | LinkScope::Shard(_) => self.open(active, effect),
                    LinkScope::Sites => self.open_for_sites(active, &BOTH_UNREACHABLE),
                }
            }
            active.links.push(self.fixture.add_link_fault(fault));
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other kinds do nothing in between")]
    pub(super) async fn tick_links(&mut self, active: &mut ActiveFault) {
        match active.kind {
            FaultKind::RedisLinkReset => {
                let proxies = self.fixture.link_proxies();
                proxies.nodes.iter().for_each(|node| node.redis.reset_connections());
            }
            FaultKind::SiteLinkReset => {
                self.fixture.link_proxies().sites.iter().for_each(FaultProxy::reset_connections);
            }
            FaultKind::RedisLinkFlapping => {
                active.links.drain(..).for_each(|link| self.fixture.remove_link_fault(link));
                sleep(self.random_ms(20..400)).await;
                for fault in self.link_faults(active.kind) {
                    active.links.push(self.fixture.add_link_fault(fault));
                }
                sleep(self.random_ms(20..200)).await;
            }
            _ => {}
        }
    }

    pub(super) fn end_links(&mut self, active: &mut ActiveFault) {
        active.links.drain(..).for_each(|link| self.fixture.remove_link_fault(link));
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds do not change links")]
    fn link_faults(&mut self, kind: FaultKind) -> Vec<LinkFault> {
        use LinkTarget::{Home, Postgres, Redis};
        let none = FaultConfig { seed: self.rng.u64(..), ..FaultConfig::none() };
        let ms = Duration::from_millis;
        let cut = FaultConfig { cut: true, ..none };
        let half_open = FaultConfig { half_open: true, ..none };
        let dropped = FaultConfig { reply_drop_rate: 0.2, ..none };
        // Half of the runs cut the command line off too.
        let nodes = if self.rng.bool() { LinkScope::All } else { LinkScope::Nodes };
        let one = LinkScope::Node(FAULTY_NODE);
        let sites = LinkScope::Sites;
        let faults: &[(LinkTarget, LinkScope, FaultConfig)] = match kind {
            FaultKind::RedisLinkCut | FaultKind::RedisLinkFlapping => &[(Redis, nodes, cut)],
            FaultKind::RedisLinkOfOneNodeCut => &[(Redis, one, cut)],
            FaultKind::RedisLinkOfCommandsCut => &[(Redis, LinkScope::CommandLine, cut)],
            FaultKind::RedisLinkHalfOpen => &[(Redis, nodes, half_open)],
            FaultKind::RedisLinkOfOneNodeHalfOpen => &[(Redis, one, half_open)],
            FaultKind::RedisRepliesDropped => &[(Redis, LinkScope::Nodes, dropped)],
            FaultKind::RedisRequestsHeld => {
                &[(Redis, LinkScope::Nodes, FaultConfig { hold_requests_before: Some(Instant::now()), ..none })]
            }
            FaultKind::RedisLinkReset => &[(Redis, LinkScope::Nodes, none)],
            FaultKind::RedisLinkSlow => &[(Redis, nodes, FaultConfig { delay: ms(5), jitter: ms(8), ..none })],
            FaultKind::RedisLinkTooSlow => &[(Redis, nodes, FaultConfig { delay: ms(40), jitter: ms(20), ..none })],
            FaultKind::RedisLinkThrottled => {
                &[(Redis, nodes, FaultConfig { bytes_per_second: NonZeroU32::new(8_000), ..none })]
            }
            FaultKind::PostgresLinkCut => &[(Postgres, nodes, cut)],
            FaultKind::PostgresLinkOfOneNodeCut => &[(Postgres, one, cut)],
            FaultKind::PostgresLinkHalfOpen => &[(Postgres, nodes, half_open)],
            FaultKind::PostgresRepliesDropped => &[(Postgres, LinkScope::Nodes, dropped)],
            FaultKind::PostgresLinkTooSlow => &[(Postgres, nodes, FaultConfig { delay: ms(600), ..none })],
            FaultKind::BothLinksCut => &[(Redis, nodes, cut), (Postgres, nodes, cut)],
            FaultKind::NodeIsolated => &[(Redis, one, cut), (Postgres, one, cut)],
            FaultKind::SiteLinkCut => &[(Home, sites, cut)],
            FaultKind::SiteLinkHalfOpen => &[(Home, sites, half_open)],
            FaultKind::SiteLinkReset => &[(Home, sites, none)],
            FaultKind::SiteLinkSlow => &[(Home, sites, FaultConfig { delay: ms(3_000), ..none })],
            FaultKind::SiteRepliesDropped => &[(Home, sites, dropped)],
            FaultKind::SiteRepliesHeld => &[(Home, sites, FaultConfig { hold_replies: true, ..none })],
            FaultKind::SiteRequestsHeld => {
                &[(Home, sites, FaultConfig { hold_requests_before: Some(Instant::now()), ..none })]
            }
            _ => &[],
        };
        faults.iter().map(|&(target, scope, config)| LinkFault { target, scope, config }).collect()
    }
}
