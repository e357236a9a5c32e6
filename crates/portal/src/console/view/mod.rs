//! The templates of the console.

pub(crate) mod accounts;
pub(crate) mod frame;
pub(crate) mod overview;
pub(crate) mod pages;
