//! One transfer of a study: over which path, by what, and when it is asked for.

mod real;
mod simulated;

use std::time::Duration;

use serde_json::Value;
use whimbrel_sim::link::{LinkSpec, Outage};

use super::{Backend, StudyOptions};
use crate::{Fig7, LabError, TransferRecord};

/// What carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approach {
    /// MFTP; proxies send what they store as soon as they can.
    Proactive,
    /// MFTP; proxies wait for a Push, and the client's NACK timer is set to this.
    ReceiverDriven {
        /// How long chunks may be missing before the client asks for them again.
        nack_timeout: Duration,
    },
    /// TCP Cubic: smoltcp's in virtual time, the kernel's in real time.
    Tcp,
}

/// What the access router's proxy did, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProxyUse {
    /// Pushed up to it.
    pub(super) stored: u64,
    /// Sent on because their way was open again.
    pub(super) released: u64,
    /// Sent on because their source said Push.
    pub(super) pushed: u64,
}

impl ProxyUse {
    /// From what a router says of itself; `None` if it says it otherwise.
    fn of(status: &Value) -> Option<ProxyUse> {
        let count = |name: &str| status["counters"][name].as_u64();
        Some(ProxyUse {
            stored: count("chunks_stored")?,
            released: count("chunks_released")?,
            pushed: count("chunks_pushed")?,
        })
    }
}

/// What a trial shows.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) record: TransferRecord,
    /// `None` of TCP.
    pub(super) proxy: Option<ProxyUse>,
}

/// A transfer on the testbed of [MFTP §5], Fig. 7.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    /// Names it within its study: letters, digits and hyphens, fit for a file name.
    pub(super) label: String,
    /// Names it to people.
    pub(super) title: String,
    pub(super) approach: Approach,
    /// Length of the file in bytes.
    pub(super) file_len: u64,
    /// Added between the routers.
    pub(super) rtt: Duration,
    /// The WiFi, without outages.
    pub(super) last_hop: LinkSpec,
    /// When the WiFi goes off, counted from the beginning of the link's schedule, and for how long.
    pub(super) off: Option<(Duration, Duration)>,
    /// When the file is asked for, counted from the beginning of the link's schedule.
    pub(super) asked: Duration,
    /// Of everything random.
    pub(super) seed: u64,
    /// After this time the transfer is given up.
    pub(super) patience: Duration,
}

impl Trial {
    /// Runs it on the back end that the options name.
    pub(super) fn run(&self, options: &StudyOptions) -> Result<Outcome, LabError> {
        match options.backend {
            Backend::Sim => simulated::run(self),
            Backend::Netns => real::run(self, &options.program),
        }
    }

    /// The testbed, whose link's schedule begins at `origin` of the emulator's time.
    fn testbed(&self, origin: Duration) -> Fig7 {
        let outage = |(start, duration)| Outage::Once {
            start: origin + start,
            duration,
        };
        let last_hop = LinkSpec {
            outages: self.off.into_iter().map(outage).collect(),
            ..self.last_hop.clone()
        };
        Fig7::new(self.rtt, last_hop)
    }

    fn failed(&self, reason: impl Into<String>) -> LabError {
        LabError::TransferFailed {
            transfer: self.title.clone(),
            reason: reason.into(),
        }
    }
}
