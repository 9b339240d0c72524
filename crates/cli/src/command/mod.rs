//! One module for each command.

pub(crate) mod access;
mod attack;
pub(crate) mod bench;
mod bench_grid;
mod callers;
mod code;
pub(crate) mod configure;
pub(crate) mod demo;
pub(crate) mod directory;
pub(crate) mod doctor;
pub(crate) mod get;
mod guest;
pub(crate) mod identity;
pub(crate) mod interfaces;
pub(crate) mod keys;
pub(crate) mod lab;
mod name_copies;
pub(crate) mod names;
pub(crate) mod ndn;
pub(crate) mod node;
mod offering;
pub(crate) mod perf;
pub(crate) mod ping;
pub(crate) mod pointers;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod status;
pub(crate) mod study;
pub(crate) mod tcp_proxy;
mod waiting;
mod wanted;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use whimbrel_node::{diagnostics, exact_json};

use crate::arguments::Command;
use crate::exit::{self, Exit, Failure};
use crate::logging;

/// The result of a command.
pub(crate) type Outcome = Result<Exit, Failure>;

pub(crate) fn run(command: Command) -> Outcome {
    match command {
        Command::Router(command) => node::router(command),
        Command::Host(command) => node::host(command),
        Command::Gnrs(command) => names::run(command),
        Command::Id(command) => identity::run(&command),
        Command::Names(command) => directory::run(command),
        Command::Serve(command) => serve::run(command),
        Command::Send(command) => serve::send(command),
        Command::Publish(command) => pointers::publish(command),
        Command::Get(command) | Command::Receive(command) => get::run(command),
        Command::Ping(command) => ping::run(command),
        Command::Perf(command) => perf::run(command),
        Command::Ndn(command) => ndn::run(command),
        Command::TcpProxy(command) => tcp_proxy::run(command),
        Command::Face(command) => ndn::face::run(command),
        Command::Route(command) => ndn::route::run(command),
        Command::Strategy(command) => ndn::strategy::run(command),
        Command::Cs(command) => ndn::cs::run(command),
        Command::Status(command) => status::run(&command),
        Command::Key(command) => keys::run(command),
        Command::Config(command) => configure::run(&command),
        Command::Doctor(command) => doctor::run(&command),
        Command::Demo(command) => demo::run(command),
        Command::Study(command) => study::run(command),
        Command::Lab(command) => lab::run(command),
        Command::Bench(command) => bench::run(command),
        Command::Completions(command) => shell::completions(&command),
        Command::Man(command) => shell::man(&command),
    }
}

/// Returns a flag that the first Ctrl-C or SIGTERM sets; the second one ends the process.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    exit::note_signals()?;
    let flag = Arc::new(AtomicBool::new(false));
    for signal in exit::STOPPING {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            exit::BY_SIGNAL + signal,
            Arc::clone(&flag),
        )?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Prints one line of JSON on standard output.
pub(crate) fn json_line(value: &impl serde::Serialize) {
    if let Some(line) = json_text(value) {
        out(&line);
    }
}

/// Returns a line of JSON for programs.
pub(crate) fn json_text(value: &impl serde::Serialize) -> Option<String> {
    exact_json::line(value).ok().map(|text| text + "\n")
}

/// Prints one line of JSON about the work of a server, as [`tell`].
pub(crate) fn tell_json(value: &impl serde::Serialize) {
    if let Some(line) = json_text(value) {
        tell(&line);
    }
}

/// Prints text about the work of a server on standard output. The server continues if nobody takes
/// it; the lines that are lost are counted in its `/metrics`.
pub(crate) fn tell(text: &str) {
    diagnostics::stdout().push(text.as_bytes().to_vec());
}

/// Prints a result on standard output. Without it a command is useless: it ends, with a message
/// unless the reader has closed standard output, as `head` does.
pub(crate) fn out(text: &str) {
    if let Err(error) = diagnostics::write_result(text.as_bytes()) {
        let failure = Failure::unwritten_result(&error);
        failure.tell();
        logging::flush();
        std::process::exit(failure.exit.code().into());
    }
}
