//! The flows of which neighbours have said what may be sent, when each lease ends, and how many there are of
//! each network: a neighbour with many ports has one share.

use std::collections::BTreeMap;

use crate::wire::Flow;
use whimbrel_core::{PortId, Shares, Source, Time, TimerQueue};

/// Flows that all neighbours together hold back here, by the networks of the neighbours.
pub(crate) const HELD_BACK: Shares = Shares {
    max: 32_768,
    parts: 4,
    few: 8,
};
/// Bytes that an entry takes, about.
pub(crate) const HELD_BACK_BYTES: u64 = 512;

/// A flow that the neighbour on a port holds back.
pub(super) type LeaseKey = (PortId, Flow);

/// When leases end, and whose they are.
#[derive(Debug, Default)]
pub(super) struct Leases {
    ends: TimerQueue<LeaseKey>,
    of_port: BTreeMap<PortId, (Source, usize)>,
    of_network: BTreeMap<Source, usize>,
}

impl Leases {
    pub(super) fn contains(&self, key: &LeaseKey) -> bool {
        self.ends.get(key).is_some()
    }

    /// Returns true if the neighbour on a port, which is at `at`, may have one more.
    pub(super) fn admits(&self, port: PortId, at: Source) -> bool {
        let at = self.of_port.get(&port).map_or(at, |(known, _)| *known);
        let own = self.of_network.get(&at).copied().unwrap_or(0);
        HELD_BACK.admit(own, self.ends.len())
    }

    /// Sets when a lease ends of the neighbour on a port, which is at `at`.
    pub(super) fn set(&mut self, at: Source, key: LeaseKey, until: Time) {
        if !self.contains(&key) {
            let (at, count) = self.of_port.entry(key.0).or_insert((at, 0));
            *count += 1;
            *self.of_network.entry(*at).or_default() += 1;
        }
        self.ends.set(key, until);
    }

    pub(super) fn cancel(&mut self, key: &LeaseKey) {
        if self.ends.cancel(key) {
            self.count_off(key.0);
        }
    }

    /// Takes those that end now.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<LeaseKey> {
        let mut pass = self.ends.pass(now);
        let due = core::iter::from_fn(|| pass.next(&mut self.ends));
        let due: Vec<LeaseKey> = due.map(|(_, key)| key).collect();
        due.iter().for_each(|(port, ..)| self.count_off(*port));
        due
    }

    /// Returns when the next one ends.
    pub(super) fn next(&self) -> Option<Time> {
        self.ends.next().map(|(at, _)| at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn count_off(&mut self, port: PortId) {
        let Some((at, count)) = self.of_port.get_mut(&port) else {
            return;
        };
        let at = *at;
        *count -= 1;
        if *count == 0 {
            self.of_port.remove(&port);
        }
        if let Some(own) = self.of_network.get_mut(&at) {
            *own -= 1;
            if *own == 0 {
                self.of_network.remove(&at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;
    use whimbrel_core::{Guid, Medium};

    use super::super::Links;
    use super::super::tests::links;
    use super::*;
    use crate::wire::Credit;

    fn key(port: u32, number: u8) -> LeaseKey {
        let flow = Flow::requested(Guid([number; 32]), Guid([1; 32]));
        (PortId(port), flow)
    }

    /// Two ports of each network.
    fn network(port: u32) -> Source {
        Source::Network(u128::from(port / 2))
    }

    fn invented(number: u64) -> Flow {
        let mut name = [9; 32];
        name[..8].copy_from_slice(&number.to_be_bytes());
        Flow::requested(Guid(name), Guid(name))
    }

    /// A neighbour holds back flows, of which this many have passed, until it may not. Returns how many
    /// are held back then.
    fn held_back_by(links: &mut Links, port: u32, passed: u64) -> usize {
        let port = PortId(port);
        for number in 0..passed {
            links.note_passed(port, invented(number));
        }
        let told = (0..2 * HELD_BACK.max as u64).map(|number| Credit {
            flow: invented(number),
            octets: 0,
            spare: false,
            lease: Duration::from_secs(32),
        });
        for credit in told {
            if !links.note_credit(Time::ZERO, port, &credit) {
                break;
            }
        }
        let link = links.at(port).expect("a link");
        link.outbox.held().count()
    }

    #[test]
    fn flows_that_never_passed_are_not_held_back() {
        let mut links = links(1);
        assert_eq!(held_back_by(&mut links, 0, 0), 0);
        assert_eq!((held_back_by(&mut links, 0, 5), links.leases.len()), (5, 5));
    }

    #[test]
    fn flows_of_many_ports_of_one_network_leave_room_for_those_of_another() {
        let mut links = links(502);
        let at = |network: u8| Medium::Ip {
            local: [127, 0, 0, 1].into(),
            remote: [192, 0, 2, network].into(),
        };
        for port in 0..502 {
            let network = if port < 500 { 1 } else { 2 };
            let link = links.neighbours.at_mut(PortId(port)).expect("a link");
            link.info.medium = at(network);
        }
        let held = |links: &mut Links, port| held_back_by(links, port, 64);
        let of_one: usize = (0..500).map(|port| held(&mut links, port)).sum();
        assert!((3_000..4_096).contains(&of_one), "{of_one}");
        // Both ports of the other network have all that they ask for.
        assert_eq!((held(&mut links, 500), held(&mut links, 501)), (64, 64));
        assert!(links.leases.len() < HELD_BACK.max);
        // What a neighbour holds back already is renewed.
        assert_eq!(held(&mut links, 0), 64);
    }

    proptest! {
        #[test]
        fn each_network_has_as_many_as_its_ports_hold_back(
            steps in prop::collection::vec((0u8..4, 0u32..6, 0u8..4, 0u64..9), 0..100),
        ) {
            let (mut ends, mut model) = (Leases::default(), BTreeMap::new());
            let mut now = Time::ZERO;
            for (what, port, number, seconds) in steps {
                match what {
                    0 => {
                        ends.cancel(&key(port, number));
                        model.remove(&key(port, number));
                    }
                    1 => {
                        now += Duration::from_secs(seconds);
                        let due = ends.take_due(now);
                        let before = model.len();
                        model.retain(|_, until| *until > now);
                        prop_assert_eq!(due.len(), before - model.len());
                    }
                    _ => {
                        let until = now + Duration::from_secs(seconds + 1);
                        ends.set(network(port), key(port, number), until);
                        model.insert(key(port, number), until);
                    }
                }
                prop_assert_eq!(ends.next(), model.values().min().copied());
                prop_assert_eq!(ends.len(), model.len());
                let count = |at: Source| model.keys().filter(|it| network(it.0.0) == at).count();
                let expected: Vec<_> = (0..6).step_by(2).map(network).map(|at| (at, count(at))).collect();
                let counted: Vec<_> = expected.iter().filter(|it| it.1 > 0).copied().collect();
                prop_assert_eq!(ends.of_network.clone().into_iter().collect::<Vec<_>>(), counted);
            }
        }
    }
}
