//! Everybody who is measured, and how.

use std::net::SocketAddr;

use testkit::Redis;

use crate::crowd::Crowd;
use crate::load::Load;
use crate::measure::{Accounts, Subject};
use crate::server::Server;
use crate::stage::Stage;

pub(crate) const STATIC: &str = "static";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const ENGINE: &str = "engine";
pub(crate) const IP: &str = "ip";
pub(crate) const GEO: &str = "geo";
pub(crate) const FULL: &str = "full";
pub(crate) const DEMO: &str = "demo";
pub(crate) const MISSING: &str = "no key";
pub(crate) const MALFORMED: &str = "malformed key";
pub(crate) const UNKNOWN: &str = "unknown key";
pub(crate) const FLOODED: &str = "paused key, flooded";
pub(crate) const PAUSED: &str = "paused keys, spread";
pub(crate) const STATIC_TLS: &str = "static, TLS, HTTP/1.1";
pub(crate) const FULL_TLS: &str = "full, TLS, HTTP/1.1";
pub(crate) const STATIC_H2: &str = "static, TLS, HTTP/2";
pub(crate) const FULL_H2: &str = "full, TLS, HTTP/2";
pub(crate) const STATIC_H3: &str = "static, HTTP/3";
pub(crate) const FULL_H3: &str = "full, HTTP/3";
pub(crate) const FLOOR_HALF: &str = "floor, at half of the capacity";
pub(crate) const FULL_HALF: &str = "full, at half of the capacity";

/// How the service calls a lookup.
pub(crate) const ADMITTED: (&str, &str) = ("lookup", "success");

impl Stage {
    /// Of the node, which answers in one way.
    pub(crate) fn node_accounts(&self, outcome: (&'static str, &'static str)) -> Accounts {
        Accounts::of_nodes(&self.house, outcome)
    }

    pub(crate) fn floor_accounts(&self) -> Accounts {
        Accounts { servers: vec![self.floor.pid()], redis: self.floor_redis.pid().into_iter().collect(), outcome: None }
    }

    fn wrk(&self, scheme: &str, address: SocketAddr, crowd: &Crowd) -> Load {
        Load::Wrk { url: format!("{scheme}://{address}"), connections: self.connections, crowd: crowd.clone() }
    }

    /// The bare server, over clear HTTP/1.1.
    pub(crate) fn plain(&self) -> Subject {
        let load = self.wrk("http", self.plain.http(), &self.crowds.full);
        Subject { name: STATIC, load, accounts: alone(&self.plain) }
    }

    /// The bare server with a charge, over clear HTTP/1.1.
    pub(crate) fn floor(&self) -> Subject {
        let load = self.wrk("http", self.floor.http(), &self.crowds.full);
        Subject { name: FLOOR, load, accounts: self.floor_accounts() }
    }

    /// The service, over clear HTTP/1.1.
    pub(crate) fn clear(&self, name: &'static str, crowd: &Crowd, outcome: &'static str) -> Subject {
        let load = self.wrk("http", self.house.nodes[0].http(), crowd);
        Subject { name, load, accounts: self.node_accounts((ADMITTED.0, outcome)) }
    }

    /// Those that every comparison has: the bare servers, an answer and a refusal.
    pub(crate) fn basic(&self) -> [Subject; 4] {
        let answered = self.clear(FULL, &self.crowds.full, "success");
        let refused = self.clear(MISSING, &self.crowds.missing, "missing_api_key");
        [self.plain(), self.floor(), answered, refused]
    }

    /// All of them, in the order of the table; each after the one that it is compared with.
    pub(crate) fn subjects(&self, nginx: &Server, engine: &Redis) -> Vec<Subject> {
        let crowds = &self.crowds;
        let crowd = || crowds.full.clone();
        let authority = || self.house.certificate.authority.clone();
        let (plain, node) = (self.plain.https(), self.house.nodes[0].https());
        let bare = |name, load| Subject { name, load, accounts: alone(&self.plain) };
        let full = |name, load| Subject { name, load, accounts: self.node_accounts(ADMITTED) };
        let tls = |address| self.wrk("https", address, &crowds.full);
        let h2 = |address| Load::H2load { address, crowd: crowd() };
        let h3 = |address| Load::H3load { address, authority: authority(), crowd: crowd() };
        let rendered = self.wrk("http", nginx.http(), &crowds.full);
        let script = Load::Engine { address: engine.address() };
        vec![
            self.plain(),
            self.floor(),
            Subject { name: NGINX, load: rendered, accounts: alone(nginx) },
            Subject {
                name: ENGINE,
                load: script,
                accounts: Accounts { servers: Vec::new(), redis: engine.pid().into_iter().collect(), outcome: None },
            },
            self.clear(IP, &crowds.ip, "success"),
            self.clear(GEO, &crowds.geo, "success"),
            self.clear(FULL, &crowds.full, "success"),
            self.clear(MISSING, &crowds.missing, "missing_api_key"),
            self.clear(MALFORMED, &crowds.malformed, "invalid_api_key"),
            self.clear(UNKNOWN, &crowds.unknown, "invalid_api_key"),
            self.clear(FLOODED, &crowds.flooded, "paused"),
            self.clear(PAUSED, &crowds.paused, "paused"),
            bare(STATIC_TLS, tls(plain)),
            full(FULL_TLS, tls(node)),
            bare(STATIC_H2, h2(plain)),
            full(FULL_H2, h2(node)),
            bare(STATIC_H3, h3(plain)),
            full(FULL_H3, h3(node)),
        ]
    }
}

fn alone(server: &Server) -> Accounts {
    Accounts { servers: vec![server.pid()], redis: Vec::new(), outcome: None }
}
