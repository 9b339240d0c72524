//! A fetcher and a producer over paths of all kinds.

mod answers;
mod delivery;
mod discovery;
mod faces;
mod last_segment;
mod setup;
mod windows;
