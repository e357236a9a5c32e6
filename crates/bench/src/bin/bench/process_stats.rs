//! CPU time and memory of processes, from the kernel.

use std::fs;

use ipseity_testkit::process::descendants;

/// The kernel reports CPU time in hundredths of a second.
const TICK_US: u64 = 10_000;

/// CPU time of a process and its running descendants in microseconds.
pub(crate) fn process_tree_cpu_us(root: u32) -> u64 {
    descendants(root).into_iter().chain([root]).map(process_cpu_us).sum()
}

fn process_cpu_us(pid: u32) -> u64 {
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in parentheses and may contain any character. utime and stime are the 12th and 13th fields after
        // it.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    };
    ticks().unwrap_or_default() * TICK_US
}

/// Resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let kib = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    kib().unwrap_or_default() * 1024
}

/// Name and number of this machine's processors.
pub(crate) fn machine_info() -> (String, usize) {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    (model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned()), cores)
}
