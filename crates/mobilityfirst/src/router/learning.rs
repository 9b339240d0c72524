//! Learned ways: connects the routing with neighbours and their links.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Guid, KeyPair, PortId, Source, Time, WallClock};
use whimbrel_routing::{ContactPlan, Cost, LinkMetric, LinkSample, Message, Routing, Way};

use super::Timer;
use super::effects::{Action, Effects};
use super::status::RoutingStatus;
use crate::links::{ChunkToSend, Links};
use crate::outbox::is_passing_message;
use crate::wire::Control;

/// Routers in a report.
const MAX_SHOWN: usize = 256;
/// A way is much worse than the usual one if it costs more than this many times as much.
const MUCH_WORSE: u32 = 8;

/// The rate of an idle link is measured at this interval, ...
const MEASURED_AFTER: Duration = Duration::from_secs(5);
/// ... or after the time that this number of bytes takes on it: a measurement takes a fiftieth of a slow link.
const MEASURED_SHARE: u64 = 240_000;

/// The longest interval.
const MOST_MEASURED_AFTER: Duration = Duration::from_secs(120);

/// A message that is not stored waits for a way for this long: while routers tell each other of a failure, no next hop
/// may be feasible for some round trips.
const HELD_FOR: Duration = Duration::from_secs(1);
/// Messages that wait so; a quarter of them may come from one network.
const MAX_HELD: usize = 256;

/// How a router learns its ways.
#[derive(Debug)]
pub struct LearnedWays {
    /// Its own keys, which sign what it says of its links.
    pub keys: KeyPair,
    /// What the cost of a link is.
    pub metric: LinkMetric,
    /// How long data waits at most while a way is much worse than the usual one.
    pub wait_for_usual: Duration,
    /// Contacts that are known beforehand.
    pub contacts: Option<ContactPlan>,
}

/// The ways that a router learns from others, if it does.
#[derive(Debug, Default)]
pub(super) struct Learning {
    routing: Option<Routing>,
    // The runs of the routers that ways are learned from.
    runs: BTreeMap<Guid, u64>,
    // When the rate of an idle link is measured next.
    measured_at: BTreeMap<PortId, Time>,
    // How long data waits for the usual way while that of the moment is much worse.
    wait_for_usual: Duration,
    // Messages that wait for a way, and the network that each came from; none for one of this node.
    held: Vec<(Option<Source>, ChunkToSend)>,
}

impl Learning {
    /// Learns ways from now on. Contacts start and end by this wall clock.
    pub(super) fn begin(&mut self, terms: LearnedWays, wall: WallClock, effects: &mut Effects) {
        let mut routing = Routing::new(Time::ZERO, terms.keys).with_metric(terms.metric);
        if let Some(contacts) = terms.contacts {
            routing.set_contacts(Time::ZERO, contacts, wall);
        }
        effects.push(Action::Set(Timer::Routing, routing.poll_timeout().at));
        self.wait_for_usual = terms.wait_for_usual;
        self.routing = Some(routing);
    }

    /// The wall clock was set.
    pub(super) fn set_wall_clock(&mut self, now: Time, wall: WallClock) {
        if let Some(routing) = &mut self.routing {
            routing.set_wall_clock(now, wall);
        }
    }

    /// Returns the ways to a router, best first; none if there are no learned ones.
    pub(super) fn ways(&self, router: &Guid) -> &[Way] {
        let routing = self.routing.as_ref();
        routing.map_or(&[][..], |it| it.ways(router))
    }

    /// Returns the neighbour that carries data towards a router that is out of reach.
    pub(super) fn carrier(&self, router: &Guid) -> Option<&Way> {
        self.routing.as_ref()?.carrier(router)
    }

    /// Returns the cost of the way to a router, as far as it is learned.
    pub(super) fn cost(&self, router: &Guid) -> Option<Cost> {
        self.routing.as_ref()?.cost(router)
    }

    /// Returns true for the name of a router that others have told of.
    pub(super) fn knows(&self, name: &Guid) -> bool {
        self.routing.as_ref().is_some_and(|it| it.knows(name))
    }

