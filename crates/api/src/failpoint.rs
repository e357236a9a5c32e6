//! Points at which a test can delay a request or make it panic. Without the feature they do nothing.

#[cfg(feature = "failpoints")]
static ARMED_FAILPOINTS: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Arms fail points, such as `pause-before-row=60000,fill-before-write=500` (milliseconds to wait there).
#[cfg(feature = "failpoints")]
pub fn arm_failpoints(points: String) {
    ARMED_FAILPOINTS.get_or_init(|| points);
}

#[cfg(feature = "failpoints")]
pub(crate) async fn delay_at(name: &str) {
    let mut points = ARMED_FAILPOINTS.get().map_or("", String::as_str).split(',');
    if let Some(ms) = points.find_map(|point| point.strip_prefix(name)?.strip_prefix('=')?.parse().ok()) {
        tracing::warn!(name, ms, "held at a fail point");
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
}

/// Panics with all that a request holds, if it has a line `X-Panic` and the point `panic` is armed.
#[cfg(feature = "failpoints")]
pub(crate) fn panic_if_armed<B>(request: &http::Request<B>) {
    if ARMED_FAILPOINTS.get().is_some_and(|points| points.split(',').any(|point| point == "panic")) {
        assert!(!request.headers().contains_key("x-panic"), "{:?} {:?}", request.uri(), request.headers());
    }
}

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unused_async, reason = "its other half waits")]
pub(crate) async fn delay_at(_name: &str) {}
