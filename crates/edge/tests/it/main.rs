//! The edge against real sockets, with `curl` and hyper's own client on the other side.

mod bounds;
mod drain;
mod house;
mod identity;
mod quic;
mod streams;
mod tls;
