//! A network link with a fixed delay: two TUN devices and a thread that delays every packet.
//!
//! The server's end is on this machine. The client's end is in an unnamed network namespace, which the kernel removes
//! when the process ends. The link has no loss, no jitter and no bandwidth limit. Needs root and `ip` of iproute2.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::client::http1::curl_command;
use crate::command::{CommandOutput, run_command};

/// 198.18.0.0/15 is reserved for benchmarks (RFC 2544). Used in blocks of four addresses.
const NETWORK: u32 = 0xC612_0000;
const BLOCKS: u32 = 1 << 15;
/// The kernel replaces `%d` with a free number.
const DEVICE: &[u8] = b"ipseity%d";
const PACKET_BYTES_MAX: usize = 1 << 16;

/// A link with a fixed delay. Dropping it removes devices, namespace and thread.
#[derive(Debug)]
pub struct DelayedLink {
    server_ip: Ipv4Addr,
    client_ip: Ipv4Addr,
    namespace: File,
    stop: Option<PipeWriter>,
    forwarder: Option<JoinHandle<io::Result<()>>>,
}

impl DelayedLink {
    /// Creates a link with this delay in each direction.
    pub fn open(one_way_delay: Duration) -> Result<Self> {
        let block = NETWORK + 4 * fastrand::u32(..BLOCKS);
        let [server, client] = [block + 1, block + 2].map(Ipv4Addr::from_bits);
        let server_end = open_tun_end(server, client)?;
        // On a separate thread, because a thread cannot leave the namespace.
        let create_client_end = move || -> Result<_> {
            let namespace = enter_new_namespace().context("failed to create a network namespace; run as root")?;
            Ok((namespace, open_tun_end(client, server)?))
        };
        let (namespace, client_end) = thread::spawn(create_client_end)
            .join()
            .map_err(|_| anyhow!("the thread that created the client's end panicked"))??;
        let (stopped, stop) = io::pipe()?;
        let forwarder = thread::spawn(move || forward_packets(&[server_end, client_end], &stopped, one_way_delay));
        Ok(Self { server_ip: server, client_ip: client, namespace, stop: Some(stop), forwarder: Some(forwarder) })
    }

    /// Address of this machine on the link, for a server to listen on.
    #[must_use]
    pub const fn server_ip(&self) -> IpAddr {
        IpAddr::V4(self.server_ip)
    }

    /// Address of the client on the link.
    #[must_use]
    pub const fn client_ip(&self) -> IpAddr {
        IpAddr::V4(self.client_ip)
    }

    /// Runs curl at the client's end of the link.
    pub async fn curl(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let mut command = curl_command(&[&["--noproxy", "*"], arguments].concat());
        self.enter_namespace(&mut command);
        run_command(&mut command).await
    }

    /// Runs a program at the client's end of the link.
    pub async fn run_program(&self, program: &Path, arguments: &[&str]) -> Result<CommandOutput> {
        let mut command = tokio::process::Command::new(program);
        command.args(arguments);
        self.enter_namespace(&mut command);
        run_command(&mut command).await
    }

    #[expect(unsafe_code, reason = "only async-signal-safe calls between fork and exec: setns, sched_setscheduler")]
    fn enter_namespace(&self, command: &mut tokio::process::Command) {
        let namespace = self.namespace.as_raw_fd();
        let setup = move || {
            // Late acknowledgments would make the link look slower, so the client must not wait for a CPU.
            let _ = use_realtime_priority();
            // SAFETY: a system call without memory. The link outlives the command.
            check_syscall(unsafe { libc::setns(namespace, libc::CLONE_NEWNET) })
        };
        // SAFETY: the closure neither allocates nor locks.
        unsafe { command.pre_exec(setup) };
    }
}

impl Drop for DelayedLink {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread owns the only descriptors of the devices, so they are gone after it ends.
        let _ = self.forwarder.take().map(JoinHandle::join);
    }
}

/// Forwards packets between both ends until the other end of `stopped` is closed. All packets have the same delay, so
/// one queue keeps them in order.
fn forward_packets(ends: &[File; 2], stopped: &PipeReader, one_way_delay: Duration) -> io::Result<()> {
    // Without permission for real-time priority, the delay is less exact on a busy machine.
    let _ = use_realtime_priority();
    let mut queue: VecDeque<(Instant, usize, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    loop {
        while let Some((_, to, packet)) = queue.pop_front_if(|(due, ..)| *due <= Instant::now()) {
            (&ends[to]).write_all(&packet)?;
        }
        let timeout = queue.front().map(|(due, ..)| due.saturating_duration_since(Instant::now()));
        let ready = poll_readable([ends[0].as_fd(), ends[1].as_fd(), stopped.as_fd()], timeout)?;
        if ready[2] {
            return Ok(());
        }
        for from in (0..ends.len()).filter(|&end| ready[end]) {
            let length = (&ends[from]).read(&mut buffer)?;
            queue.push_back((Instant::now() + one_way_delay, 1 - from, buffer[..length].to_vec()));
        }
    }
}

/// Gives the calling thread real-time priority, so that packets do not wait on a busy machine.
#[expect(unsafe_code, reason = "std has no scheduling classes")]
fn use_realtime_priority() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads one `sched_param`; 0 is the calling thread.
    check_syscall(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) })
}

/// Opens one end in the network namespace of the calling thread.
fn open_tun_end(local: Ipv4Addr, peer: Ipv4Addr) -> Result<File> {
    let (file, device) = open_tun_device().context("failed to open a TUN device; run as root")?;
    let (local, peer) = (local.to_string(), peer.to_string());
    run_ip(&["address", "add", &local, "peer", &peer, "dev", &device])?;
    run_ip(&["link", "set", &device, "up"])?;
    Ok(file)
}

fn run_ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.context("failed to run ip; install iproute2")?;
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Moves the calling thread into a new network namespace.
#[expect(unsafe_code, reason = "std has no namespaces")]
fn enter_new_namespace() -> io::Result<File> {
    // SAFETY: a system call without memory.
    check_syscall(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    File::open("/proc/thread-self/ns/net")
}

/// Creates a TUN device, which exists as long as the file is open, and returns its name.
#[expect(unsafe_code, reason = "a TUN device is created by an ioctl")]
fn open_tun_device() -> io::Result<(File, String)> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    // SAFETY: plain integers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, byte) in request.ifr_name.iter_mut().zip(DEVICE) {
        *target = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the kernel reads and writes one `ifreq`.
    check_syscall(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    // SAFETY: the kernel terminates the name with a zero.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    Ok((file, name.to_string_lossy().into_owned()))
}

/// Waits until one of the files is readable or closed, or the timeout expires; returns which are ready.
#[expect(unsafe_code, reason = "std has no poll, and the link needs a resolution below a millisecond")]
fn poll_readable<const N: usize>(files: [BorrowedFd<'_>; N], timeout: Option<Duration>) -> io::Result<[bool; N]> {
    let mut polled = files.map(|file| libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    let timeout = timeout
        .map(|time| libc::timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the array has N elements, the timeout is null or outlives the call, and the mask is null.
    match check_syscall(unsafe { libc::ppoll(polled.as_mut_ptr(), N as libc::nfds_t, timeout, ptr::null()) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        Ok(()) | Err(_) => Ok(polled.map(|file| file.revents != 0)),
    }
}

fn check_syscall(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
