//! Why a file cannot be used. Each error names the file. None contains an address that was looked up.

use std::io;
use std::path::{Path, PathBuf};

use maxminddb::MaxMindDbError;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// The file is unreadable.
    #[error("failed to read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: io::Error,
    },
    /// The file is too large.
    #[error("{} is larger than the maximum of {bytes_max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The maximum size.
        bytes_max: u64,
    },
    /// The file is damaged or not an MMDB file.
    #[error("{} is not a valid MMDB file: {reason}", path.display())]
    InvalidMmdb {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: MaxMindDbError,
    },
    /// The search tree has more leaves than a tree can have.
    #[error("{} is not a valid MMDB file: its search tree has a cycle", path.display())]
    CyclicTree {
        /// The file.
        path: PathBuf,
    },
    /// The records have an unknown schema.
    #[error("{} has records in an unknown schema: {reason}", path.display())]
    UnknownSchema {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: MaxMindDbError,
    },
    /// No record has supported facts.
    #[error("{} has type {database_type:?}, which contains neither locations nor networks", path.display())]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The type in the metadata.
        database_type: String,
    },
    /// A line of a list has no AS number.
    #[error("line {line} of {} does not start with an AS number, such as AS64496", path.display())]
    InvalidAsnLine {
        /// The file.
        path: PathBuf,
        /// The line number, starting with 1.
        line: usize,
    },
    /// The database is older than the current one.
    #[error("{} is an older edition of {database_type} than the current one. To allow it, set [geo] allow_older", path.display())]
    OlderEdition {
        /// The file.
        path: PathBuf,
        /// The type of both databases.
        database_type: String,
    },
    /// The database covers none of the sampled addresses that the current one covers.
    #[error("{} covers none of the addresses that the current database covers", path.display())]
    LostCoverage {
        /// The file.
        path: PathBuf,
    },
}

impl GeoError {
    /// A decoding error means an unknown schema. Every other error of the reader means damage.
    pub(crate) fn from_reader(path: &Path, reason: MaxMindDbError) -> Self {
        let path = path.to_owned();
        if matches!(reason, MaxMindDbError::Decoding { .. }) {
            Self::UnknownSchema { path, reason }
        } else {
            Self::InvalidMmdb { path, reason }
        }
    }
}
