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

use arguments::Arguments;

fn main() -> ExitCode {
    whimbrel_io::memory::keep_freed_chunks();
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
