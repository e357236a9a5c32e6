//! The atlas over real files, written on the spot.

mod database;
mod derived;
mod flat;
mod locate;
mod marks;
mod merge;
mod open;
mod shelf;
