//! Deterministic discrete-event simulation, and the link model that it shares with the real-time
//! emulator.
//!
//! | module | holds |
//! |---|---|
//! | [`link`] | [`link::LinkSpec`], the properties of one direction of a link, and [`link::LinkDirection`], which implements them |
//! | [`disk`] | [`SimulatedDisk`], which outlives the crash of its node |
//! | [`simulator`] | [`Simulator`]: machines on nodes, frames on links, virtual time, faults |
//! | [`tcp`] | TCP endpoints and a relay, as a baseline |
//! | [`testbed`] | for tests: networks whose nodes restart after a crash, faults and schedules of faults |
//! | [`trace`] | the record of a run, hashed or written as text |
//! | [`bounce`](mod@bounce) | a load for measuring the simulator itself |
//! | [`any`] | [`AnyMachine`], for machines of different types in one simulation |
//!
//! A file over TCP, through a router and a last hop that loses 1 % and is out for three seconds:
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//! use whimbrel_core::Time;
//! use whimbrel_sim::link::{presets::study_mftp, Loss};
//! use whimbrel_sim::tcp::{Relay, TcpClient, TcpConfig, TcpEvent, TcpServer};
//! use whimbrel_sim::{AnyMachine, DuplexLink, Simulator};
//!
//! let (near, far) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
//! let mut sim: Simulator<AnyMachine<TcpEvent>> = Simulator::new(1);
//! let server = sim.add_node("N1", AnyMachine::plain(TcpServer::new(TcpConfig::new(near))));
//! let router = sim.add_node("N3", AnyMachine::new(Relay::new(), |never| match never {}));
//! let client = TcpClient::new(TcpConfig::new(far), near, Duration::from_millis(500));
//! let client = sim.add_node("N4", AnyMachine::plain(client));
//! let study = study_mftp(Duration::from_millis(50), Loss::Independent(0.01));
//! sim.connect(server, router, &DuplexLink::ip(study.router_link.clone(), study.router_link, 1500))?;
//! let wifi = DuplexLink::ip(study.wifi_downlink, study.wifi_uplink, 1500);
//! let wifi = sim.connect(router, client, &wifi)?.link;
//! sim.schedule(Time::from_secs(1), move |sim| sim.partition(wifi));
//! sim.schedule(Time::from_secs(4), move |sim| sim.repair(wifi));
//! sim.with_node(client, |m, now| m.get_mut::<TcpClient>().map(|tcp| tcp.fetch(now, 1_000_000)));
//! sim.run_until_idle(Time::from_secs(120));
//! let fetch = &sim.node(client).get::<TcpClient>().ok_or("another machine")?.fetches()[0];
//! assert!(fetch.response_time().is_some_and(|took| took > Duration::from_secs(3)), "{fetch:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo bench -p whimbrel-sim` measures frames per second on one core; the aim is a million.
#![forbid(unsafe_code)]

pub mod any;
pub mod bounce;
pub mod disk;
pub mod link;
pub mod simulator;
pub mod tcp;
pub mod testbed;
pub mod trace;

pub use any::AnyMachine;
pub use disk::SimulatedDisk;
pub use simulator::{
    Connection, Direction, Door, DuplexLink, LinkId, NodeId, Occurrence, Simulator, Tap, Trace,
};
