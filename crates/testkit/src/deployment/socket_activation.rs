//! Passes listening sockets to a process, as systemd does (sd_listen_fds(3)).

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

const FIRST_FD: RawFd = 3;
/// Above every passed descriptor, so that none is overwritten.
const TEMP_FD_MIN: RawFd = 64;

/// A command that gets these sockets as descriptors 3 and up; a plain one without sockets.
pub(crate) fn command_with_sockets(program: &Path, sockets: &[&TcpListener]) -> Result<Command> {
    if sockets.is_empty() {
        return Ok(Command::new(program));
    }
    let copies = sockets.iter().map(|socket| dup_above(socket)).collect::<io::Result<Vec<_>>>()?;
    // LISTEN_PID must be the ID of the process itself, which a shell can set without a fork.
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""]).arg(program).env("LISTEN_FDS", sockets.len().to_string());
    pass_sockets(&mut command, copies);
    Ok(command)
}

#[expect(unsafe_code, reason = "std cannot choose a descriptor's number")]
fn dup_above(socket: &TcpListener) -> io::Result<OwnedFd> {
    // SAFETY: a system call without memory, on an open descriptor.
    let copy = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, TEMP_FD_MIN) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just created it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[expect(unsafe_code, reason = "only an async-signal-safe call between fork and exec: dup2")]
fn pass_sockets(command: &mut Command, copies: Vec<OwnedFd>) {
    let install_fds = move || {
        for (target, socket) in (FIRST_FD..).zip(&copies) {
            // SAFETY: a system call without memory; the copy is not closed on exec.
            if unsafe { libc::dup2(socket.as_raw_fd(), target) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure neither allocates nor locks.
    unsafe { command.pre_exec(install_fds) };
}
