//! The atlas over real files, written on the spot.

mod database;
mod locate;
mod merge;
mod open;
