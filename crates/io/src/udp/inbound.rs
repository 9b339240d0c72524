//! The bounded table of inbound peers of a datagram link: idle timeout and eviction.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_core::{PortId, Time, TimerQueue, network_of};

use crate::counters::TransportCounters;

/// Bounds of the inbound peers of one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundLimits {
    /// Bound of the inbound peers at a time.
    pub max: usize,
    /// Bound of those from one network ([`network_of`]) of other machines: who has one address has
    /// 65,535 ports. Beyond it, the network's peers evict each other as below.
    pub per_network: usize,
    /// An inbound peer is closed after this long without a datagram. `None` leaves that to the
    /// machine, which knows more about the value of an inbound peer. A full table still evicts as
    /// below.
    pub idle: Option<Duration>,
    /// When the table is full, the inbound peer that is idle for longest is evicted if it has been
    /// idle for at least this long; otherwise the new inbound peer is refused. With a value above
    /// zero, a flood of forged source addresses opens at most `max / evict_after` ports a second
    /// and cannot displace an active inbound peer.
    pub evict_after: Duration,
}

impl Default for InboundLimits {
    /// Returns 4096 inbound peers, of any network, 60 seconds, eviction after one second of silence.
    fn default() -> Self {
        InboundLimits {
            max: 4096,
            per_network: usize::MAX,
            idle: Some(Duration::from_secs(60)),
            evict_after: Duration::from_secs(1),
        }
    }
}

/// Tells whether one more inbound peer can be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// Yes, after this one is closed.
    After(PortId),
    None,
}

impl Room {
    /// Counts what becomes of who asks for it. Returns the peer that is to be closed first, if there
    /// is one; nothing if there is no room.
    pub(crate) fn taken(self, counters: &mut TransportCounters) -> Option<Option<PortId>> {
        match self {
            Room::Free => Some(None),
            Room::After(idle) => {
                counters.evicted += 1;
                Some(Some(idle))
            }
            Room::None => {
                counters.refused += 1;
                None
            }
        }
    }
}

/// The last time that each inbound peer sent something.
///
/// Receiving is the frequent operation and only writes the time. The order by idleness is kept
/// lazily: an entry moves to its true place when it reaches the front, at most once for each time
/// that it was heard.
#[derive(Debug)]
pub(crate) struct InboundTable {
    limits: InboundLimits,
    heard: BTreeMap<PortId, Time>,
    order: TimerQueue<PortId>,
    // The network of each peer that has one, and each network's peers in an order of their own.
    networks: BTreeMap<PortId, u128>,
    by_network: BTreeMap<u128, TimerQueue<PortId>>,
}

impl InboundTable {
    pub(crate) fn new(limits: InboundLimits) -> InboundTable {
        InboundTable {
            limits,
            heard: BTreeMap::new(),
            order: TimerQueue::new(),
            networks: BTreeMap::new(),
            by_network: BTreeMap::new(),
        }
    }

    /// `from` is the address of who wants to be admitted, if it has one.
    pub(crate) fn room(&mut self, now: Time, from: Option<IpAddr>) -> Room {
        let of_network = network(from).and_then(|network| self.by_network.get_mut(&network));
        let full = of_network.filter(|peers| peers.len() >= self.limits.per_network);
        let longest = match full {
            Some(peers) => longest_idle(peers, &self.heard),
            None if self.heard.len() < self.limits.max => return Room::Free,
            None => longest_idle(&mut self.order, &self.heard),
        };
        match longest {
            Some((at, port)) if now.since(at) >= self.limits.evict_after => Room::After(port),
            _ => Room::None,
        }
    }

    fn insert(&mut self, now: Time, port: PortId, from: Option<IpAddr>) {
        if let Some(network) = network(from) {
            self.networks.insert(port, network);
            self.by_network.entry(network).or_default().set(port, now);
        }
        self.heard.insert(port, now);
        self.order.set(port, now);
    }

    /// Enters a peer for which there was room, if its port could be opened, and counts it.
    pub(crate) fn admit(
        &mut self,
        now: Time,
        opened: Option<PortId>,
        from: Option<IpAddr>,
        counters: &mut TransportCounters,
    ) {
        match opened {
            Some(port) => {
                counters.accepted += 1;
                self.insert(now, port, from);
            }
            None => counters.refused += 1,
        }
    }

    /// Notes a datagram. Returns true if `port` is an inbound peer.
    pub(crate) fn heard(&mut self, now: Time, port: PortId) -> bool {
        self.heard.get_mut(&port).map(|at| *at = now).is_some()
    }

    /// Returns true if `port` is an inbound peer.
    pub(crate) fn has(&self, port: PortId) -> bool {
        self.heard.contains_key(&port)
    }

