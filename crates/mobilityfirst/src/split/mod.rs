//! Bifurcation: the node where the next hops of a flow diverge divides it among them [MF-5G §III].
//!
//! | module | holds |
//! |---|---|
//! | [`schedule`] | the choice of the branch for the next chunk, from measurements |
//! | `flow` | the state of one divided flow: its chunks waiting and in flight, and its branches |
//!
//! Chunks of a divided flow wait in one queue, bound to no branch, until a branch pulls the first
//! one. `links::division` connects both modules with the hops.

pub(crate) mod flow;
pub mod schedule;

use core::fmt;
use core::str::FromStr;

/// The rule by which a flow is divided among its next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduler {
    /// A branch with room takes the next chunk if it can deliver it early enough.
    #[default]
    Pull,
    /// By weights alone: deterministic shares.
    Weights,
    /// Each chunk to a branch drawn with the measured rate as weight: the scheduler of the prototype
    /// [MF-PROTO], for any number of branches.
    Paper,
    /// Each branch in turn.
    RoundRobin,
}

impl Scheduler {
    /// All of them, with their names in configurations.
    pub const ALL: [(Scheduler, &'static str); 4] = [
        (Scheduler::Pull, "pull"),
        (Scheduler::Weights, "weights"),
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

/// A node's settings for divided flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitConfig {
    /// The rule.
    pub scheduler: Scheduler,
    /// Bytes that may overtake a chunk in flight on a slower branch, by the forecast.
    pub reorder_budget: u64,
    /// True if the node sends Pace messages about divided flows, and waits for those of others.
    pub pace: bool,
}

impl Default for SplitConfig {
    fn default() -> SplitConfig {
        SplitConfig {
            scheduler: Scheduler::Pull,
            // Below the quarter of a host's default buffer that one download may hold.
            reorder_budget: 8 << 20,
            pace: true,
        }
    }
}
