//! The systems that [PTP §7] compares with, behind the interfaces for strategies and congestion laws.
//!
//! | module | holds |
//! |---|---|
//! | `rfa` | `/localhost/nfd/strategy/rfa/v=1`: next hops by how few Interests are pending at them |
//! | `paf` | `/localhost/nfd/strategy/paf/v=1`: next hops by probabilities that round trips reinforce |
//! | `chopcop` | `/localhost/nfd/strategy/chopcop/v=1`: Interests shaped to fair shares, Data marked early |
//! | `raaqm` | a window that decreases at random, by the position of a round trip among those of its route |

// Machines, in a crate of drivers: time comes in as an argument.
#![deny(clippy::disallowed_methods)]

mod chopcop;
mod paf;
mod raaqm;
mod rfa;
mod route_label;

use whimbrel_forwarder::strategy::{StrategyKind, StrategyKinds};

pub use raaqm::raaqm;

/// All strategies: those of every forwarder, and these.
pub const STRATEGIES: StrategyKinds = StrategyKinds::with(&[
    StrategyKind {
        word: "rfa",
        version: 1,
        make: |given, memory| Ok(Box::new(rfa::Rfa::new(given, memory)?)),
    },
    StrategyKind {
        word: "paf",
        version: 1,
        make: |given, memory| Ok(Box::new(paf::Paf::new(given, memory)?)),
    },
    StrategyKind {
        word: "chopcop",
        version: 1,
        make: |given, memory| Ok(Box::new(chopcop::Chopcop::new(given, memory)?)),
    },
]);
