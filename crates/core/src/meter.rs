//! Limits of events per second, and of the work that bad signatures cause.

use crate::{PortId, PortInfo, Recent, Time};
use core::net::IpAddr;
use core::time::Duration;

/// A rate limit with a burst size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Burst size, after a pause.
    pub at_once: u32,
    /// Long-term rate.
    pub per_second: u32,
}

impl Limit {
    /// Returns a limit of this many events per second, with a burst of the same size.
    pub const fn per_second(per_second: u32) -> Limit {
        Limit {
            at_once: per_second,
            per_second,
        }
    }
}

/// Counts events against a [`Limit`] (the generic cell rate algorithm).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    // When all past events are paid for.
    paid: Time,
}

impl Meter {
    fn after_one(&self, now: Time, limit: Limit) -> Option<Time> {
        let one = Duration::from_secs(1).checked_div(limit.per_second)?;
        let paid = self.paid.max(now) + one;
        (paid.since(now) <= one * limit.at_once).then_some(paid)
    }

    /// Returns true if one more event is within the limit.
    pub fn has_room(&self, now: Time, limit: Limit) -> bool {
        self.after_one(now, limit).is_some()
    }

    /// Counts one more event if it is within the limit; returns true if it is.
    pub fn admits(&mut self, now: Time, limit: Limit) -> bool {
        let paid = self.after_one(now, limit);
        self.paid = paid.unwrap_or(self.paid);
        paid.is_some()
    }

    /// Takes back one event that was admitted: it shall not have counted.
    pub fn give_back(&mut self, limit: Limit) {
        let one = Duration::from_secs(1).checked_div(limit.per_second);
        self.paid = self.paid - one.unwrap_or_default();
    }

    /// Returns true if it is in the state of a new meter.
    pub fn is_idle(&self, now: Time) -> bool {
        self.paid <= now
    }
}

/// Meters of keys that strangers choose, in a bounded number: the one that was used last the longest
/// ago gives way to a new one.
#[derive(Clone, Debug)]
pub struct Meters<K> {
    limit: Limit,
    by_key: Recent<K, Meter>,
}

impl<K: Ord + Copy> Meters<K> {
    /// Returns meters of at most `max` keys, each with this limit.
    pub const fn new(limit: Limit, max: usize) -> Meters<K> {
        Meters {
            limit,
            by_key: Recent::new(max),
        }
    }

    /// Returns true if one more event of this key is within the limit.
    pub fn has_room(&self, now: Time, key: K) -> bool {
        let known = self.by_key.get(&key);
        known.is_none_or(|meter| meter.has_room(now, self.limit))
    }

    /// Counts one more event of this key if it is within the limit; returns true if it is.
    pub fn admits(&mut self, now: Time, key: K) -> bool {
        let mut meter = self.by_key.get(&key).copied().unwrap_or_default();
        let admitted = meter.admits(now, self.limit);
        self.by_key.insert(key, meter);
        admitted
    }

    /// Forgets a key.
    pub fn forget(&mut self, key: K) {
        self.by_key.remove(&key);
    }
}

/// Returns the network of an address: one party may have all addresses of an IPv6 network of 64 bits,
/// but of IPv4 a single one.
pub fn network_of(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 64,
        IpAddr::V6(address) => u128::from(address) >> 64,
    }
}

/// Where a peer is: its network ([`network_of`]), whatever its port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// A network.
    Network(u128),
    /// A port whose medium has no addresses.
    Port(PortId),
}

impl Source {
    /// Returns where the peer of a port is.
    pub fn of(port: PortId, info: &PortInfo) -> Source {
        let address = info.medium.caller_address();
        address.map_or(Source::Port(port), |at| {
            Source::Network(network_of(at.ip()))
        })
    }
}

/// The rule by which many owners share a bounded number of places, none of which is taken back.
///
/// Half of them go in parts of what is left of that half, so that a single owner may have many. The
/// other half is for those with few, so that however many have taken their parts, there is a place for
/// another.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// All places.
    pub max: usize,
    /// The share of what is left of the first half that one owner may take: one in this many.
    pub parts: usize,
    /// The number that each owner may have in any case.
    pub few: usize,
}

impl Shares {
    /// Returns true if an owner of `own` of the `used` places may have one more.
    pub const fn admit(&self, own: usize, used: usize) -> bool {
        let left = (self.max / 2).saturating_sub(used);
        used < self.max && (own < self.few || own * self.parts < left)
    }
}

