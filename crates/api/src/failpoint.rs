//! Failpoints: places where a test can delay a request or make it panic. Without the feature `failpoints`
//! they do nothing.

#[cfg(feature = "failpoints")]
static ARMED_FAILPOINTS: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Arms failpoints, such as `pause-before-insert=60000,fill-before-write=500`. The number is the delay in
/// milliseconds.
#[cfg(feature = "failpoints")]
pub fn arm_failpoints(points: String) {
    ARMED_FAILPOINTS.get_or_init(|| points);
}

#[cfg(feature = "failpoints")]
pub(crate) async fn delay_at(name: &str) {
    let mut points = ARMED_FAILPOINTS.get().map_or("", String::as_str).split(',');
    if let Some(ms) = points.find_map(|point| point.strip_prefix(name)?.strip_prefix('=')?.parse().ok()) {
        tracing::warn!(name, ms, "delayed at failpoint");
        tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
    }
}

/// Panics with the URL and all headers in the message if the request has an `X-Panic` header and the
/// failpoint `panic` is armed.
#[cfg(feature = "failpoints")]
pub(crate) fn panic_if_armed<B>(request: &http::Request<B>) {
    if ARMED_FAILPOINTS.get().is_some_and(|points| points.split(',').any(|point| point == "panic")) {
        assert!(!request.headers().contains_key("x-panic"), "{:?} {:?}", request.uri(), request.headers());
    }
}

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unused_async, reason = "async with the feature `failpoints`")]
pub(crate) async fn delay_at(_name: &str) {}
