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

const CID_BYTES: usize = 8;
/// Places in the group: the kernel numbers its sockets as they come, and moves the last into the place of one that goes.
const OLDER_SOCKET: u32 = 0;
const NEWER_SOCKET: u32 = 1;

/// What the connection ids of one process begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CidPrefix([u8; 2]);

impl CidPrefix {
    pub(crate) fn new() -> Self {
        Self(random_bytes(aws_lc_rs::default_provider().secure_random))
    }
}

fn random_bytes<const N: usize>(source: &dyn SecureRandom) -> [u8; N] {
    let mut bytes = [0; N];
    source.fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// Makes connection ids that begin with a mark.
pub(crate) struct PrefixedCids {
    prefix: CidPrefix,
    source: &'static dyn SecureRandom,
}

impl PrefixedCids {
    pub(crate) fn new(prefix: CidPrefix) -> Self {
        Self { prefix, source: aws_lc_rs::default_provider().secure_random }
    }
}

impl ConnectionIdGenerator for PrefixedCids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id: [u8; CID_BYTES] = random_bytes(self.source);
        id[..2].copy_from_slice(&self.prefix.0);
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        CID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// The program: the offsets are RFC 9000's, sections 17.2 and 17.3, from the packet's first byte.
fn bpf_program(prefix: CidPrefix) -> [libc::sock_filter; 10] {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_HALF_WORD: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const AND: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const IF_SET: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const LONG_HEADER_BIT: u32 = 0x80;
    const PACKET_TYPE_MASK: u32 = 0x30;
    const HANDSHAKE_PACKET: u32 = 0x20;
    let prefix = u16::from_be_bytes(prefix.0).into();
    let instruction = |code: u32, k, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    [
        instruction(LOAD_BYTE, 0, 0, 0),
        instruction(IF_SET, LONG_HEADER_BIT, 2, 0),
        // A short header: the id is next.
        instruction(LOAD_HALF_WORD, 1, 0, 0),
        instruction(IF_EQUAL, prefix, 5, 4),
        // A long one: only the later packets of a handshake carry an id of ours.
        instruction(AND, PACKET_TYPE_MASK, 0, 0),
        instruction(IF_EQUAL, HANDSHAKE_PACKET, 0, 3),
        instruction(LOAD_HALF_WORD, 6, 0, 0),
        instruction(IF_EQUAL, prefix, 1, 0),
        instruction(RETURN, OLDER_SOCKET, 0, 0),
        instruction(RETURN, NEWER_SOCKET, 0, 0),
    ]
}

/// Has packets of a port that is shared dealt out by their mark; this socket is the newer one.
#[expect(unsafe_code, reason = "neither std nor socket2 attaches a program to a group of sockets")]
pub(crate) fn attach_reuseport_bpf(socket: &UdpSocket, prefix: CidPrefix) -> io::Result<()> {
    let mut instructions = bpf_program(prefix);
    let fprog = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads `whole` and the steps that it points to, all of which outlive the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const fprog).cast(),
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

    fn bind_shared(port: u16) -> UdpSocket {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
        socket.set_reuse_port(true).expect("a shared port");
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        socket.bind(&address.into()).expect("a port");
        let socket: UdpSocket = socket.into();
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a deadline");
        socket
    }

    fn packet_with_cid(first_bytes: &[u8], cid_offset: usize, prefix: CidPrefix) -> Vec<u8> {
        let mut packet = first_bytes.to_vec();
        packet.resize(cid_offset, 0);
        packet.extend(prefix.0);
        packet.resize(64, 0);
        packet
    }

    /// Sends from many ports, so that a hash would not always find the same socket.
    fn assert_all_reach(socket: &UdpSocket, packet: &[u8]) {
        for _ in 0..20 {
            let sender = UdpSocket::bind("127.0.0.1:0").expect("a port");
            sender.send_to(packet, socket.local_addr().expect("an address")).expect("sent");
            socket.recv(&mut [0; 100]).expect("it came to the other socket");
        }
    }

    #[test]
    fn packets_reach_the_process_that_owns_their_connection() {
        let (old_prefix, new_prefix) = (CidPrefix([1, 2]), CidPrefix([3, 4]));
        let old = bind_shared(0);
        attach_reuseport_bpf(&old, old_prefix).expect("a program");
        for datagram in [
            packet_with_cid(&[0x40], 1, old_prefix),
            packet_with_cid(&[0xc0], 6, old_prefix),
            packet_with_cid(&[0x40], 1, new_prefix),
        ] {
            assert_all_reach(&old, &datagram);
        }
        let new = bind_shared(old.local_addr().expect("an address").port());
        attach_reuseport_bpf(&new, new_prefix).expect("a program");
        assert_all_reach(&old, &packet_with_cid(&[0x40], 1, old_prefix));
        assert_all_reach(&old, &packet_with_cid(&[0xe0], 6, old_prefix));
        assert_all_reach(&new, &packet_with_cid(&[0x40], 1, new_prefix));
        assert_all_reach(&new, &packet_with_cid(&[0xe0], 6, new_prefix));
        assert_all_reach(&new, &packet_with_cid(&[0xc0], 6, CidPrefix([5, 6])));
        drop(old);
        for datagram in [
            packet_with_cid(&[0x40], 1, new_prefix),
            packet_with_cid(&[0xc0], 6, old_prefix),
            packet_with_cid(&[0x40], 1, old_prefix),
        ] {
            assert_all_reach(&new, &datagram);
        }
    }

    #[test]
    fn connection_id_starts_with_the_process_prefix() {
        let prefix = CidPrefix::new();
        let mut ids = PrefixedCids::new(prefix);
        let (one, other) = (ids.generate_cid(), ids.generate_cid());
        assert!(one.starts_with(&prefix.0) && other.starts_with(&prefix.0) && one != other);
        assert_eq!(one.len(), ids.cid_len());
    }
}
