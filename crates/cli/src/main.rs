//! The `whimbrel` command. Thin: arguments in, exit code out; everything else lives in the
//! libraries.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a program around the machines owns clocks and threads"
)]
// They panic where the stream cannot be written: `logging::say` and `results::out` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts are for terminals: brackets mean optional"
)]

mod arguments;
mod command;
mod exit;
mod logging;
mod progress;
mod results;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use arguments::Arguments;
use exit::Exit;

/// glibc's allocator asks the kernel for room a few pages at a time in every thread but the first,
/// and gives the memory of each chunk back: a third of the time of a first transfer.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let exit = match Arguments::try_parse() {
        Ok(arguments) => {
            logging::start(&arguments.logging, arguments.command.is_daemon());
            command::run(arguments.command).unwrap_or_else(|failure| {
                failure.tell();
                failure.exit
            })
        }
        Err(told) => usage(&told),
    };
    logging::flush();
    exit.into()
}

/// Prints the help that was asked for, or what is wrong with the arguments.
fn usage(told: &clap::Error) -> Exit {
    let shown = |is_terminal: bool| match is_terminal && std::env::var_os("NO_COLOR").is_none() {
        true => told.render().ansi().to_string(),
        false => told.render().to_string(),
    };
    if told.use_stderr() {
        logging::say_plainly(&shown(std::io::stderr().is_terminal()));
        Exit::Usage
    } else {
        command::out(&shown(std::io::stdout().is_terminal()));
        Exit::Done
    }
}
