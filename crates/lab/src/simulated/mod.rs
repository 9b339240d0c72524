//! Scenarios in the simulator: the protocol machines that ship, in virtual time.

mod content;
mod fig7;
mod tcp;

pub use content::RepeatingContent;
pub use fig7::{SimulatedFig7, SimulatedFig7Options};
pub use tcp::simulated_tcp;

pub(crate) use fig7::ORIGIN_UNIX_MS;
