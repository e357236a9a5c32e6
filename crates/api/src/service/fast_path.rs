//! The fast path of lookups, which are nearly all requests: no routing and, in general, no timer.

use std::future::poll_fn;
use std::task::Poll;

use futures_util::FutureExt;
use http::Method;

use crate::operation::Operation;

/// Whether a request skips the router.
pub(super) fn skips_router(operation: Option<Operation>, method: &Method) -> bool {
    operation == Some(Operation::Lookup) && method == Method::GET
}

/// Whether a request starts without a timer. A lookup waits once, for a verdict, and the ledger has a timeout
/// for that. It needs a timer only if it waits a second time.
pub(super) fn starts_without_timer(operation: Option<Operation>) -> bool {
    operation == Some(Operation::Lookup)
}

/// The output of a future if it completes before it has to wait a second time.
pub(super) async fn ready_after_one_wake<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut has_waited = false;
    poll_fn(|context| match future.poll_unpin(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if has_waited => Poll::Ready(None),
        Poll::Pending => {
            has_waited = true;
            Poll::Pending
        }
    })
    .await
}
