//! The `whimbrel` command. Thin: arguments in, exit code out; everything else lives in the
//! libraries.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a program around the machines owns clocks and threads"
)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is what a command is for"
)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are for terminals: brackets mean optional"
)]

mod arguments;
mod command;
mod exit;
mod logging;
mod progress;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use arguments::Arguments;

/// glibc's allocator asks the kernel for room a few pages at a time in every thread but the first,
/// and gives the memory of each chunk back: a third of the time of a first transfer.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start(&arguments.logging, arguments.command.is_daemon());
    match command::run(arguments.command) {
        Ok(code) => code.into(),
        Err(failure) => {
            failure.tell();
            failure.exit.into()
        }
    }
}