    /// Returns true if data for this address, stored for `stored` already, waits: the way of the moment is much
    /// worse than the usual one (store or forward, [GSTAR]), or than the next known contact.
    pub(super) fn waits_for_usual(&self, address: &Guid, stored: Duration) -> bool {
        let may_wait = stored < self.wait_for_usual;
        self.routing.as_ref().is_some_and(|it| {
            (may_wait && it.is_unusual(address, MUCH_WORSE)) || it.waits_for_contact(address)
        })
    }

    /// Returns true if ways are learned.
    pub(super) fn is_on(&self) -> bool {
        self.routing.is_some()
    }

    /// Holds a message without a way for a moment. Returns what is not held: what may be stored, has waited, or is one
    /// too many.
    pub(super) fn hold(
        &mut self,
        now: Time,
        mut outgoing: ChunkToSend,
        links: &Links,
    ) -> Option<ChunkToSend> {
        let until = outgoing.until.unwrap_or(now + HELD_FOR);
        let at = outgoing.origin.map(|port| links.source_of(port));
        let of_network = self.held.iter().filter(|(from, _)| *from == at);
        let fits = self.held.len() < MAX_HELD && of_network.count() < MAX_HELD / 4;
        if !self.is_on() || !is_passing_message(&outgoing.chunk) || until <= now || !fits {
            return Some(outgoing);
        }
        outgoing.until = Some(until);
        self.held.push((at, outgoing));
        None
    }

    /// Takes the messages that wait for a way.
    pub(super) fn take_held(&mut self) -> Vec<ChunkToSend> {
        let held = core::mem::take(&mut self.held);
        held.into_iter().map(|(_, outgoing)| outgoing).collect()
    }

    pub(super) fn status(&self, now: Time) -> Option<RoutingStatus> {
        let routing = self.routing.as_ref()?;
        let mut routers = routing.status(now);
        routers.truncate(MAX_SHOWN);
        Some(RoutingStatus {
            routers,
            counters: routing.counters(),
        })
    }

    /// Handles a message of a router that is believed.
    pub(super) fn handle_message(
        &mut self,
        now: Time,
        router: Guid,
        message: Message,
        links: &Links,
        effects: &mut Effects,
    ) {
        let Some(routing) = &mut self.routing else {
            return effects.drop("routing-static");
        };
        if let Err(why) = routing.handle_message(now, router, message) {
            effects.drop(why);
        }
        self.settle(links, effects);
    }

    /// Takes up which of these routers are up.
    pub(super) fn note_neighbours<'a>(
        &mut self,
        now: Time,
        routers: impl Iterator<Item = &'a Guid>,
        links: &Links,
        effects: &mut Effects,
    ) {
        let Some(routing) = &mut self.routing else {
            return;
        };
        for name in routers {
            match links.neighbours.run_of(name) {
                Some(run) => {
                    let was = self.runs.insert(*name, run);
                    routing.handle_up(now, *name, was != Some(run));
                }
                None => routing.handle_down(now, name),
            }
        }
        self.settle(links, effects);
    }

    /// Handles the routing's deadline; the links are measured as often.
    pub(super) fn handle_due(&mut self, now: Time, links: &Links, effects: &mut Effects) {
        let Some(routing) = &mut self.routing else {
            return;
        };
        let up: Vec<Guid> = routing.neighbours().copied().collect();
        for name in &up {
            if let Some(sample) = sample_of(name, links) {
                routing.note_link(now, name, &sample);
            }
        }
        if routing.metric() == LinkMetric::Time {
            let ports = up.iter().flat_map(|name| links.neighbours.ports_of(name));
            let ports = ports.filter(|port| links.is_up(*port));
            self.measured_at = plan_measurements(now, ports, &self.measured_at, links, effects);
        }
        routing.handle_timeout(now);
        self.settle(links, effects);
    }

    /// Sends what the routing has to say. What waits is looked at again if ways have changed.
    fn settle(&mut self, links: &Links, effects: &mut Effects) {
        let Some(routing) = &mut self.routing else {
            return;
        };
        while let Some((name, message)) = routing.poll_message() {
            let mut ports = links.neighbours.ports_of(&name);
            if let Some(port) = ports.find(|port| links.is_up(*port)) {
                effects.push(Action::Tell(port, Control::Routing(message)));
            }
        }
        let has_changed = routing.take_changed();
        effects.push(Action::Set(Timer::Routing, routing.poll_timeout().at));
        if has_changed || !self.held.is_empty() {
            effects.push(Action::RetryWaiting);
        }
    }
}

