//! The round-trip time of a connection, as measured by the kernel (TCP) or the QUIC stack. No probe is sent.

use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};

use tokio::net::tcp::OwnedReadHalf;

/// Reads the round-trip time of an open connection.
///
/// It holds a weak reference, because the file descriptor of a closed socket may belong to another connection.
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

    /// The current round-trip time, in whole milliseconds. `None` if the connection is closed or has no sample.
    ///
    /// TCP reports the smoothed value. QUIC reports the minimum: both ends take samples in user space, where other load
    /// makes them longer but never shorter.
    pub(crate) fn measure_ms(&self) -> Option<u32> {
        let rtt_us = match &self.0 {
            RttSource::Tcp(socket) => tcp_info((*socket.upgrade()?).as_ref())?.tcpi_rtt,
            // Every completed handshake has a sample.
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
    // SAFETY: the struct has only integer fields, for which zero is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `socket` is borrowed. The kernel writes at most the struct's size.
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
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port is free");
        let (_client, accepted) =
            tokio::join!(TcpStream::connect(listener.local_addr().expect("socket is bound")), listener.accept());
        let (read, write) = accepted.expect("client connects").0.into_split();
        let read = Arc::new(read);
        let rtt = Rtt::tcp(&read);
        assert!(rtt.measure_ms().is_some_and(|ms| ms < 1000));
        drop((read, write));
        assert_eq!(rtt.measure_ms(), None);
    }
}
