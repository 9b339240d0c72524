//! The netns lab: hosts as network namespaces, and between them the simulator's link model in real
//! time.
//!
//! The one invariant: **nothing of a lab has a name outside of the process that made it.**
//! Namespaces, TUN devices and processes hang on file descriptors, so the kernel removes them
//! however the process ends.
//!
//! | module | holds |
//! |---|---|
//! | [`privileges`] | this process's privileges, and how it gets them without root |
//! | [`namespace`] | [`Namespace`], one host: interfaces, sysctls, programs |
//! | [`process`] | [`Process`], a program in a host or on this machine |
//! | [`supervisor`] | [`Supervisor`] and [`Program`]: programs with a log, whose lines are read |
//! | [`tun`] | [`Tun`], the end of an emulated link |
//! | [`emulator`] | [`Emulator`], which moves packets through `whimbrel_sim::link` in real time |
//! | [`topology`] | [`TopologyBuilder`] and [`Topology`]: hosts with links between them |
//! | [`probe`] | [`PingReport`], round-trip times |
//! | [`scratch`] | folders for the files of a run |
//! | [`cbr`] | the consumer of the BELRP study |
//! | [`rivals`] | what [PTP §7] compares with: strategies and a congestion law |
//! | [`scenario`] | networks, loads and events as a file that both back ends run |
//! | [`simulated`] | [`RepeatingContent`], files of any size in the memory of one block |
//! | [`demo`] | kernel TCP and Whimbrel side by side |
//! | [`figure`] | pictures |
//! | [`study`] | a paper's figures again |
//! | [`attack`] | attacks on real daemons: their cost, and the harm to honest users |
//! | [`torture`] | random faults upon networks of hosts and routers |
//! | [`transfer`] | [`TransferRecord`], the measurements of any transfer |
//! | [`baseline`] | [`TcpBaseline`], the same file by the kernel's TCP |
//! | [`browser`] | a page of many objects, and Chromium that loads it |
//! | [`journal`] | the finished runs of a batch that was interrupted |
//! | [`web`] | pages from a model, their server, and a browser emulator |
// The lab is a driver: it works in real time, with threads, sockets and sleeps.
#![allow(clippy::disallowed_methods)]

pub mod attack;
pub mod baseline;
pub mod browser;
pub mod cbr;
pub mod demo;
pub mod dtn;
pub mod emulator;
pub mod error;
pub mod figure;
mod jobs;
pub mod journal;
pub mod mobility;
pub mod namespace;
pub mod ndnd;
pub mod privileges;
pub mod probe;
pub mod process;
pub mod rivals;
pub mod scenario;
pub mod scratch;
pub mod simulated;
pub mod study;
pub mod supervisor;
pub mod topology;
pub mod torture;
pub mod transfer;
pub mod tun;
pub mod web;

pub use baseline::{
    CongestionControl, HttpClient, Subflow, TcpBaseline, TcpBuffers, TcpRoute, TcpTransfer,
};
pub use emulator::{Direction, DirectionReport, EmulatedLink, Emulator, LinkReport, Scheduling};
pub use error::LabError;
pub use namespace::Namespace;
pub use privileges::{Privileges, check_lab, ensure_privileges, lab_available};
pub use probe::PingReport;
pub use process::Process;
pub use simulated::RepeatingContent;
pub use supervisor::{Program, Supervisor};
pub use topology::{Topology, TopologyBuilder};
pub use transfer::{
    MOST_PAUSES, Pause, SenderSample, TransferMeter, TransferObserver, TransferRecord,
};
pub use tun::Tun;