/// Has the rates of idle links measured that are due. Returns when they all are next.
fn plan_measurements(
    now: Time,
    ports: impl Iterator<Item = PortId>,
    due: &BTreeMap<PortId, Time>,
    links: &Links,
    effects: &mut Effects,
) -> BTreeMap<PortId, Time> {
    let next = ports.filter_map(|port| {
        let link = links.at(port)?;
        let at = due.get(&port).copied().unwrap_or(now);
        if at > now || !link.is_idle() {
            return Some((port, at));
        }
        effects.push(Action::Measure(port));
        // Without an answer so far it may have been lost.
        let share = match link.state().delivery_rate {
            Some(rate) => Duration::from_millis(MEASURED_SHARE.saturating_mul(1000) / rate.max(1)),
            None => Duration::ZERO,
        };
        Some((port, now + share.clamp(MEASURED_AFTER, MOST_MEASURED_AFTER)))
    });
    next.collect()
}

/// Returns the measurement of the best link to a neighbour.
fn sample_of(name: &Guid, links: &Links) -> Option<LinkSample> {
    let ports = links.neighbours.ports_of(name);
    let up = ports.filter(|port: &PortId| links.is_up(*port));
    let samples = up.filter_map(|port| Some(links.neighbours.at(port)?.sample()));
    samples.min_by_key(|sample| Cost::of_link(&sample.state))
}

#[cfg(test)]
mod tests {
    use whimbrel_core::{Medium, PortEvent, PortInfo, PortOrigin, SeededRng};
    use whimbrel_link::{HopConfig, Room};

    use super::super::holders::presence;
    use super::super::hostile::{keys, name};
    use super::*;
    use crate::wire::{Presence, PresenceCode};

    /// Returns links with inbound peers at these addresses.
    fn callers(addresses: impl Iterator<Item = [u8; 4]>) -> Links {
        let hop = HopConfig::plain(&keys(1), [1; 32], 1472);
        let mut links = Links::new(hop, 64, SeededRng::new(1));
        for (port, address) in (0..).zip(addresses) {
            let up = PortEvent::Up(PortInfo {
                label: "caller".into(),
                origin: PortOrigin::Accepted(0),
                mtu: 1472,
                peer: "caller".into(),
                medium: Medium::Ip {
                    local: [127, 0, 0, 1].into(),
                    remote: address.into(),
                },
            });
            links.handle_port(Time::ZERO, PortId(port), &up);
        }
        links
    }

    #[test]
    fn messages_without_a_way_are_bounded_by_network_and_not_by_port() {
        let many = core::iter::repeat_n([192, 0, 2, 1], 100);
        let links = callers(many.chain([[192, 0, 2, 2]]));
        let mut learning = Learning::default();
        let terms = LearnedWays {
            keys: keys(1),
            metric: LinkMetric::Time,
            wait_for_usual: Duration::ZERO,
            contacts: None,
        };
        learning.begin(terms, WallClock::new(1), &mut Effects::default());
        let asked = Presence {
            guid: name(3),
            nonce: 7,
            code: PresenceCode::Asked,
        };
        let chunk = presence(name(2), (name(3), name(4)), asked);
        let mut hold = |port| {
            let mut message = ChunkToSend::originated(chunk.clone(), Room::default());
            message.origin = Some(PortId(port));
            learning.hold(Time::ZERO, message, &links).is_none()
        };
        let of_one = (0..100).filter(|port| hold(*port) && hold(*port)).count();
        let of_other = (0..100).filter(|_| hold(100)).count();
        assert_eq!((of_one * 2, of_other), (MAX_HELD / 4, MAX_HELD / 4));
        assert_eq!(learning.take_held().len(), MAX_HELD / 2);
        assert!(learning.take_held().is_empty());
    }
}
