//! Limits of the listeners, from the configuration.

use anyhow::{Result, ensure};
use ipseity_edge::EdgeLimits;

use crate::config::{Config, millis};

pub(super) fn edge_limits(config: &Config) -> EdgeLimits {
    let settings = &config.edge;
    let connections_max = connection_capacity(config);
    EdgeLimits {
        connections_max,
        connections_per_subnet_max: settings.connections_per_subnet_max.min(connections_max / 4).max(1),
        accept_backoff: millis(settings.accept_backoff_ms),
        first_byte_timeout: millis(settings.first_byte_timeout_ms),
        proxy_header_bytes_max: settings.proxy_header_bytes_max,
        handshake_timeout: millis(settings.handshake_timeout_ms),
        header_timeout: millis(settings.header_timeout_ms),
        idle_timeout: millis(settings.idle_timeout_ms),
        write_timeout: millis(settings.write_timeout_ms),
        write_rate_min: settings.write_bytes_per_second_min,
        unread_body_timeout: millis(settings.unread_body_timeout_ms),
        memory_per_connection_max: settings.memory_per_connection_bytes_max,
        memory_per_subnet_max: settings.memory_per_subnet_bytes_max,
        memory_max: settings.memory_bytes_max,
        drain_timeout: millis(settings.drain_timeout_ms),
        header_bytes_max: settings.header_bytes_max,
        headers_max: settings.headers_max,
        streams_max: settings.concurrent_streams_max,
        resets_max: settings.stream_resets_max,
        quic_retry_threshold: settings.quic_retry_threshold,
        unsolicited_bytes_max: settings.unsolicited_bytes_max,
        failed_attempts_max: settings.failed_attempts_per_connection_max,
        failed_attempt_interval: millis(settings.failed_attempt_interval_ms),
        refusal_delay: millis(settings.refusal_delay_ms),
        flood_penalty: millis(settings.flood_penalty_ms),
    }
}

/// Warns if the open file limit reduces the number of connections. Fails if it leaves none.
pub(super) fn check_capacity(config: &Config) -> Result<()> {
    let (capacity, connections_max) = (connection_capacity(config), config.edge.connections_max);
    let (open_files_max, reserved) = (ipseity_edge::raise_file_limit(), config.edge.open_files_reserved);
    ensure!(
        open_files_max > reserved,
        "the open file limit is {open_files_max}, and [edge] open_files_reserved needs {reserved}, so that none is left for \
         clients. Raise the limit (`LimitNOFILE=` in the unit, `ulimit -n`) to at least {}.",
        reserved + connections_max
    );
    if capacity < connections_max {
        tracing::warn!(
            capacity,
            connections_max,
            open_files_max,
            "connection capacity limited by open files; raise LimitNOFILE= or ulimit -n"
        );
    }
    Ok(())
}

/// Maximum number of connections, reduced if the open file limit is too low.
pub(super) fn connection_capacity(config: &Config) -> usize {
    let available_files = ipseity_edge::raise_file_limit().saturating_sub(config.edge.open_files_reserved).max(1);
    config.edge.connections_max.min(available_files)
}
