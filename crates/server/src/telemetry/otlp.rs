//! Exports logs and sampled request traces over OTLP.
//!
//! A slow or unreachable collector does not delay requests: the queues are bounded, and entries that do not fit are dropped.

use std::time::Duration;

use anyhow::{Context, Result};
use opentelemetry::trace::TracerProvider;
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{self, BatchLogProcessor, SdkLoggerProvider};
use opentelemetry_sdk::trace::{self, BatchSpanProcessor, Sampler, SdkTracerProvider};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{FilterExt, Targets};
use tracing_subscriber::layer::{Filter, Layer};

use crate::config::OtlpConfig;

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

pub(crate) struct OtlpExporter {
    tracer_provider: SdkTracerProvider,
    logger_provider: SdkLoggerProvider,
    timeout: Duration,
}

impl OtlpExporter {
    /// Starts the export; `None` without an `[otlp] endpoint`.
    pub(crate) fn start(otlp: &OtlpConfig) -> Result<Option<Self>> {
        let endpoint = otlp.endpoint.trim_end_matches('/');
        if endpoint.is_empty() {
            return Ok(None);
        }
        let ratio = otlp.trace_sample_ratio;
        let timeout = Duration::from_millis(otlp.timeout_ms);
        let resource = Resource::builder().with_service_name("ipseity").build();

        let exporter = SpanExporter::builder().with_http().with_endpoint(format!("{endpoint}/v1/traces"));
        let exporter = exporter.with_timeout(timeout).build().context("invalid [otlp] endpoint")?;
        let batch_config = trace::BatchConfigBuilder::default().with_max_queue_size(otlp.queue_entries_max).build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batch_config).build();
        // Requests are sampled here; a client cannot request a trace.
        let traces = SdkTracerProvider::builder().with_resource(resource.clone()).with_span_processor(processor);
        let traces = traces.with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio)))).build();

        let exporter = LogExporter::builder().with_http().with_endpoint(format!("{endpoint}/v1/logs"));
        let exporter = exporter.with_timeout(timeout).build().context("invalid [otlp] endpoint")?;
        let batch_config = logs::BatchConfigBuilder::default().with_max_queue_size(otlp.queue_entries_max).build();
        let processor = BatchLogProcessor::builder(exporter).with_batch_config(batch_config).build();
        let logs = SdkLoggerProvider::builder().with_resource(resource).with_log_processor(processor).build();
        Ok(Some(Self { tracer_provider: traces, logger_provider: logs, timeout }))
    }

    /// Exports request spans. They contain no client data.
    pub(crate) fn span_layer(&self) -> BoxedLayer {
        let layer = tracing_opentelemetry::layer().with_tracer(self.tracer_provider.tracer("ipseity"));
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false).with_target(false);
        layer.with_filter(Targets::new().with_target(ipseity_api::TRACE_TARGET, LevelFilter::INFO)).boxed()
    }

    /// Exports log lines that pass the filter, except those of the exporter itself, which would cause an endless loop.
    pub(crate) fn log_layer(&self, filter: impl Filter<Registry> + Send + Sync + 'static) -> BoxedLayer {
        let without_own_target =
            Targets::new().with_default(LevelFilter::TRACE).with_target("opentelemetry", LevelFilter::OFF);
        OpenTelemetryTracingBridge::new(&self.logger_provider).with_filter(filter.and(without_own_target)).boxed()
    }

    /// Flushes the queues.
    pub(crate) async fn shutdown(self) {
        // The SDK blocks while it sends.
        let flushed = tokio::task::spawn_blocking(move || {
            (
                self.tracer_provider.shutdown_with_timeout(self.timeout),
                self.logger_provider.shutdown_with_timeout(self.timeout),
            )
        });
        if !matches!(flushed.await, Ok((Ok(()), Ok(())))) {
            tracing::warn!("OTLP flush failed");
        }
    }
}
