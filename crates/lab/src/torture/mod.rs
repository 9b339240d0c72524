//! Random faults upon networks of hosts, routers and name servers, on the test bed
//! ([`whimbrel_sim::testbed`]).
//!
//! The promise that is tried: what was acknowledged is delivered, once and intact; when the faults
//! end, every transfer that is still wanted completes; then the memory of every node is as it was
//! before. A [`Schedule`] is drawn from a seed and carried out upon a network of hosts and routers, or
//! upon an NDN site, where nothing may pend at a router in the end; a schedule that
//! breaks the promise is shrunk to the acts that matter.

use core::time::Duration;

mod batch;
mod library;
mod ndn;
mod schedule;
mod transfers;
mod verdict;
mod world;

pub use batch::{Broken, run_batch};
pub use schedule::{Act, Layout, Schedule};
pub use verdict::{Breach, Report};
use world::World;

/// What a schedule is carried out upon.
trait Victim {
    /// Lets time go on.
    fn run_for(&mut self, duration: Duration) -> Result<(), Breach>;

    /// Does what a schedule says.
    fn perform(&mut self, act: &Act) -> Result<(), Breach>;

    /// Ends all faults, and checks that everything comes to its end.
    fn conclude(self) -> Result<Report, Breach>;
}
