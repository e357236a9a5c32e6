//! Remote nodes: sites without PostgreSQL and Redis, which ask home nodes.

mod fixture;
mod limits;
mod outages;
mod pages;
mod security;
