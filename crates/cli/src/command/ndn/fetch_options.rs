//! Fetch options, named as in `ndnget`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use whimbrel_core::{Gains, RttOptions, units};
use whimbrel_lab::rivals::raaqm;
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::client::seeded;
use whimbrel_transport::rtt::NDNGET;
use whimbrel_transport::{
    Coupling, Delivery, Discovery, FetchOptions, ModelOptions, MpccpOptions, Multipath, Selection,
    Verify, WindowKind, WindowOptions,
};

use super::{millis, name};
use crate::exit::{Exit, Failure};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Pipeline {
    /// Always --pipeline-size Interests
    Fixed,
    /// Additive increase, multiplicative decrease
    Aimd,
    /// CUBIC
    Cubic,
    /// RAAQM: random decreases, more likely the higher a round trip ranks on its route
    Raaqm,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Find {
    /// Request the newest version (RDR metadata)
    Metadata,
    /// Take the first answer to the name as a prefix
    Prefix,
    /// The name is followed by segment numbers
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Select {
    /// Replace the path with the least bandwidth by a random one
    Bandwidth,
    /// Replace a random path by a random one
    Random,
    /// The fewest hops
    Hops,
    /// The shortest round trips
    Latency,
    /// The steadiest round trips
    Steadiness,
    /// Short and steady round trips
    Hybrid,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Law {
    /// Linked Increases: all paths together as aggressive as one flow on the best one
    Lia,
    /// Equally weighted TCP
    Ewtcp,
    /// Fully coupled
    Coupled,
    /// Each path is a flow of its own
    Uncoupled,
    /// Weighted Vegas, by delay
    Wvegas,
    /// By rate and shortest round trip of each path: for lossy networks and short queues
    Model,
}

/// The arguments.
#[derive(Args, Debug, Clone)]
pub(super) struct FetchArguments {
    /// Request only fresh segments
    #[arg(short, long)]
    fresh: bool,
    /// Lifetime of Interests, in milliseconds or with a unit
    #[arg(short, long, value_name = "TIME", default_value = "4000", value_parser = millis)]
    lifetime: Duration,
    /// How often a segment is requested again; -1 without limit
    #[arg(short, long, value_name = "N", default_value_t = 15, allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=1_000_000))]
    retries: i32,
    /// How long to continue while no route leads to the name (Nack NoRoute), as while a producer restarts; "0 s" to
    /// give up at once
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = units::parse_duration)]
    no_route_timeout: Duration,
    /// How the window of Interests changes; with --paths, that of Interests without a path
    #[arg(
        short,
        long,
        alias = "pipeline",
        value_name = "TYPE",
        value_enum,
        default_value = "cubic"
    )]
    pipeline_type: Pipeline,
    /// The window of `-p fixed`
    #[arg(short = 's', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pipeline_size: u32,
    /// How to find the version if the name has none
    #[arg(long, value_enum, default_value = "metadata", value_name = "HOW")]
    discovery: Find,
    /// The same as --discovery none
    #[arg(short = 'D', long, conflicts_with = "discovery")]
    no_version_discovery: bool,
    /// Do not shrink the window at congestion marks
    #[arg(long)]
    ignore_marks: bool,
    /// Shrink the window at each loss, not only once in a round trip
    #[arg(long)]
    disable_cwa: bool,
    /// End slow start only at losses and marks, not when the delay rises
    #[arg(long)]
    disable_delay_exit: bool,
    /// Initial window, in segments
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    init_cwnd: f64,
    /// Initial slow-start threshold, in segments; by default without limit
    #[arg(long, value_name = "N")]
    init_ssthresh: Option<f64>,
    /// Gain of the smoothed round-trip time
    #[arg(long, value_name = "X", default_value_t = 0.125)]
    rto_alpha: f64,
    /// Gain of its variation
    #[arg(long, value_name = "X", default_value_t = 0.25)]
    rto_beta: f64,
    /// Multiplier of the variation in the timeout
    #[arg(long, value_name = "X", default_value_t = 8.0)]
    rto_k: f64,
    /// Minimum timeout, in milliseconds or with a unit
    #[arg(long, value_name = "TIME", default_value = "200", value_parser = millis)]
    min_rto: Duration,
    /// Maximum timeout, in milliseconds or with a unit
    #[arg(long, value_name = "TIME", default_value = "60000", value_parser = millis)]
    max_rto: Duration,
    /// AIMD: increase of the window in a round trip, in segments
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    aimd_step: f64,
    /// AIMD: factor at a decrease
    #[arg(long, value_name = "X", default_value_t = 0.5)]
    aimd_beta: f64,
    /// AIMD: restart from the initial window after a loss
    #[arg(long)]
    reset_cwnd_to_init: bool,
    /// CUBIC: factor at a decrease
    #[arg(long, value_name = "X", default_value_t = 0.7)]
    cubic_beta: f64,
    /// CUBIC: fast convergence
    #[arg(long)]
    fast_conv: bool,
    /// Find paths by probing and use up to N at once, if routers on the way know path tags (PTP);
    /// 1 for none. By default a fetch of more than half a second looks for paths, and uses up to
    /// 10 beside the name if there are several
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    paths: Option<u16>,
    /// --paths: how to choose among more known paths than may be used
    #[arg(long, value_enum, value_name = "HOW", default_value = "bandwidth")]
    select: Select,
    /// --paths: how the windows of the paths are coupled
    #[arg(long, value_enum, value_name = "LAW", default_value = "lia")]
    law: Law,
    /// --paths: the interval at which a path may be replaced
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = units::parse_duration)]
    path_interval: Duration,
    /// --paths: the interval of probes
    #[arg(long, value_name = "TIME", default_value = "100 ms", value_parser = units::parse_duration)]
    probe_interval: Duration,
    /// --paths: how many Data of later Interests on a path show a loss: 1 or 2, or 0 for timeouts only
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    lost_after: u8,
    /// A forwarding hint: where routers may find the content if they have no route for its name;
    /// may be given several times
    #[arg(long, value_name = "NAME", value_parser = name)]
    hint: Vec<Name>,
}

