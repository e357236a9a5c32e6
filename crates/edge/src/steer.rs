//! Packets to the process that knows their connection, while two processes share a UDP port.
//!
//! By itself the kernel deals packets out by a hash of the addresses, and a connection would lose half of them when a second process
//! appears. Here every connection id begins with a mark of its process, and a small program in the kernel looks at it: what carries
//! the newer process's mark and what opens a connection goes to the newer one, all else to the older. A group of one socket
//! needs no program, and falls back to the one there is.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use quinn::{ConnectionId, ConnectionIdGenerator};
use rustls::crypto::{SecureRandom, aws_lc_rs};

const ID_BYTES: usize = 8;
/// Places in the group: the kernel numbers its sockets as they come, and moves the last into the place of one that goes.
const OLDER: u32 = 0;
const NEWER: u32 = 1;

/// What the connection ids of one process begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark([u8; 2]);

impl Mark {
    pub(crate) fn new() -> Self {
        Self(random(aws_lc_rs::default_provider().secure_random))
    }
}

fn random<const N: usize>(source: &dyn SecureRandom) -> [u8; N] {
    let mut bytes = [0; N];
    source.fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// Makes connection ids that begin with a mark.
pub(crate) struct MarkedIds {
    mark: Mark,
    source: &'static dyn SecureRandom,
}

impl MarkedIds {
    pub(crate) fn new(mark: Mark) -> Self {
        Self { mark, source: aws_lc_rs::default_provider().secure_random }
    }
}

impl ConnectionIdGenerator for MarkedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id: [u8; ID_BYTES] = random(self.source);
        id[..2].copy_from_slice(&self.mark.0);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// The program: the offsets are RFC 9000's, sections 17.2 and 17.3, from the packet's first byte.
fn program(mark: Mark) -> [libc::sock_filter; 10] {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_TWO: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const LONG: u32 = 0x80;
    const KIND: u32 = 0x30;
    const HANDSHAKE: u32 = 0x20;
    let mark = u16::from_be_bytes(mark.0).into();
    let step = |code: u32, k, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    [
        step(LOAD_BYTE, 0, 0, 0),
        step(IF_SET, LONG, 2, 0),
        // A short header: the id is next.
        step(LOAD_TWO, 1, 0, 0),
        step(IF_EQUAL, mark, 5, 4),
        // A long one: only the later packets of a handshake carry an id of ours.
        step(AND, KIND, 0, 0),
        step(IF_EQUAL, HANDSHAKE, 0, 3),
        step(LOAD_TWO, 6, 0, 0),
        step(IF_EQUAL, mark, 1, 0),
        step(RETURN, OLDER, 0, 0),
        step(RETURN, NEWER, 0, 0),
    ]
}

/// Has packets of a port that is shared dealt out by their mark; this socket is the newer one.
#[expect(unsafe_code, reason = "neither std nor socket2 attaches a program to a group of sockets")]
pub(crate) fn steer(socket: &UdpSocket, mark: Mark) -> io::Result<()> {
    let mut steps = program(mark);
    let whole = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads `whole` and the steps that it points to, all of which outlive the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const whole).cast(),
            length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    fn open(port: u16) -> UdpSocket {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
        socket.set_reuse_port(true).expect("a shared port");
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        socket.bind(&address.into()).expect("a port");
        let socket: UdpSocket = socket.into();
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a deadline");
        socket
    }

    fn packet(head: &[u8], id_at: usize, mark: Mark) -> Vec<u8> {
        let mut packet = head.to_vec();
        packet.resize(id_at, 0);
        packet.extend(mark.0);
        packet.resize(64, 0);
        packet
    }

    /// Sends from many ports, so that a hash would not always find the same socket.
    fn all_reach(socket: &UdpSocket, packet: &[u8]) {
        for _ in 0..20 {
            let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
            sender.send_to(packet, socket.local_addr().expect("an address")).expect("sent");
            socket.recv(&mut [0; 100]).expect("it came to the other socket");
        }
    }

    #[test]
    fn packets_find_the_process_that_knows_them() {
        let (old_mark, new_mark) = (Mark([1, 2]), Mark([3, 4]));
        let old = open(0);
        steer(&old, old_mark).expect("a program");
        for alone in [packet(&[0x40], 1, old_mark), packet(&[0xc0], 6, old_mark), packet(&[0x40], 1, new_mark)] {
            all_reach(&old, &alone);
        }
        let new = open(old.local_addr().expect("an address").port());
        steer(&new, new_mark).expect("a program");
        all_reach(&old, &packet(&[0x40], 1, old_mark));
        all_reach(&old, &packet(&[0xe0], 6, old_mark));
        all_reach(&new, &packet(&[0x40], 1, new_mark));
        all_reach(&new, &packet(&[0xe0], 6, new_mark));
        all_reach(&new, &packet(&[0xc0], 6, Mark([5, 6])));
        drop(old);
        for alone in [packet(&[0x40], 1, new_mark), packet(&[0xc0], 6, old_mark), packet(&[0x40], 1, old_mark)] {
            all_reach(&new, &alone);
        }
    }

    #[test]
    fn an_id_begins_with_the_mark_of_its_process() {
        let mark = Mark::new();
        let mut ids = MarkedIds::new(mark);
        let (one, other) = (ids.generate_cid(), ids.generate_cid());
        assert!(one.starts_with(&mark.0) && other.starts_with(&mark.0) && one != other);
        assert_eq!(one.len(), ids.cid_len());
    }
}
