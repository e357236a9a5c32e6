//! Tests of the edge over real sockets, with `curl`, hyper and quinn as clients.

mod drain;
mod fixture;
mod http2;
mod http3;
mod identity;
mod limits;
mod proxy_protocol;
mod refused_requests;
mod spoofing;
mod spoofing_vectors;
mod tls;
