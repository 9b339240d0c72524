//! What clients may cost: checks of signatures, and new records.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Medium, PortId, PortInfo, Time};

use crate::quota::Quotas;

/// Checks for sources that are not proven, at once and in a second.
const UNPROVEN: u64 = 128;
/// Bad signatures of one source that are looked at at once, and in a second.
const BAD: u64 = 32;
const BAD_PER_SECOND: u64 = 2;
/// A source brings one of so many parts of what there is room for.
const PARTS: usize = 4;
/// Maximum of sources whose bad signatures are counted.
const MAX_COUNTED: usize = 4096;

/// Where a client is: its address, whatever its port; of IPv6 the network of 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    Address(IpAddr),
    Port(PortId),
}

impl Source {
    pub(super) fn of(port: PortId, info: &PortInfo) -> Source {
        match info.medium {
            Medium::Udp { remote, .. } => Source::Address(match remote.ip() {
                IpAddr::V4(address) => IpAddr::V4(address),
                IpAddr::V6(address) => {
                    let network = u128::from(address) >> 64 << 64;
                    IpAddr::V6(network.into())
                }
            }),
            _ => Source::Port(port),
        }
    }
}

/// An amount that fills up again.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u64,
    since: Time,
}

impl Bucket {
    fn full(now: Time, most: u64) -> Bucket {
        Bucket {
            left: most,
            since: now,
        }
    }

    fn refill(&mut self, now: Time, most: u64, per_second: u64) {
        let step = Duration::from_nanos(1_000_000_000 / per_second);
        let steps = now.since(self.since).as_nanos() / step.as_nanos();
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.left = self.left.saturating_add(steps).min(most);
        self.since = match self.left == most {
            true => now,
            false => self.since + step * steps as u32,
        };
    }

    fn take(&mut self) -> bool {
        let may = self.left > 0;
        self.left -= u64::from(may);
        may
    }
}

/// The budgets of all clients.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    unproven: Option<Bucket>,
    bad: BTreeMap<Source, Bucket>,
    // Those of sources that are not proven count together.
    brought: Quotas<Option<Source>>,
}

impl Budgets {
    /// True if a record of this source may be checked; of one that is not proven, there is one less
    /// after that.
    pub(super) fn may_check(&mut self, now: Time, source: Option<Source>) -> bool {
        let Some(source) = source else {
            let full = Bucket::full(now, UNPROVEN);
            let bucket = self.unproven.get_or_insert(full);
            bucket.refill(now, UNPROVEN, UNPROVEN);
            return bucket.take();
        };
        self.bad.get_mut(&source).is_none_or(|bucket| {
            bucket.refill(now, BAD, BAD_PER_SECOND);
            bucket.left > 0
        })
    }

    /// A proven source has sent a record with a bad signature.
    pub(super) fn note_bad(&mut self, now: Time, source: Option<Source>) {
        let Some(source) = source else { return };
        if self.bad.len() >= MAX_COUNTED && !self.bad.contains_key(&source) {
            for bucket in self.bad.values_mut() {
                bucket.refill(now, BAD, BAD_PER_SECOND);
            }
            self.bad.retain(|_, bucket| bucket.left < BAD);
            if self.bad.len() >= MAX_COUNTED {
                self.bad.pop_first();
            }
        }
        let full = Bucket::full(now, BAD);
        self.bad.entry(source).or_insert(full).take();
    }

    /// True if this source may bring one more new record while `free` more fit.
    pub(super) fn may_bring(&mut self, now: Time, source: Option<Source>, free: usize) -> bool {
        self.brought.admit(now, source, free / PARTS)
    }
}
