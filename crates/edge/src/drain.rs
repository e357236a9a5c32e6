//! The word to stop: given once, heard by every listener and every connection.

use tokio::sync::watch;

/// Starts the drain; dropping it does the same.
#[must_use = "the drain starts when this is dropped"]
pub struct DrainSwitch(watch::Sender<()>);

impl DrainSwitch {
    /// Starts the drain.
    pub fn start(self) {
        drop(self.0);
    }
}

/// Hears when the drain starts.
#[derive(Clone)]
pub struct Drain(watch::Receiver<()>);

impl Drain {
    /// A drain that has not started, and its switch.
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
        // Nothing is ever sent: the channel's end is the word.
        while receiver.changed().await.is_ok() {}
    }
}
