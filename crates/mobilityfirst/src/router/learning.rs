//! Learned ways: connects the routing with neighbours, chunks in storage and time.

use core::time::Duration;

use whimbrel_core::{Guid, KeyPair, PortId, Time};
use whimbrel_routing::{
    ContactPlan, KnownRouter, LinkMetric, LinkSample, Message, Routing, RoutingCounters,
};

use super::{Router, Timer};
use crate::links::ChunkToSend;
use crate::next_hops::NextHops;
use crate::wire::{Control, ServiceId};

/// Routers in a report.
const MAX_SHOWN: usize = 256;

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

/// What a router has learned, for reports.
#[derive(Clone, Debug, serde::Serialize)]
pub struct RoutingStatus {
    /// The other routers, 256 at most.
    pub routers: Vec<KnownRouter>,
    /// Counters since the start.
    pub counters: RoutingCounters,
}

impl Router {
    /// The router learns its ways from the routers that it believes, and announces its links. Configured
    /// routes win.
    pub fn learn_ways(&mut self, terms: LearnedWays) {
        self.routes.wait_for_usual = terms.wait_for_usual;
        let mut routing = Routing::new(Time::ZERO, terms.keys).with_metric(terms.metric);
        if let Some(contacts) = terms.contacts {
            routing.set_contacts(Time::ZERO, contacts, self.config.wall);
        }
        self.timers.set(Timer::Routing, routing.poll_timeout().at);
        self.routes.learned = Some(routing);
    }

    /// Returns the cost of the way to a router as a time, as far as it is learned.
    pub fn cost(&self, router: &Guid) -> Option<Duration> {
        self.routes.cost(router).map(whimbrel_routing::Cost::time)
    }

    pub(super) fn routing_status(&self, now: Time) -> Option<RoutingStatus> {
        let learned = self.routes.learned.as_ref()?;
        let mut routers = learned.status(now);
        routers.truncate(MAX_SHOWN);
        Some(RoutingStatus {
            routers,
            counters: learned.counters(),
        })
    }

    /// Handles a message of a neighbour. Only routers that the configuration names are heard.
    pub(super) fn handle_routing(&mut self, now: Time, from: PortId, message: Message) {
        let neighbour = self.links.neighbour(from);
        let Some(neighbour) = neighbour.filter(|name| self.sources.believes(name)) else {
            return self.effects.drop("routing-stranger");
        };
        // A neighbour that is heard is up, whichever of both was noticed first.
        self.note_routing_neighbours(now);
        let Some(learned) = &mut self.routes.learned else {
            return self.effects.drop("routing-static");
        };
        if let Err(why) = learned.handle_message(now, neighbour, message) {
            self.effects.drop(why);
        }
        self.go_on_with_routing(now);
    }

    /// Tells the routing which of the routers that are believed are up.
    pub(super) fn note_routing_neighbours(&mut self, now: Time) {
        let Some(learned) = &mut self.routes.learned else {
            return;
        };
        for name in self.sources.believed() {
            match self.links.neighbours.run_of(name) {
                Some(run) => {
                    let was = self.runs.insert(*name, run);
                    learned.handle_up(now, *name, was != Some(run));
                }
                None => learned.handle_down(now, name),
            }
        }
        self.go_on_with_routing(now);
    }

    /// Returns true if a chunk is stored although it has a way, which is much worse than the usual one.
    pub(super) fn waits_for_usual(&self, outgoing: &ChunkToSend, hops: &NextHops) -> bool {
        let header = &outgoing.chunk.header;
        let is_patient = header.service.has(ServiceId::DELAY_TOLERANT);
        let best = hops
            .best()
            .filter(|_| is_patient && outgoing.chunk.data().is_some());
        best.is_some_and(|best| {
            let address = best.address.unwrap_or(header.destination_address);
            self.routes.waits_for_usual(&address, Duration::ZERO)
        })
    }

    /// Returns true if what is stored for a destination waits still for the usual way.
    pub(super) fn stays_for_usual(&self, now: Time, destination: &Guid, hops: &NextHops) -> bool {
        let store = self.proxy.store();
        let oldest = store.oldest_for(destination).and_then(|it| store.get(it));
        let address = hops.best().and_then(|best| best.address);
        let waits = address.zip(oldest).map(|(address, oldest)| {
            (self.routes).waits_for_usual(&address, now.since(oldest.stored_at))
        });
        waits.unwrap_or(false)
    }

    /// Handles the routing's deadline; the links are measured as often.
    pub(super) fn handle_routing_due(&mut self, now: Time) {
        let Some(learned) = &mut self.routes.learned else {
            return;
        };
        let up: Vec<Guid> = learned.neighbours().copied().collect();
        for name in up {
            if let Some(sample) = self.sample_of(&name)
                && let Some(learned) = &mut self.routes.learned
            {
                learned.note_link(now, &name, &sample);
            }
        }
        if let Some(learned) = &mut self.routes.learned {
            learned.handle_timeout(now);
        }
        self.go_on_with_routing(now);
    }

    /// Returns the measurement of the best link to a neighbour.
    fn sample_of(&self, name: &Guid) -> Option<LinkSample> {
        let ports = self.links.neighbours.ports_of(name);
        let up = ports.filter(|port| self.links.is_up(*port));
        let samples = up.filter_map(|port| Some(self.links.neighbours.at(port)?.sample()));
        samples.min_by_key(|sample| whimbrel_routing::Cost::of_link(&sample.state))
    }

    /// Sends what the routing has to say. Stored chunks are looked at again if ways have changed.
    fn go_on_with_routing(&mut self, now: Time) {
        let Some(learned) = &mut self.routes.learned else {
            return;
        };
        let messages: Vec<_> = core::iter::from_fn(|| learned.poll_message()).collect();
        let has_changed = learned.take_changed();
        self.timers.set(Timer::Routing, learned.poll_timeout().at);
        for (name, message) in messages {
            let ports: Vec<PortId> = self.links.neighbours.ports_of(&name).collect();
            let up = ports.into_iter().find(|port| self.links.is_up(*port));
            if let Some(port) = up {
                self.tell(port, &Control::Routing(message));
            }
        }
        if has_changed {
            self.retry_waiting(now);
        }
    }
}