    /// Removes an inbound peer. Returns false if `port` is not one.
    pub(crate) fn remove(&mut self, port: PortId) -> bool {
        self.order.cancel(&port);
        if let Some(network) = self.networks.remove(&port)
            && let Some(peers) = self.by_network.get_mut(&network)
        {
            peers.cancel(&port);
            if peers.is_empty() {
                self.by_network.remove(&network);
            }
        }
        self.heard.remove(&port).is_some()
    }

    /// Returns an inbound peer beyond the idle time. It stays in the table until it is removed.
    pub(crate) fn expired(&mut self, now: Time) -> Option<PortId> {
        let idle = self.limits.idle?;
        longest_idle(&mut self.order, &self.heard)
            .filter(|(at, _)| now.since(*at) >= idle)
            .map(|(_, port)| port)
    }

    /// Returns a time before which no inbound peer expires.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        let idle = self.limits.idle?;
        self.order.next().map(|(at, _)| at + idle)
    }
}

/// Returns the peer of `order` that was silent for longest.
fn longest_idle(
    order: &mut TimerQueue<PortId>,
    heard: &BTreeMap<PortId, Time>,
) -> Option<(Time, PortId)> {
    loop {
        let (at, port) = order.next().map(|(at, port)| (at, *port))?;
        match heard.get(&port) {
            Some(heard) if *heard > at => order.set(port, *heard),
            _ => return Some((at, port)),
        }
    }
}

/// Returns the network whose share counts. Programs of this machine have none: they could as well do
/// the machine's work in its place.
fn network(from: Option<IpAddr>) -> Option<u128> {
    from.filter(|address| !address.to_canonical().is_loopback())
        .map(network_of)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    const IDLE: Duration = Duration::from_nanos(50);
    const LIMITS: InboundLimits = InboundLimits {
        max: 4,
        per_network: 2,
        idle: Some(IDLE),
        evict_after: Duration::from_nanos(5),
    };

    fn address_of(port: PortId) -> Option<IpAddr> {
        Some(match port.0 {
            0..5 => IpAddr::from([192, 0, 2, 7]),
            5 => IpAddr::from([127, 0, 0, 1]),
            6 => return None,
            _ => IpAddr::from([192, 0, 2, 8]),
        })
    }

    proptest! {
        /// The model is a list of (last heard, port), searched from end to end. Ports 0 to 4 are of one
        /// network, 5 and 6 of this machine, 7 of another network.
        #[test]
        fn behaves_like_a_searched_list(steps in prop::collection::vec((0u8..4, 0u32..8, 0u64..12), 0..200)) {
            let mut table = InboundTable::new(LIMITS);
            let mut model: Vec<(Time, PortId)> = Vec::new();
            let mut now = Time::ZERO;
            for (step, port, passed) in steps {
                now += Duration::from_nanos(passed);
                let port = PortId(port);
                let known = model.iter().any(|(_, p)| *p == port);
                match step {
                    0 | 1 if known => {
                        prop_assert!(table.heard(now, port));
                        model.iter_mut().filter(|(_, p)| *p == port).for_each(|entry| entry.0 = now);
                    }
                    0 | 1 => {
                        prop_assert!(!table.heard(now, port));
                        let kin = |other: &&(Time, PortId)| other.1.0 < 5 && port.0 < 5;
                        let many = model.iter().filter(kin).count() >= LIMITS.per_network;
                        let longest = match many {
                            true => model.iter().filter(kin).min().copied(),
                            false => model.iter().min().copied(),
                        };
                        let expected = match longest {
                            _ if model.len() < LIMITS.max && !many => Room::Free,
                            Some((at, idle)) if now.since(at) >= LIMITS.evict_after => Room::After(idle),
                            _ => Room::None,
                        };
                        let room = table.room(now, address_of(port));
                        prop_assert_eq!(room, expected);
                        if let Room::After(idle) = room {
                            table.remove(idle);
                            model.retain(|(_, p)| *p != idle);
                        }
                        if room != Room::None {
                            table.insert(now, port, address_of(port));
                            model.push((now, port));
                        }
                    }
                    2 => {
                        table.remove(port);
                        model.retain(|(_, p)| *p != port);
                    }
                    _ => {
                        let due = model.iter().min().copied().filter(|(at, _)| now.since(*at) >= IDLE);
                        if let Some(bound) = table.next_expiry() {
                            prop_assert!(due.is_none() || bound <= now, "no expiry may come before the bound");
                        }
                        let expired = table.expired(now);
                        prop_assert_eq!(expired, due.map(|(_, p)| p));
                        if let Some(gone) = expired {
                            table.remove(gone);
                            model.retain(|(_, p)| *p != gone);
                        }
                    }
                }
                prop_assert!(model.len() <= LIMITS.max);
                prop_assert!(model.iter().filter(|(_, it)| it.0 < 5).count() <= LIMITS.per_network);
                prop_assert_eq!(table.by_network.len(), table.networks.values().collect::<BTreeSet<_>>().len());
                prop_assert_eq!(table.heard.len(), model.len());
            }
        }
    }
}
