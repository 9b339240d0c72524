//! Bifurcation: the node where the next hops of a flow part divides it among them [MF-5G §III].
//!
//! | module | holds |
//! |---|---|
//! | [`schedule`] | which branch takes the next chunk, as a function of what is measured |
//! | `ledger` | one divided flow: what waits, what is under way on which branch, in what order |
//!
//! Chunks of a divided flow wait in one queue, bound to no branch, until a branch pulls the first
//! one. `links::divided` connects both modules with the hops.

pub(crate) mod ledger;
pub mod schedule;

use core::fmt;
use core::str::FromStr;

/// How a flow is divided among its next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// A branch with room takes the next chunk if that is complete early enough there.
    #[default]
    Pull,
    /// By weights alone, whatever is measured: deterministic shares.
    Weights,
    /// By weight times measured rate.
    Rates,
    /// Each chunk to a branch drawn with the measured rate as weight: the scheduler of the prototype
    /// [MF-PROTO], for any number of branches.
    Paper,
    /// Each branch in turn.
    RoundRobin,
}

impl Scheduler {
    /// All of them, with their names in configurations.
    pub const ALL: [(Scheduler, &'static str); 5] = [
        (Scheduler::Pull, "pull"),
        (Scheduler::Weights, "weights"),
        (Scheduler::Rates, "rates"),
        (Scheduler::Paper, "paper"),
        (Scheduler::RoundRobin, "round-robin"),
    ];
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = Scheduler::ALL.iter();
        let name = all.find(|(it, _)| it == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for Scheduler {
    type Err = String;

    fn from_str(text: &str) -> Result<Scheduler, String> {
        let mut all = Scheduler::ALL.iter();
        let found = all.find(|(_, name)| *name == text);
        found.map(|(it, _)| *it).ok_or_else(|| {
            let names: Vec<&str> = Scheduler::ALL.iter().map(|(_, name)| *name).collect();
            format!(
                "there is no scheduler '{text}'; there are {}",
                names.join(", ")
            )
        })
    }
}

/// How a node divides flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitConfig {
    /// Who decides.
    pub scheduler: Scheduler,
    /// Bytes that may arrive at the receiver ahead of a chunk that is under way on a slower branch,
    /// as far as that can be foreseen.
    pub reorder_budget: u64,
}

impl Default for SplitConfig {
    fn default() -> SplitConfig {
        SplitConfig {
            scheduler: Scheduler::Pull,
            // Below the quarter of a host's default buffer that one download may hold.
            reorder_budget: 8 << 20,
        }
    }
}
