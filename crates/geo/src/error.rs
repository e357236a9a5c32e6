//! Why a file cannot be used. Each sentence names the file and the reason; none can hold a looked-up address.

use std::io;
use std::path::{Path, PathBuf};

use maxminddb::MaxMindDbError;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// It cannot be read.
    #[error("the file {} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// It is larger than any that is taken into memory.
    #[error("the file {} has more than the {bytes_max} bytes that are taken into memory", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes at the most.
        bytes_max: u64,
    },
    /// It is no MMDB file, or a damaged one.
    #[error("the database {} is not a sound MMDB file: {reason}", path.display())]
    InvalidMmdb {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        reason: MaxMindDbError,
    },
    /// Its search tree has more leaves than a tree can have.
    #[error("the database {} is not a sound MMDB file: its search tree has no end", path.display())]
    CyclicTree {
        /// The file.
        path: PathBuf,
    },
    /// Its records are built in another way than those of the makers that are known.
    #[error("the database {} has records in an unknown schema: {reason}", path.display())]
    UnknownSchema {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        reason: MaxMindDbError,
    },
    /// None of its records tells anything that is asked for.
    #[error("the database {} is of type {database_type:?} and tells neither places nor networks", path.display())]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The type that its metadata names.
        database_type: String,
    },
    /// A line of a list of AS numbers is none.
    #[error("line {line} of the list {} does not begin with an AS number, such as AS64496", path.display())]
    InvalidAsnLine {
        /// The file.
        path: PathBuf,
        /// Which line, counted from 1.
        line: usize,
    },
    /// It is older than the edition that it would replace.
    #[error("the database {} is an older edition of {database_type} than the one in use; [geo] allow_older lets it in", path.display())]
    OlderEdition {
        /// The file.
        path: PathBuf,
        /// The type of both.
        database_type: String,
    },
    /// It knows none of the addresses that the edition before it knows.
    #[error("the database {} knows none of the addresses that the one in use knows", path.display())]
    LostCoverage {
        /// The file.
        path: PathBuf,
    },
}

impl GeoError {
    /// A record of another type than expected is sound; everything else that the reader refuses is damage.
    pub(crate) fn from_reader(path: &Path, reason: MaxMindDbError) -> Self {
        let path = path.to_owned();
        if matches!(reason, MaxMindDbError::Decoding { .. }) {
            Self::UnknownSchema { path, reason }
        } else {
            Self::InvalidMmdb { path, reason }
        }
    }
}
