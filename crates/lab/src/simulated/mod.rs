//! Contents and the clock's origin of simulated transfers.

mod content;

pub use content::RepeatingContent;

/// Unix time at the origin of every simulation, in milliseconds: 2026-01-01.
pub(crate) const ORIGIN_UNIX_MS: u64 = 1_767_225_600_000;
