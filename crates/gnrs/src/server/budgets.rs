//! What clients may cost: checks of signatures, and new records.

use whimbrel_core::{Distrust, Limit, Medium, Meter, PortId, PortInfo, Time, network_of};

use crate::quota::Quotas;

/// Checks for sources that are not proven.
const UNPROVEN: Limit = Limit::per_second(128);
/// A source brings one of so many parts of what there is room for.
const PARTS: usize = 4;

/// Where a client is: its network ([`network_of`]), whatever its port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    Network(u128),
    Port(PortId),
}

impl Source {
    pub(super) fn of(port: PortId, info: &PortInfo) -> Source {
        match info.medium {
            Medium::Udp { remote, .. } => Source::Network(network_of(remote.ip())),
            _ => Source::Port(port),
        }
    }
}

/// The budgets of all clients.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    unproven: Meter,
    distrust: Distrust<Source>,
    // Those of sources that are not proven count together.
    brought: Quotas<Option<Source>>,
}

impl Budgets {
    /// True if a record of this source may be checked; of one that is not proven, there is one less
    /// after that.
    pub(super) fn may_check(&mut self, now: Time, source: Option<Source>) -> bool {
        match source {
            Some(source) => self.distrust.may_check(now, source),
            None => self.unproven.admits(now, UNPROVEN),
        }
    }

    /// A proven source has sent a record with a bad signature.
    pub(super) fn note_bad(&mut self, now: Time, source: Option<Source>) {
        if let Some(source) = source {
            self.distrust.note_bad(now, source);
        }
    }

    /// True if this source may bring one more new record while `free` more fit.
    pub(super) fn may_bring(&mut self, now: Time, source: Option<Source>, free: usize) -> bool {
        self.brought.admit(now, source, free / PARTS)
    }
}
