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
pub(crate) mod group;
mod guest;
pub(crate) mod http_proxy;
pub(crate) mod identity;
pub(crate) mod inbox;
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
pub(crate) mod push;
mod routes;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod status;
pub(crate) mod study;
pub(crate) mod tcp_proxy;
mod transfer;
mod unfinished;
mod waiting;
mod wanted;

use crate::arguments::Command;
pub(crate) use crate::results::{Outcome, json_line, json_text, out, stop_flag, tell, tell_json};

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
        Command::Push(command) => push::run(command),
        Command::Message(command) => push::message(command),
        Command::Inbox(command) => inbox::run(command),
        Command::Group(command) => group::run(command),
        Command::Ping(command) => ping::run(command),
        Command::Perf(command) => perf::run(command),
        Command::Ndn(command) => ndn::run(command),
        Command::HttpProxy(command) => http_proxy::run(command),
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
