//! The variable part of a path.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::console::error::ConsoleError;
use crate::console::state::Console;

/// The variable part of a path, such as the number of an account. A page does not exist if it cannot be parsed.
pub(super) struct PathPart<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Console>> for PathPart<T> {
    type Rejection = ConsoleError;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, ConsoleError> {
        let part = Path::from_request_parts(parts, console).await;
        part.map(|Path(part)| Self(part)).map_err(|_| ConsoleError::NotFound)
    }
}
