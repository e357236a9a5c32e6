//! The edge against real sockets, with `curl` and hyper's own client on the other side.

mod announced;
mod arbitrary;
mod bounds;
mod drain;
mod house;
mod identity;
mod quic;
mod spoofing;
mod streams;
mod tls;
mod vectors;
