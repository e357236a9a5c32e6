//! The round-trip time of a client's own connection, as the kernel has measured it on its socket, or the QUIC stack on its path.
//! Linux only; no probe of our own is sent.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

use tokio::net::tcp::OwnedReadHalf;

/// Reads a connection's round-trip time while the connection lives.
///
/// It holds a socket weakly: a bare descriptor kept beyond its connection may by then be a stranger's.
#[derive(Clone)]
pub(crate) struct Rtt(RttSource);

#[derive(Clone)]
enum RttSource {
    Tcp(Weak<OwnedReadHalf>),
    Quic(quinn::Connection),
}

impl Rtt {
    pub(crate) fn tcp(socket: &Arc<OwnedReadHalf>) -> Self {
        Self(RttSource::Tcp(Arc::downgrade(socket)))
    }

    pub(crate) fn quic(connection: quinn::Connection) -> Self {
        Self(RttSource::Quic(connection))
    }

    /// The round-trip time now, in whole milliseconds; `None` when the connection is gone or has no sample.
    ///
    /// Of TCP the smoothed one. Of QUIC the least: both ends take its samples outside the kernel, and whatever else their machines do
    /// makes them longer, never shorter.
    pub(crate) fn measure_ms(&self) -> Option<u32> {
        let rtt_us = match &self.0 {
            RttSource::Tcp(socket) => tcp_info((*socket.upgrade()?).as_ref())?.tcpi_rtt,
            // A handshake is never done without a sample.
            RttSource::Quic(connection) => u32::try_from(connection.min_rtt().as_micros()).unwrap_or(u32::MAX),
        };
        (rtt_us > 0).then(|| round_to_ms(rtt_us))
    }
}

fn round_to_ms(us: u32) -> u32 {
    us / 1000 + u32::from(us % 1000 >= 500)
}

#[expect(unsafe_code, reason = "neither std nor tokio offers TCP_INFO")]
fn tcp_info(socket: &impl AsRawFd) -> Option<libc::tcp_info> {
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the struct is plain integers, for which all zeroes is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `socket` is borrowed; the kernel writes at most `length` bytes, which is the struct's size.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    (result == 0).then_some(info)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn rtt_is_rounded_half_up_to_milliseconds() {
        for (us, ms) in [(1, 0), (499, 0), (500, 1), (1499, 1), (1500, 2), (u32::MAX, 4_294_967)] {
            assert_eq!(round_to_ms(us), ms, "{us}");
        }
    }

    #[tokio::test]
    async fn closed_connection_has_no_rtt() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (_client, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().expect("an address")), listener.accept());
        let (read, write) = accepted.expect("a connection").0.into_split();
        let read = Arc::new(read);
        let rtt = Rtt::tcp(&read);
        assert!(rtt.measure_ms().is_some_and(|ms| ms < 1000));
        drop((read, write));
        assert_eq!(rtt.measure_ms(), None);
    }
}
