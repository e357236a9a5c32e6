//! Metrics that are read at each scrape: edge counters, certificate expiry, geo database ages, and the standard `process_*` metrics.

use std::fmt;
use std::fs;
use std::sync::Arc;

use ipseity_edge::{CertResolver, CloseReason, EdgeState};
use ipseity_geo::AtlasReloader;
use ipseity_keys::{DeploymentGuard, DeploymentStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The label of each reason why Redis is not trusted.
const MISMATCH_REASONS: [(DeploymentStatus, &str); 2] =
    [(DeploymentStatus::ForeignRedis, "foreign_redis"), (DeploymentStatus::SplitRedis, "split_redis")];

/// Registers what describes the node and its process. Returns the registry for all other metrics, whose names start with `ipseity_`.
pub(crate) fn register_node(root: &mut Registry, node: NodeCollector) -> &mut Registry {
    root.register_collector(Box::new(ProcessCollector { open_files_max: ipseity_edge::raise_file_limit() }));
    let registry = root.sub_registry_with_prefix("ipseity");
    registry.register_collector(Box::new(node));
    registry.register("build", "Version of this node", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
    registry
}

pub(crate) struct NodeCollector {
    pub(crate) edge: Arc<EdgeState>,
    pub(crate) atlas_reloader: Arc<AtlasReloader>,
    pub(crate) cert_resolver: Option<Arc<CertResolver>>,
    pub(crate) connections_max: usize,
    pub(crate) guard: Arc<DeploymentGuard>,
    pub(crate) is_remote_node: bool,
}

impl fmt::Debug for NodeCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeCollector")
    }
}

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.edge.stats();
        let counters = [
            ("connections_accepted", "Accepted connections", stats.connections_accepted.value()),
            ("accept_errors", "Failed accept calls", stats.accept_errors.value()),
            ("quic_retries", "QUIC Retry packets sent", stats.quic_retries.value()),
            (
                "unidentified_clients",
                "Requests whose client a trusted proxy did not name",
                stats.unidentified_clients.value(),
            ),
            ("tls_handshake_failures", "Failed TLS and QUIC handshakes", stats.handshakes_failed.value()),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        encode_gauge(&mut encoder, "remote_node", "1 if this node asks home nodes", u64::from(self.is_remote_node))?;
        encode_gauge(&mut encoder, "connections_open", "Open connections", stats.connections_open.value())?;
        encode_gauge(&mut encoder, "connections_max", "Maximum open connections", self.connections_max as u64)?;

        let prototype = ConstGauge::new(0_i64);
        let help = "1 if Redis is not trusted for this reason";
        let mut mismatch = encoder.encode_descriptor("deployment_mismatch", help, None, prototype.metric_type())?;
        for (status, reason) in MISMATCH_REASONS {
            ConstGauge::new(i64::from(self.guard.status() == status))
                .encode(mismatch.encode_family(&[("reason", reason)])?)?;
        }
        let refused = ConstCounter::new(stats.requests_out_of_memory.value());
        let help = "Requests refused and responses reset because they exceeded a memory limit";
        refused.encode(encoder.encode_descriptor("requests_out_of_memory", help, None, refused.metric_type())?)?;
        let prototype = ConstCounter::new(0_u64);
        let help = "Connections closed by a limit, by reason";
        let mut closed = encoder.encode_descriptor("connections_closed", help, None, prototype.metric_type())?;
        for reason in CloseReason::ALL {
            ConstCounter::new(stats.connections_closed(reason))
                .encode(closed.encode_family(&[("reason", reason.name())])?)?;
        }
        let prototype = ConstGauge::new(0_i64);
        let help = "Expiry of a certificate, in Unix time";
        let mut expiry =
            encoder.encode_descriptor("certificate_expiry_timestamp_seconds", help, None, prototype.metric_type())?;
        for certificate in self.cert_resolver.iter().flat_map(|cert_resolver| cert_resolver.expirations()) {
            ConstGauge::new(certificate.expires_at_s)
                .encode(expiry.encode_family(&[("name", certificate.name.as_str())])?)?;
        }
        let prototype = ConstGauge::new(0_i64);
        let help = "Build time of a geo database, in Unix time";
        let mut build_times =
            encoder.encode_descriptor("geo_database_build_timestamp_seconds", help, None, prototype.metric_type())?;
        for edition in self.atlas_reloader.current().editions() {
            let built_s = i64::try_from(edition.build_epoch_s).unwrap_or(i64::MAX);
            ConstGauge::new(built_s)
                .encode(build_times.encode_family(&[("database", edition.database_type.as_str())])?)?;
        }
        Ok(())
    }
}

/// The process metrics that every Prometheus client library exports, under their standard names.
#[derive(Debug)]
struct ProcessCollector {
    open_files_max: usize,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode_gauge(&mut encoder, "process_open_fds", "Open file descriptors", open_fds())?;
        encode_gauge(&mut encoder, "process_max_fds", "Maximum open file descriptors", self.open_files_max as u64)?;
        encode_gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory in bytes", resident_bytes())
    }
}

pub(crate) fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

fn open_fds() -> u64 {
    // Reading the directory opens one descriptor.
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1) as u64)
}

fn resident_bytes() -> u64 {
    // The second field is the number of resident pages (proc(5)).
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.as_deref().and_then(|pages| pages.split(' ').nth(1)?.parse::<u64>().ok());
    resident.unwrap_or_default() * rustix::param::page_size() as u64
}
