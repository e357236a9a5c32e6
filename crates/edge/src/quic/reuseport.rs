//! Routes QUIC packets to the right process while two processes share a UDP port.
//!
//! By default, the kernel distributes packets by a hash of the addresses, so connections would break when a second
//! process binds the port. Here, every connection id starts with a prefix of its process. A BPF program in the kernel
//! sends packets with the newer process's prefix, and packets that open a connection, to the newer process. All others
//! go to the older one. If only one socket is left, it gets every packet.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use quinn::{ConnectionId, ConnectionIdGenerator};
use rustls::crypto::{SecureRandom, aws_lc_rs};

const CID_BYTES: usize = 8;
/// Indexes in the reuseport group. The kernel numbers sockets in the order of bind(2) and fills a gap with the last.
const OLDER_SOCKET: u32 = 0;
const NEWER_SOCKET: u32 = 1;

/// The first bytes of all connection ids of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CidPrefix([u8; 2]);

impl CidPrefix {
    pub(crate) fn new() -> Self {
        Self(random_bytes(aws_lc_rs::default_provider().secure_random))
    }
}

fn random_bytes<const N: usize>(source: &dyn SecureRandom) -> [u8; N] {
    let mut bytes = [0; N];
    source.fill(&mut bytes).expect("system provides random bytes");
    bytes
}

/// Generates connection ids that start with a prefix.
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

/// The BPF program. Offsets count from the packet's first byte (RFC 9000, sections 17.2 and 17.3).
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
        // Short header: the connection id follows.
        instruction(LOAD_HALF_WORD, 1, 0, 0),
        instruction(IF_EQUAL, prefix, 5, 4),
        // Long header: only later packets of a handshake carry an id that we chose.
        instruction(AND, PACKET_TYPE_MASK, 0, 0),
        instruction(IF_EQUAL, HANDSHAKE_PACKET, 0, 3),
        instruction(LOAD_HALF_WORD, 6, 0, 0),
        instruction(IF_EQUAL, prefix, 1, 0),
        instruction(RETURN, OLDER_SOCKET, 0, 0),
        instruction(RETURN, NEWER_SOCKET, 0, 0),
    ]
}

/// Attaches the program to the socket's reuseport group. This socket must be the newer one.
#[expect(unsafe_code, reason = "neither std nor socket2 can attach a program to a reuseport group")]
pub(crate) fn attach_reuseport_bpf(socket: &UdpSocket, prefix: CidPrefix) -> io::Result<()> {
    let mut instructions = bpf_program(prefix);
    let fprog = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads `fprog` and the instructions that it points to. Both outlive the call.
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
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("socket opens");
        socket.set_reuse_port(true).expect("port can be shared");
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        socket.bind(&address.into()).expect("socket binds");
        let socket: UdpSocket = socket.into();
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("timeout is set");
        socket
    }

    fn packet_with_cid(first_bytes: &[u8], cid_offset: usize, prefix: CidPrefix) -> Vec<u8> {
        let mut packet = first_bytes.to_vec();
        packet.resize(cid_offset, 0);
        packet.extend(prefix.0);
        packet.resize(64, 0);
        packet
    }

    /// Sends from many ports, so that the kernel's hash would select different sockets.
    fn assert_all_reach(socket: &UdpSocket, packet: &[u8]) {
        for _ in 0..20 {
            let sender = UdpSocket::bind("127.0.0.1:0").expect("port is free");
            sender.send_to(packet, socket.local_addr().expect("socket is bound")).expect("packet is sent");
            socket.recv(&mut [0; 100]).expect("packet reaches this socket");
        }
    }

    #[test]
    fn packets_reach_the_process_that_owns_their_connection() {
        let (old_prefix, new_prefix) = (CidPrefix([1, 2]), CidPrefix([3, 4]));
        let old = bind_shared(0);
        attach_reuseport_bpf(&old, old_prefix).expect("program is attached");
        for datagram in [
            packet_with_cid(&[0x40], 1, old_prefix),
            packet_with_cid(&[0xc0], 6, old_prefix),
            packet_with_cid(&[0x40], 1, new_prefix),
        ] {
            assert_all_reach(&old, &datagram);
        }
        let new = bind_shared(old.local_addr().expect("socket is bound").port());
        attach_reuseport_bpf(&new, new_prefix).expect("program is attached");
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
