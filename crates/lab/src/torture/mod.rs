//! Random faults upon networks of hosts, routers and name servers, in virtual time.
//!
//! The promise that is tried: what was acknowledged is delivered, once and intact; when the faults
//! end, every transfer that is still wanted completes; then the memory of every node is as it was
//! before. A [`Schedule`] is drawn from a seed and carried out upon a [`World`]; a schedule that
//! breaks the promise is shrunk to the acts that matter.

mod batch;
mod library;
mod schedule;
mod shrink;
mod transfers;
mod verdict;
mod world;

pub use batch::{Broken, run_batch};
pub use schedule::{Act, Layout, Schedule, Step};
pub use shrink::shrink;
pub use verdict::{Fault, Report};
pub use world::World;
