//! The studies of PTP beside its rivals ([PTP §6]): consumers of NDN with several paths, over the
//! paper's five networks. What is measured is the code that ships; networks and solutions are
//! scenarios ([`crate::scenario`]).
//!
//! | module | holds |
//! |---|---|
//! | [`networks`] | scenarios 1, 2 and 5: the throughput of each link beside the network's optimum |
//! | [`fairness`] | scenario 3: a consumer with two paths beside one with one |
//! | [`cache`] | scenario 4: a cache that appears, and is used up |
//! | [`random`] | beyond the paper: random networks with loss |
//! | [`optimum`] | the most that a network can carry |
//! | [`cells`] | the runs of a study, by case and solution |

pub(super) mod cache;
mod cells;
pub(super) mod fairness;
pub(super) mod networks;
mod optimum;
pub(super) mod random;
