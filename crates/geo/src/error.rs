//! Why a database file cannot be used. Each sentence names the file and the reason; none can hold a looked-up address.

use std::io;
use std::path::PathBuf;

use maxminddb::MaxMindDbError;

/// A database file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// It cannot be read.
    #[error("the database {} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// It is no MMDB file, or a damaged one.
    #[error("the database {} is not a sound MMDB file: {reason}", path.display())]
    Unsound {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        reason: MaxMindDbError,
    },
    /// Its metadata names a type that tells neither places nor networks.
    #[error("the database {} is of type {database_type:?}, which is none of City, Country, Enterprise, ASN or ISP", path.display())]
    UnknownType {
        /// The file.
        path: PathBuf,
        /// The type that its metadata names.
        database_type: String,
    },
    /// None of its first records says anything in the nested schema.
    #[error("the database {} is of type {database_type:?}, but its records are not in the nested schema", path.display())]
    UnknownSchema {
        /// The file.
        path: PathBuf,
        /// The type that its metadata names.
        database_type: String,
    },
}
