//! Remote nodes: sites without PostgreSQL and Redis, which ask home nodes.

mod canaries;
mod changes;
mod cluster;
mod fixture;
mod honest;
mod limits;
mod optimistic;
mod outages;
mod pages;
mod security;
mod slots;
