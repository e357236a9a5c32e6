//! All subjects and how they are measured.

use std::net::SocketAddr;

use crate::caller_pool::CallerPool;
use crate::comparison_server::{ComparisonServer, OtherServers};
use crate::fixture::BenchFixture;
use crate::load::BenchLoad;
use crate::measure::{MeasuredProcesses, Subject};

pub(crate) const STATIC: &str = "static";
pub(crate) const FLOOR: &str = "floor";
pub(crate) const NGINX: &str = "nginx";
pub(crate) const ALTERNATIVE: &str = "alternative";
pub(crate) const REDIS_ONLY: &str = "Redis script";
pub(crate) const IP: &str = "ip";
pub(crate) const GEO: &str = "geo";
pub(crate) const FULL: &str = "full";
pub(crate) const PAGE: &str = "full, from a page";
pub(crate) const RESTRICTED: &str = "full, from a page, restricted key";
pub(crate) const DEMO: &str = "demo";
pub(crate) const NO_KEY: &str = "no key";
pub(crate) const MALFORMED_KEY: &str = "malformed key";
pub(crate) const UNKNOWN_KEY: &str = "unknown key";
pub(crate) const PAUSED_KEY_FLOODED: &str = "paused key, flooded";
pub(crate) const PAUSED_KEYS_SPREAD: &str = "paused keys, spread";
pub(crate) const STATIC_TLS: &str = "static, TLS, HTTP/1.1";
pub(crate) const FULL_TLS: &str = "full, TLS, HTTP/1.1";
pub(crate) const STATIC_H2: &str = "static, TLS, HTTP/2";
pub(crate) const FULL_H2: &str = "full, TLS, HTTP/2";
pub(crate) const STATIC_H3: &str = "static, HTTP/3";
pub(crate) const FULL_H3: &str = "full, HTTP/3";
pub(crate) const FLOOR_HALF: &str = "floor, half capacity";
pub(crate) const FULL_HALF: &str = "full, half capacity";

/// Operation and outcome of a successful lookup.
pub(crate) const LOOKUP_SUCCESS: (&str, &str) = ("lookup", "success");

impl BenchFixture {
    /// Processes of the node, with one expected outcome.
    pub(crate) fn node_processes(&self, outcome: (&'static str, &'static str)) -> MeasuredProcesses {
        MeasuredProcesses::for_nodes(&self.deployment, outcome)
    }

    pub(crate) fn floor_processes(&self) -> MeasuredProcesses {
        MeasuredProcesses {
            servers: vec![self.floor_server.pid()],
            redis: self.floor_redis.pid().into_iter().collect(),
            expected_outcome: None,
        }
    }

    fn wrk_load(&self, scheme: &str, address: SocketAddr, pool: &CallerPool) -> BenchLoad {
        BenchLoad::Wrk { url: format!("{scheme}://{address}"), connections: self.connections, pool: pool.clone() }
    }

    /// The bare server over plain HTTP/1.1.
    pub(crate) fn static_subject(&self) -> Subject {
        let load = self.wrk_load("http", self.static_server.http(), &self.pools.full);
        Subject { name: STATIC, load, processes: server_only(&self.static_server) }
    }

    /// The bare server with a charge, over plain HTTP/1.1.
    pub(crate) fn floor_subject(&self) -> Subject {
        let load = self.wrk_load("http", self.floor_server.http(), &self.pools.full);
        Subject { name: FLOOR, load, processes: self.floor_processes() }
    }

    /// The service over plain HTTP/1.1.
    pub(crate) fn http1_subject(&self, name: &'static str, pool: &CallerPool, outcome: &'static str) -> Subject {
        let load = self.wrk_load("http", self.deployment.nodes[0].http(), pool);
        Subject { name, load, processes: self.node_processes((LOOKUP_SUCCESS.0, outcome)) }
    }

    /// The subjects of every comparison: both bare servers, a success and a rejection.
    pub(crate) fn basic_subjects(&self) -> [Subject; 4] {
        let full = self.http1_subject(FULL, &self.pools.full, "success");
        let refused = self.http1_subject(NO_KEY, &self.pools.no_key, "missing_api_key");
        [self.static_subject(), self.floor_subject(), full, refused]
    }

    /// All subjects in the order of the table, each after the one it is compared with.
    pub(crate) fn all_subjects(&self, others: &OtherServers) -> Vec<Subject> {
        let OtherServers { nginx, alternative, alternative_redis, script_redis } = others;
        let pools = &self.pools;
        let full_pool = || pools.full.clone();
        let authority = || self.deployment.certificate.ca_file.clone();
        let (plain, node) = (self.static_server.https(), self.deployment.nodes[0].https());
        let static_subject = |name, load| Subject { name, load, processes: server_only(&self.static_server) };
        let full_subject = |name, load| Subject { name, load, processes: self.node_processes(LOOKUP_SUCCESS) };
        let tls = |address| self.wrk_load("https", address, &pools.full);
        let h2 = |address| BenchLoad::H2load { address, pool: full_pool() };
        let h3 = |address| BenchLoad::H3load { address, ca_file: authority(), pool: full_pool() };
        let nginx_load = self.wrk_load("http", nginx.http(), &pools.full);
        let redis_load = BenchLoad::RedisBenchmark { address: script_redis.address() };
        vec![
            self.static_subject(),
            self.floor_subject(),
            Subject { name: NGINX, load: nginx_load, processes: server_only(nginx) },
            Subject {
                name: ALTERNATIVE,
                load: self.wrk_load("http", alternative.http(), &pools.full),
                processes: MeasuredProcesses {
                    servers: vec![alternative.pid()],
                    redis: alternative_redis.pid().into_iter().collect(),
                    expected_outcome: None,
                },
            },
            Subject {
                name: REDIS_ONLY,
                load: redis_load,
                processes: MeasuredProcesses {
                    servers: Vec::new(),
                    redis: script_redis.pid().into_iter().collect(),
                    expected_outcome: None,
                },
            },
            self.http1_subject(IP, &pools.ip, "success"),
            self.http1_subject(GEO, &pools.geo, "success"),
            self.http1_subject(FULL, &pools.full, "success"),
            self.http1_subject(NO_KEY, &pools.no_key, "missing_api_key"),
            self.http1_subject(MALFORMED_KEY, &pools.malformed_key, "invalid_api_key"),
            self.http1_subject(UNKNOWN_KEY, &pools.unknown_keys, "invalid_api_key"),
            self.http1_subject(PAUSED_KEY_FLOODED, &pools.one_paused_key, "paused"),
            self.http1_subject(PAUSED_KEYS_SPREAD, &pools.paused_keys, "paused"),
            static_subject(STATIC_TLS, tls(plain)),
            full_subject(FULL_TLS, tls(node)),
            static_subject(STATIC_H2, h2(plain)),
            full_subject(FULL_H2, h2(node)),
            static_subject(STATIC_H3, h3(plain)),
            full_subject(FULL_H3, h3(node)),
        ]
    }
}

fn server_only(server: &ComparisonServer) -> MeasuredProcesses {
    MeasuredProcesses { servers: vec![server.pid()], redis: Vec::new(), expected_outcome: None }
}
