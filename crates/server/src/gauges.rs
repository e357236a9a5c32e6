//! Metrics that are read where they arise: the edge's counters, the certificates' days left, the ages of the geo databases, and what the
//! process holds.

use std::fmt;
use std::fs;
use std::sync::Arc;

use edge::{Bound, Edge, Wardrobe};
use geo::Shelf;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(crate) struct Gauges {
    pub(crate) edge: Arc<Edge>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) wardrobe: Option<Arc<Wardrobe>>,
    /// Connections and files that may be held.
    pub(crate) connections_max: usize,
    pub(crate) files_max: usize,
}

impl fmt::Debug for Gauges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gauges")
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.edge.stats();
        let counted = [
            ("connections_accepted", "Connections accepted", stats.accepted.value()),
            ("accept_errors", "Times that the system refused to accept", stats.accept_errors.value()),
            ("quic_retries", "QUIC callers that were asked to prove their address", stats.retries.value()),
            ("handshakes_failed", "TLS handshakes that failed", stats.handshakes_failed.value()),
        ];
        for (name, help, value) in counted {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let held = [
            ("connections_open", "Connections open now", stats.open.value()),
            ("connections_max", "Connections that may be open", self.connections_max as u64),
            ("files_open", "Files and sockets open now", open_files()),
            ("files_max", "Files and sockets that may be open", self.files_max as u64),
            ("memory_bytes", "Memory in use that is backed by RAM", resident_bytes()),
        ];
        for (name, help, value) in held {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }

        let none = ConstCounter::new(0_u64);
        let mut closed = encoder.encode_descriptor(
            "connections_closed",
            "Connections that a bound closed",
            None,
            none.metric_type(),
        )?;
        for bound in Bound::ALL {
            ConstCounter::new(stats.closed_by(bound)).encode(closed.encode_family(&[("bound", bound.name())])?)?;
        }
        let none = ConstGauge::new(0_i64);
        let help = "Whole days until a certificate expires; negative once it has";
        let mut left = encoder.encode_descriptor("certificate_days_left", help, None, none.metric_type())?;
        for remaining in self.wardrobe.iter().flat_map(|wardrobe| wardrobe.remaining()) {
            ConstGauge::new(remaining.days).encode(left.encode_family(&[("name", remaining.name.as_str())])?)?;
        }
        let epoch = ConstGauge::new(0_i64);
        let help = "When a geo database was built, Unix time";
        let mut built = encoder.encode_descriptor("geo_build_time_seconds", help, None, epoch.metric_type())?;
        for edition in self.shelf.current().editions() {
            let built_s = i64::try_from(edition.build_epoch_s).unwrap_or(i64::MAX);
            ConstGauge::new(built_s).encode(built.encode_family(&[("database", edition.database_type.as_str())])?)?;
        }
        Ok(())
    }
}

fn open_files() -> u64 {
    // The listing itself holds one.
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1) as u64)
}

fn resident_bytes() -> u64 {
    // Size and resident pages come first (proc(5)).
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let resident = pages.as_deref().and_then(|pages| pages.split(' ').nth(1)?.parse::<u64>().ok());
    resident.unwrap_or_default() * rustix::param::page_size() as u64
}
