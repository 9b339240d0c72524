//! A testbed for machines: networks of them, faults, and schedules of faults.
//!
//! A [`Net`] is a [`Simulator`](crate::Simulator) that can rebuild each node's machine, so that any
//! node can crash and come back at any moment. It ends each [`Fault`] in time. A list of [`Step`]s
//! schedules faults, and [`shrink`] finds the steps that matter. A node's clock may run fast or
//! slow and jump ahead ([`clock::Clocked`]). A [`Probe`] is a peer under the control of the test.
//!
//! ```
//! use std::time::Duration;
//! use whimbrel_core::Time;
//! use whimbrel_sim::link::{LinkSpec, Loss};
//! use whimbrel_sim::testbed::{Fault, Net, Probe};
//! use whimbrel_sim::{Direction, DuplexLink};
//!
//! let wire = LinkSpec::new(8_000_000, Duration::from_millis(10));
//! let mut net = Net::pair(7, &DuplexLink::symmetric(wire), |_, _| Probe::default())?;
//! net.strike(&Fault::Outage { link: 0, directions: 1, lasts: Duration::from_secs(1) });
//! for at in [0, 2] {
//!     net.run_until(Time::from_secs(at));
//!     let port = net.port(0);
//!     net.with(0, |probe, _| probe.send(port, b"frame"));
//! }
//! net.run_until(Time::from_secs(3));
//! assert_eq!(net[1].frames().count(), 1);
//! # Ok::<(), whimbrel_sim::link::LinkSpecError>(())
//! ```

pub mod clock;
mod fault;
mod net;
mod probe;
mod schedule;

pub use clock::Clocked;
pub use fault::{Fault, impaired};
pub use net::{Happening, Life, Net, TOLERATED};
pub use probe::{Heard, Probe};
pub use schedule::{Step, draw_lasting, draw_pause, shrink};
