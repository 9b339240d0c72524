//! The studies of best-effort reliability on links (BELRP; [BELRP §IV]), in virtual time:
//! whole NDN routers, a consumer and a producer, over links that lose frames. What is measured is
//! the code that ships.
//!
//! | module | holds |
//! |---|---|
//! | [`line`] | Figs. 2, 3 and 6 (a), Tables II and III: a line of routers, over rates of loss or over hops |
//! | [`abilene`] | Figs. 4 to 7, Tables IV and V: the Abilene network |
//! | [`network`] | builds a network, runs it, and answers with what each link and each consumer saw |
//! | [`node`] | router, consumer or producer as one machine type |
//! | [`losses`] | what was really lost, by watching the links |
//! | [`matrix`] | all runs of a study by step and variant; tables with the paper's numbers beside ours |
//! | [`goals`] | what the `adaptive` profile is for |
//! | [`statistics`] | means, spreads, percentiles |

pub(super) mod abilene;
mod goals;
mod line;
mod losses;
mod matrix;
mod network;
mod node;
mod statistics;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::RttOptions;
use whimbrel_core::units;
use whimbrel_link::ndnlp::Reliability;
use whimbrel_ndn_packet::Name;
use whimbrel_transport::cbr::{CbrConfig, Gaps, NDNSIM};

pub(super) use line::{hops, linear};

/// What recovers lost frames on every link of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Variant {
    /// The paper's protocol with at most 3 retransmissions of a frame.
    #[serde(rename = "paper-3")]
    Paper3,
    /// At most 2.
    #[serde(rename = "paper-2")]
    Paper2,
    /// At most 1.
    #[serde(rename = "paper-1")]
    Paper1,
    /// Nothing: the consumer asks again.
    None,
    /// Nothing, and routers keep no Data.
    NoneUncached,
    /// NFD's.
    Ndnlpv2,
    /// Whimbrel's.
    Adaptive,
}

impl Variant {
    /// As `paper.toml` and file names have it.
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

    /// As tables and legends have it.
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

    const fn reliability(self) -> Reliability {
        match self {
            Variant::Paper3 => Reliability::Paper {
                max_retransmissions: 3,
            },
            Variant::Paper2 => Reliability::Paper {
                max_retransmissions: 2,
            },
            Variant::Paper1 => Reliability::Paper {
                max_retransmissions: 1,
            },
            Variant::None | Variant::NoneUncached => Reliability::Off,
            Variant::Ndnlpv2 => Reliability::Ndnlpv2,
            Variant::Adaptive => Reliability::Adaptive,
        }
    }

    const fn caches(self) -> bool {
        !matches!(self, Variant::NoneUncached)
    }

    const fn recovers(self) -> bool {
        !matches!(self, Variant::None | Variant::NoneUncached)
    }
}

/// What all consumers of a scenario have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsumerSpec {
    /// How many Interests each sends, retransmissions not counted.
    interests: u64,
    gaps: GapsSpec,
    #[serde(with = "units::duration")]
    lifetime: Duration,
    /// Octets of content in each Data.
    payload: usize,
    /// The time-out is `multiplier x max(min_timeout, SRTT + variation_factor x RTTVAR)`.
    variation_factor: f64,
    #[serde(with = "units::duration")]
    initial_timeout: Duration,
    #[serde(with = "units::duration")]
    min_timeout: Duration,
    /// How often the time-out is looked at.
    #[serde(with = "units::duration")]
    check: Duration,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GapsSpec {
    Constant,
    Uniform,
    Exponential,
}

impl ConsumerSpec {
    /// The consumer of the Data under `prefix` at `rate` Interests a second.
    fn at(&self, prefix: Name, rate: f64) -> CbrConfig {
        CbrConfig {
            count: self.interests,
            rate,
            gaps: match self.gaps {
                GapsSpec::Constant => Gaps::Constant,
                GapsSpec::Uniform => Gaps::Uniform,
                GapsSpec::Exponential => Gaps::Exponential,
            },
            lifetime: self.lifetime,
            check: self.check,
            timeout: RttOptions {
                initial: self.initial_timeout,
                min: self.min_timeout,
                k: self.variation_factor,
                ..NDNSIM
            },
            ..CbrConfig::belrp(prefix)
        }
    }
}
