//! Child processes that end with this process, and signals to them and their descendants.
//!
//! `PR_SET_PDEATHSIG` fires when the *thread* that forked ends, and test threads end early. So one thread that lives as
//! long as the process forks all children.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::eventually;

const POLL_INTERVAL: Duration = Duration::from_millis(2);
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

type SpawnRequest = (Command, mpsc::Sender<io::Result<Child>>);

/// A running child in a separate process group. Dropping it kills it and its descendants.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
}

impl ChildProcess {
    /// Starts a command and appends its output to the file `log`.
    pub fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let log = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        kill_on_parent_exit(&mut command);
        let name = command.get_program().to_string_lossy().into_owned();
        let (reply, child) = mpsc::channel();
        spawner().send((command, reply)).context("the thread that starts processes has ended")?;
        let child = child.recv()?.with_context(|| format!("failed to start {name}"))?;
        Ok(Self { child })
    }

    /// Process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the process only, if it is running.
    pub(crate) fn signal(&mut self, signal: i32) {
        if self.is_running() {
            send_signal(self.child.id(), signal);
        }
    }

    /// Waits for the process to end.
    pub(crate) async fn wait_for_exit(&mut self, within: Duration) -> Result<ExitStatus> {
        let name = format!("process {} exits", self.pid());
        eventually(&name, within, async || !self.is_running()).await?;
        Ok(self.child.wait()?)
    }

    /// Stops the process and its descendants with SIGSTOP.
    pub(crate) fn freeze(&mut self) {
        // The parent first, so that it cannot fork while its children are listed.
        self.signal(libc::SIGSTOP);
        self.signal_descendants(libc::SIGSTOP);
    }

    /// Resumes a frozen process and its descendants.
    pub(crate) fn thaw(&mut self) {
        self.signal_descendants(libc::SIGCONT);
        self.signal(libc::SIGCONT);
    }

    /// Kills the process and its descendants with SIGKILL and waits until all are gone.
    pub(crate) fn kill9(&mut self) {
        if !self.is_running() {
            return;
        }
        self.signal(libc::SIGSTOP);
        let tree = descendants(self.pid());
        self.signal(libc::SIGKILL);
        tree.iter().for_each(|&pid| send_signal(pid, libc::SIGKILL));
        let _ = self.child.wait();
        let deadline = Instant::now() + KILL_TIMEOUT;
        while tree.iter().any(|&pid| is_alive(pid)) && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal, waits without an async runtime, and kills what still runs.
    pub(crate) fn stop_or_kill(&mut self, signal: i32, within: Duration) {
        self.thaw();
        self.signal(signal);
        let deadline = Instant::now() + within;
        while self.is_running() && Instant::now() < deadline {
            thread::sleep(POLL_INTERVAL);
        }
        self.kill9();
    }

    fn signal_descendants(&mut self, signal: i32) {
        if self.is_running() {
            descendants(self.pid()).into_iter().for_each(|pid| send_signal(pid, signal));
        }
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill9();
    }
}

fn spawner() -> mpsc::Sender<SpawnRequest> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let start = || {
        let (requests, inbox) = mpsc::channel::<SpawnRequest>();
        thread::spawn(move || {
            for (mut command, reply) in inbox {
                // If the requester is gone, the child is never dropped and ends with this process.
                let _ = reply.send(command.spawn());
            }
        });
        requests
    };
    SPAWNER.get_or_init(start).clone()
}

#[expect(unsafe_code, reason = "only async-signal-safe calls between fork and exec: prctl, getppid")]
fn kill_on_parent_exit(command: &mut Command) {
    let parent = std::process::id();
    let setup = move || {
        // SAFETY: both are plain system calls without memory.
        let (set, now) = unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::getppid()) };
        // The parent may have died before the call above.
        if set == 0 && u32::try_from(now) == Ok(parent) { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure neither allocates nor locks.
    unsafe { command.pre_exec(setup) };
}

#[expect(unsafe_code, reason = "std can only send SIGKILL")]
fn send_signal(pid: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        // SAFETY: kill takes no memory. It is fine if the process no longer exists.
        unsafe { libc::kill(pid, signal) };
    }
}

/// All descendants of a process.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some((_, parent)) = state_and_parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    found
}

fn is_alive(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != 'Z')
}

fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before this field is in parentheses and may contain any character.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
