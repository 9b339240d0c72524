//! Scenarios in the simulator: the protocol machines that ship, in virtual time.

mod content;
mod dumbbell;
mod fig7;
mod switch;

pub use content::RepeatingContent;
pub use dumbbell::{Contender, simulated_shares};
pub use fig7::{SimulatedFig7, SimulatedFig7Options};

pub(crate) use fig7::ORIGIN_UNIX_MS;
