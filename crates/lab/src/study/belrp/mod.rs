//! The studies of best-effort reliability on links ([BELRP §IV]), in virtual time:
//! whole NDN routers, a consumer and a producer, over links that lose frames. The measured code is
//! the code that ships. Networks, consumers and kinds of recovery are scenarios
//! ([`crate::scenario`]).
//!
//! | module | holds |
//! |---|---|
//! | [`line`] | Figs. 2, 3 and 6 (a), Tables II and III: a line of routers, over rates of loss or over hops |
//! | [`abilene`] | Figs. 4 to 7, Tables IV and V: the Abilene network |
//! | [`network`] | a run, and the counters of each link and each consumer |
//! | [`losses`] | the real losses, by watching the links |
//! | [`matrix`] | all runs of a study by step and variant; tables with the paper's numbers beside ours |
//! | [`goals`] | the goals of the `adaptive` profile |
//! | [`reading`] | readings of the paper other than its literal text |

pub(super) mod abilene;
mod goals;
mod line;
mod losses;
mod matrix;
mod network;
mod reading;

pub(super) use line::{hops, linear};

/// The recovery of lost frames on every link of a network: the labels of a scenario's sweep
/// `recovery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Variant {
    /// The paper's protocol with at most 3 retransmissions of a frame.
    Paper3,
    /// The same with at most 2.
    Paper2,
    /// The same with at most 1.
    Paper1,
    /// No recovery on links: the consumer asks again.
    None,
    /// No recovery on links, and routers keep no Data.
    NoneUncached,
    /// NFD's recovery.
    Ndnlpv2,
    /// Whimbrel's recovery.
    Adaptive,
}

impl Variant {
    const ALL: [Variant; 7] = [
        Variant::Paper3,
        Variant::Paper2,
        Variant::Paper1,
        Variant::None,
        Variant::NoneUncached,
        Variant::Ndnlpv2,
        Variant::Adaptive,
    ];

    /// Returns its name in scenarios, `paper.toml` and file names.
    const fn key(self) -> &'static str {
        match self {
            Variant::Paper3 => "paper-3",
            Variant::Paper2 => "paper-2",
            Variant::Paper1 => "paper-1",
            Variant::None => "none",
            Variant::NoneUncached => "none-uncached",
            Variant::Ndnlpv2 => "ndnlpv2",
            Variant::Adaptive => "adaptive",
        }
    }

    /// Returns its name in tables and legends.
    const fn title(self) -> &'static str {
        match self {
            Variant::Paper3 => "paper, at most 3",
            Variant::Paper2 => "paper, at most 2",
            Variant::Paper1 => "paper, at most 1",
            Variant::None => "end to end only",
            Variant::NoneUncached => "end to end only, no caches",
            Variant::Ndnlpv2 => "NDNLPv2",
            Variant::Adaptive => "adaptive",
        }
    }

    /// Returns true for the paper's protocol.
    const fn is_papers(self) -> bool {
        matches!(self, Variant::Paper3 | Variant::Paper2 | Variant::Paper1)
    }

    const fn recovers(self) -> bool {
        !matches!(self, Variant::None | Variant::NoneUncached)
    }
}
