//! The pages for people: who may see and change what, and what a stranger can do about it.

mod alerts;
pub(crate) mod browser;
mod doors;
mod dress;
mod forms;
mod links;
mod live;
mod load;
mod matrix;
mod pages;
mod race;
mod silence;
pub(crate) mod stage;
pub(crate) mod table;
mod throttle;
