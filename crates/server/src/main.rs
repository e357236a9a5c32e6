//! `ipseity`: the service and its command line.

mod cli;
mod config;
mod core_dumps;
mod geo;
mod node;
mod tasks;
mod telemetry;

use std::io::{self, Write};
use std::iter;
use std::process::ExitCode;

use clap::Parser;
use ipseity_domain::causes;
use mimalloc::MiMalloc;

/// A request makes dozens of small allocations. With the system's allocator they take a tenth of its time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match core_dumps::disable_core_dumps().and_then(|()| cli.run()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output, such as `head`, has read enough. Like a program that SIGPIPE ends.
        Err(error) if is_closed_pipe(&error) => ExitCode::from(141),
        Err(error) => {
            let mut stderr = io::stderr().lock();
            for (text, prefix) in
                causes(&*error).texts().iter().zip(iter::once("error").chain(iter::repeat("  caused by")))
            {
                // There is nowhere to report a failed write to standard error.
                let _ = writeln!(stderr, "{prefix}: {text}");
            }
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
