//! Remote nodes: sites without PostgreSQL and Redis, which ask home nodes.

mod canaries;
mod changes;
mod cluster;
mod fixture;
mod heartbeats;
mod honest;
mod key_status;
mod limits;
mod optimistic;
mod outages;
mod pages;
mod pairing;
mod restrictions;
mod security;
mod slots;
