//! The edge against real sockets, with `curl` and hyper's own client on the other side.

mod drain;
mod fixture;
mod http2;
mod http3;
mod identity;
mod limits;
mod mutated_seeds;
mod proxy_protocol;
mod spoofing;
mod spoofing_vectors;
mod tls;
