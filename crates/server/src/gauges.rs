//! Metrics that are read where they arise: the edge's counters and the ages of the geo databases.

use std::fmt;
use std::sync::Arc;

use edge::{Bound, Edge};
use geo::Shelf;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub(crate) struct Gauges {
    pub(crate) edge: Arc<Edge>,
    pub(crate) shelf: Arc<Shelf>,
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
            ("handshakes_failed", "TLS handshakes that failed", stats.handshakes_failed.value()),
        ];
        for (name, help, value) in counted {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let open = ConstGauge::new(i64::try_from(stats.open.value()).unwrap_or(i64::MAX));
        open.encode(encoder.encode_descriptor(
            "connections_open",
            "Connections open now",
            None,
            open.metric_type(),
        )?)?;

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
