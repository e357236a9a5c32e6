//! `ipseity`: the service and its command line.

mod cli;
mod config;
mod core_dumps;
mod geo;
mod node;
mod tasks;
mod telemetry;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// A request makes dozens of small allocations. With the system's allocator they take a tenth of its time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match core_dumps::disable_core_dumps().and_then(|()| cli.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            // There is nowhere to report a failed write to standard error.
            let _ = writeln!(stderr, "error: {error}");
            for cause in error.chain().skip(1) {
                let _ = writeln!(stderr, "  caused by: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}