impl FetchArguments {
    pub(super) fn discovery(&self) -> Discovery {
        match self.discovery {
            _ if self.no_version_discovery => Discovery::None,
            Find::Metadata => Discovery::Metadata,
            Find::Prefix => Discovery::Prefix,
            Find::None => Discovery::None,
        }
    }

    /// Returns true if the fetch looks for several paths.
    pub(super) fn uses_paths(&self) -> bool {
        self.paths != Some(1) && !(self.is_beside_name() && self.pipeline_type == Pipeline::Fixed)
    }

    /// Returns true if paths are used beside the name, as far as there are some.
    pub(super) const fn is_beside_name(&self) -> bool {
        self.paths.is_none()
    }

    fn multipath(&self) -> Multipath {
        let defaults = Multipath::default();
        Multipath {
            most: self.paths.unwrap_or(defaults.most),
            law: Some(self.coupled()),
            beside_name: self.is_beside_name(),
            review: self.path_interval,
            probing: self.probe_interval,
            select: match self.select {
                Select::Bandwidth => Selection::Bandwidth,
                Select::Random => Selection::Random,
                Select::Hops => Selection::Hops,
                Select::Latency => Selection::Latency,
                Select::Steadiness => Selection::Steadiness,
                Select::Hybrid => Selection::Hybrid,
            },
        }
    }

    fn coupled(&self) -> WindowKind {
        let coupling = |coupling| {
            WindowKind::Mpccp(MpccpOptions {
                coupling,
                ..MpccpOptions::default()
            })
        };
        match self.law {
            Law::Lia => coupling(Coupling::Linked),
            Law::Ewtcp => coupling(Coupling::Ewtcp),
            Law::Coupled => coupling(Coupling::Coupled),
            Law::Uncoupled => coupling(Coupling::Uncoupled),
            Law::Wvegas => WindowKind::WeightedVegas,
            Law::Model => WindowKind::Model(ModelOptions::default()),
        }
    }

    pub(super) const fn no_route_timeout(&self) -> Duration {
        self.no_route_timeout
    }

    pub(super) const fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Returns the checked options.
    pub(super) fn options(&self, verify: Verify) -> Result<FetchOptions, Failure> {
        let at_least = |option: &str, value: f64, least: f64| {
            if value.is_finite() && value >= least {
                Ok(value)
            } else {
                Err(Failure::new(
                    Exit::Usage,
                    format!("--{option} is {value}; it must be at least {least}"),
                ))
            }
        };
        let share = |option: &str, value: f64| {
            if value > 0.0 && value < 1.0 {
                Ok(value)
            } else {
                Err(Failure::new(
                    Exit::Usage,
                    format!("--{option} is {value}; it must be between 0 and 1"),
                ))
            }
        };
        if self.max_rto < self.min_rto {
            return Err(Failure::new(
                Exit::Usage,
                "--max-rto is shorter than --min-rto",
            ));
        }
        let random = || {
            let rng = seeded();
            rng.map(|mut rng| rng.next_word())
                .map_err(|error| Failure::new(Exit::Other, error.to_string()))
        };
        let kind = match self.pipeline_type {
            Pipeline::Fixed => WindowKind::Fixed(self.pipeline_size),
            Pipeline::Aimd => WindowKind::Aimd {
                step: at_least("aimd-step", self.aimd_step, 0.0)?,
                decrease: share("aimd-beta", self.aimd_beta)?,
                reset_to_initial: self.reset_cwnd_to_init,
            },
            Pipeline::Cubic => WindowKind::Cubic {
                beta: share("cubic-beta", self.cubic_beta)?,
                fast_convergence: self.fast_conv,
            },
            Pipeline::Raaqm => raaqm(random()?),
        };
        Ok(FetchOptions {
            discovery: self.discovery(),
            must_be_fresh: self.fresh,
            lifetime: self.lifetime,
            retries: u32::try_from(self.retries).ok(),
            no_route_patience: self.no_route_timeout,
            window: WindowOptions {
                kind,
                initial: at_least("init-cwnd", self.init_cwnd, 1.0)?,
                threshold: self.init_ssthresh.map_or(Ok(f64::INFINITY), |threshold| {
                    at_least("init-ssthresh", threshold, 1.0)
                })?,
                delay_exit: !self.disable_delay_exit,
            },
            rto: RttOptions {
                min: self.min_rto,
                max: self.max_rto,
                gains: Gains::Fractional {
                    alpha: share("rto-alpha", self.rto_alpha)?,
                    beta: share("rto-beta", self.rto_beta)?,
                },
                k: at_least("rto-k", self.rto_k, 0.0)?,
                ..NDNGET
            },
            multipath: self.uses_paths().then(|| self.multipath()),
            path_seed: random()?,
            lost_after: Some(self.lost_after).filter(|data| self.uses_paths() && *data > 0),
            ignore_marks: self.ignore_marks,
            once_per_round_trip: !self.disable_cwa,
            delivery: Delivery::InOrder,
            verify,
            forwarding_hint: self.hint.clone(),
            ..FetchOptions::default()
        })
    }
}
