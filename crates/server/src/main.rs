//! `ipseity`: the service and its command line.

mod assemble;
mod certificates;
mod command;
mod config;
mod door;
mod dumps;
mod fetch;
mod gauges;
mod heal;
mod keeper;
mod link;
mod ops;
mod otlp;
mod outcome;
mod pages;
mod preset;
mod proxies;
mod publish;
mod relay;
mod renewal;
mod rollup;
mod sockets;
mod telemetry;
mod unpack;
mod update;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A request makes some dozens of small allocations: with the system's allocator they take a tenth of its time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let line = command::Line::parse();
    match dumps::forbid().and_then(|()| line.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            // Nobody is left to tell when stderr itself fails.
            let _ = writeln!(stderr, "error: {error}");
            for cause in error.chain().skip(1) {
                let _ = writeln!(stderr, "  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}