/// Bad signatures of one source that are looked at.
const BAD: Limit = Limit {
    at_once: 32,
    per_second: 2,
};
/// Maximum of sources whose bad signatures are counted.
const MAX_COUNTED: usize = 4_096;

/// The sources of bad signatures. To check one is work: a source whose signatures are good has as
/// much of it as it wants, one that sends bad ones has little.
#[derive(Clone, Debug)]
pub struct Distrust<K> {
    meters: Meters<K>,
}

impl<K: Ord + Copy> Default for Distrust<K> {
    fn default() -> Distrust<K> {
        Distrust {
            meters: Meters::new(BAD, MAX_COUNTED),
        }
    }
}

impl<K: Ord + Copy> Distrust<K> {
    /// Returns true if a signature of this source is to be checked.
    pub fn may_check(&self, now: Time, source: K) -> bool {
        self.meters.has_room(now, source)
    }

    /// Notes a bad signature of this source.
    pub fn note_bad(&mut self, now: Time, source: K) {
        self.meters.admits(now, source);
    }

    /// Forgets a source that is gone.
    pub fn forget(&mut self, source: K) {
        self.meters.forget(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_admits_a_burst_and_then_the_rate() {
        let (mut meter, start) = (Meter::default(), Time::from_secs(5));
        let hundred = Limit::per_second(100);
        let admitted =
            |meter: &mut Meter, at: Time| (0..1000).filter(|_| meter.admits(at, hundred)).count();
        assert_eq!(admitted(&mut meter, start), 100);
        assert!(!meter.has_room(start, hundred));
        assert_eq!(admitted(&mut meter, start + Duration::from_millis(10)), 1);
        assert_eq!(admitted(&mut meter, start + Duration::from_millis(510)), 50);
        assert_eq!(admitted(&mut meter, start + Duration::from_secs(60)), 100);
        assert!(!Meter::default().admits(start, Limit::per_second(0)));
    }

    #[test]
    fn however_many_have_taken_their_share_there_is_a_place_for_another() {
        let shares = Shares {
            max: 1_000,
            parts: 4,
            few: 5,
        };
        let mut used = 0;
        let mut take = |most: usize| {
            let mut own = 0;
            while own < most && shares.admit(own, used) {
                own += 1;
                used += 1;
            }
            own
        };
        assert_eq!(take(usize::MAX), 100);
        let others: Vec<usize> = (0..100).map(|_| take(usize::MAX)).collect();
        assert!(others.is_sorted_by(|one, two| one >= two));
        assert_eq!((others[0], others[99]), (80, 5));
        assert_eq!(take(usize::MAX), 5);
        while take(1) > 0 {}
        assert_eq!(used, 1_000);
    }

    #[test]
    fn the_meter_that_was_used_the_longest_ago_gives_way() {
        let (now, limit) = (Time::from_secs(1), Limit::per_second(1));
        let mut meters = Meters::new(limit, 3);
        for key in [9, 1, 5, 9] {
            meters.admits(now, key);
        }
        // Not the one with the smallest key, nor the one that was new first.
        meters.admits(now, 2);
        let full = [9, 1, 5, 2].map(|key| !meters.has_room(now, key));
        assert_eq!(full, [true, false, true, true]);
    }

    #[test]
    fn what_is_given_back_has_not_counted() {
        let (mut meter, now) = (Meter::default(), Time::from_secs(5));
        let ten = Limit::per_second(10);
        for _ in 0..1000 {
            assert!(meter.admits(now, ten));
            meter.give_back(ten);
        }
        assert_eq!((0..20).filter(|_| meter.admits(now, ten)).count(), 10);
    }

    #[test]
    fn who_sends_bad_signatures_is_looked_at_twice_a_second_and_nobody_else_less() {
        let (mut distrust, now) = (Distrust::default(), Time::from_secs(1));
        let mut looked = 0;
        for _ in 0..1000 {
            if distrust.may_check(now, 7) {
                looked += 1;
                distrust.note_bad(now, 7);
            }
        }
        assert_eq!(looked, 32);
        assert!(distrust.may_check(now, 8));
        let later = now + Duration::from_millis(500);
        assert!(distrust.may_check(later, 7));
        distrust.note_bad(later, 7);
        assert!(!distrust.may_check(later, 7));
        // However many there are.
        for source in 100..100_000 {
            distrust.note_bad(later, source);
        }
        assert!(distrust.meters.by_key.len() <= MAX_COUNTED);
        distrust.forget(99_999);
        assert!(distrust.may_check(later, 99_999));
    }
}
