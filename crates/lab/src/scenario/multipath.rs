//! Consumers of NDN that use several paths: `multipath = { paths = 10, ... }` of a load.

use core::time::Duration;

use serde::Deserialize;
use whimbrel_core::units;
use whimbrel_transport::{Coupling, ModelOptions, MpccpOptions, Multipath, Selection, WindowKind};

/// The section, with the options and the names of `ndn get --paths`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SeveralPaths {
    /// Bound of the paths in use.
    pub paths: u16,
    /// The choice among known paths.
    pub select: Select,
    /// The coupling of their windows.
    pub law: Law,
    /// Interval at which a path may be replaced.
    #[serde(with = "units::duration")]
    pub interval: Duration,
    /// Interval of probes.
    #[serde(with = "units::duration")]
    pub probing: Duration,
    /// The number of Data of later Interests after which an Interest is lost; 0 for timeouts only.
    pub lost_after: u8,
}

impl Default for SeveralPaths {
    /// Returns the paper's values.
    fn default() -> SeveralPaths {
        let paper = Multipath::default();
        SeveralPaths {
            paths: paper.most,
            select: Select::Bandwidth,
            law: Law::Lia,
            interval: paper.review,
            probing: paper.probing,
            lost_after: 1,
        }
    }
}

/// A choice of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// By the bandwidth measured so far.
    Bandwidth,
    /// At random.
    Random,
    /// By hops.
    Hops,
    /// By round trips.
    Latency,
    /// By the variation of round trips.
    Steadiness,
    /// By both.
    Hybrid,
}

/// A coupled law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Linked Increases.
    Lia,
    /// Equally weighted.
    Ewtcp,
    /// Fully coupled.
    Coupled,
    /// Not coupled.
    Uncoupled,
    /// Weighted Vegas.
    Wvegas,
    /// By a model of each path.
    Model,
}

impl SeveralPaths {
    /// Returns the key of a value that cannot be used, and the reason.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str)> {
        if !(2..=64).contains(&self.paths) {
            return Some(("paths", "2 to 64 paths are used"));
        }
        if self.lost_after > 2 {
            return Some(("lost_after", "0, 1 or 2 Data show a loss"));
        }
        let shortest = Duration::from_millis(1);
        if self.probing < shortest || self.interval < shortest {
            return Some(("probing", "intervals are at least 1 ms"));
        }
        None
    }

    pub(super) fn options(&self) -> Multipath {
        Multipath {
            most: self.paths,
            review: self.interval,
            probing: self.probing,
            select: match self.select {
                Select::Bandwidth => Selection::Bandwidth,
                Select::Random => Selection::Random,
                Select::Hops => Selection::Hops,
                Select::Latency => Selection::Latency,
                Select::Steadiness => Selection::Steadiness,
                Select::Hybrid => Selection::Hybrid,
            },
            ..Multipath::default()
        }
    }

    pub(super) fn window(&self) -> WindowKind {
        let coupling = match self.law {
            Law::Wvegas => return WindowKind::WeightedVegas,
            Law::Model => return WindowKind::Model(ModelOptions::default()),
            Law::Lia => Coupling::Linked,
            Law::Ewtcp => Coupling::Ewtcp,
            Law::Coupled => Coupling::Coupled,
            Law::Uncoupled => Coupling::Uncoupled,
        };
        WindowKind::Mpccp(MpccpOptions {
            coupling,
            ..MpccpOptions::default()
        })
    }

    /// Returns the equivalent options of `ndn get`.
    pub(super) fn arguments(&self) -> Vec<String> {
        let select = match self.select {
            Select::Bandwidth => "bandwidth",
            Select::Random => "random",
            Select::Hops => "hops",
            Select::Latency => "latency",
            Select::Steadiness => "steadiness",
            Select::Hybrid => "hybrid",
        };
        let law = match self.law {
            Law::Lia => "lia",
            Law::Ewtcp => "ewtcp",
            Law::Coupled => "coupled",
            Law::Uncoupled => "uncoupled",
            Law::Wvegas => "wvegas",
            Law::Model => "model",
        };
        let millis = |time: Duration| format!("{}ms", time.as_millis());
        [
            ("--paths", self.paths.to_string()),
            ("--select", select.to_owned()),
            ("--law", law.to_owned()),
            ("--path-interval", millis(self.interval)),
            ("--probe-interval", millis(self.probing)),
            ("--lost-after", self.lost_after.to_string()),
        ]
        .into_iter()
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect()
    }
}
