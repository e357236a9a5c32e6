//! Reloads the keys that seal tokens, or renews them if there is no file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use ipseity_api::TokenSealer;
use ipseity_domain::causes;
use ipseity_edge::Drain;

use crate::node::sealed_tokens::{parse_sealing_keys, read_key_file};
use crate::tasks::periodic::run_every;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Polls the file, or makes the sealer forget its old random keys.
pub(crate) struct SealingKeysWorker {
    sealer: Arc<TokenSealer>,
    /// Empty: there is no file.
    file: PathBuf,
    /// The text that was read last; `None` before that, or if that failed.
    last_text: Mutex<Option<String>>,
}

impl SealingKeysWorker {
    pub(crate) fn new(sealer: Arc<TokenSealer>, file: &Path) -> Arc<Self> {
        Arc::new(Self { sealer, file: file.to_owned(), last_text: Mutex::new(None) })
    }

    /// Runs until the drain starts.
    pub(crate) async fn run(self: Arc<Self>, drain: Drain) {
        run_every(CHECK_INTERVAL, &drain, || {
            let worker = Arc::clone(&self);
            // A slow file system must not block the threads that serve requests.
            tokio::task::spawn_blocking(move || worker.check())
        })
        .await;
    }

    fn check(&self) {
        if self.file.as_os_str().is_empty() {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
            self.sealer.forget_old_keys(now_s);
            return;
        }
        let text = read_key_file(&self.file);
        let mut last_text = self.last_text.lock().unwrap_or_else(PoisonError::into_inner);
        if text.as_ref().ok() == last_text.as_ref() {
            return;
        }
        *last_text = text.as_ref().ok().cloned();
        match text.and_then(|text| self.use_keys(&text)) {
            Ok(()) => tracing::info!(file = %self.file.display(), "sealing keys loaded"),
            Err(error) => tracing::warn!(error = %causes(&*error), "sealing keys rejected"),
        }
    }

    fn use_keys(&self, text: &str) -> Result<()> {
        self.sealer.replace_keys(parse_sealing_keys(text, &self.file)?);
        Ok(())
    }
}
