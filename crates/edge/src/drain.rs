//! The signal to stop: given once, received by every listener and connection.

use tokio::sync::watch;

/// Starts the drain when [`start`](Self::start) is called or when it is dropped.
#[must_use = "the drain starts when this is dropped"]
pub struct DrainSwitch(watch::Sender<()>);

impl DrainSwitch {
    /// Starts the drain.
    pub fn start(self) {
        drop(self.0);
    }
}

/// Reports when the drain has started.
#[derive(Clone)]
pub struct Drain(watch::Receiver<()>);

impl Drain {
    /// Creates a drain that has not started, and its switch.
    pub fn new() -> (DrainSwitch, Self) {
        let (sender, receiver) = watch::channel(());
        (DrainSwitch(sender), Self(receiver))
    }

    /// Whether the drain has started.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Waits until the drain has started.
    pub async fn started(&self) {
        let mut receiver = self.0.clone();
        // Nothing is ever sent. The closed channel is the signal.
        while receiver.changed().await.is_ok() {}
    }
}
