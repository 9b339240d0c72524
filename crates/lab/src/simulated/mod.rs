//! Scenarios in the simulator: the protocol machines that ship, in virtual time.

mod content;
mod dumbbell;
mod fig7;
mod switch;
mod tcp;

pub use content::RepeatingContent;
pub use dumbbell::{Contender, simulated_shares};
pub use fig7::{SimulatedFig7, SimulatedFig7Options};
pub use tcp::simulated_tcp;

pub(crate) use fig7::ORIGIN_UNIX_MS;
