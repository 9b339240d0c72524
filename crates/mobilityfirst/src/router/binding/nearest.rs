//! The nearest of several hosts that have the same content, or that are attached by the same name: "anycast
//! where the object is fetched from the nearest location" [MFTP §1].
//!
//! Nearest is what costs least by the measured state of the next hop: the time of a chunk over it, with its
//! round trip, its queue and its losses. What lies behind the next hop is not known here. Hosts that cost
//! about the same share the requests.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{Guid, LinkState, Time};
use whimbrel_gnrs::{Answer, Kind, Lookup, Record};

use super::Binding;
use crate::links::{ChunkToSend, Links};
use crate::wire::{NetworkHeader, ServiceId};

/// The chunk whose time over a link is its cost, in bytes.
const MEASURE: u64 = 64 << 10;
/// The round trip of a link that has not been measured.
const UNMEASURED: Duration = Duration::from_millis(100);
/// Hosts cost the same within a quarter and a millisecond.
const EQUAL_PART: u32 = 4;
const EQUAL: Duration = Duration::from_millis(1);
/// Look-ups of hosts that one request causes, to learn where they are.
const MAX_MEASURED: usize = 8;

/// What is sought by a name that several hosts have: a content, or a service.
#[derive(Clone, Copy, Debug)]
pub(in crate::router) struct Sought {
    pub(super) name: Guid,
    /// The id of the request, or of the transfer.
    pub(super) request: Option<u64>,
    /// The kind of the records that name the hosts; `None` for either.
    kind: Option<Kind>,
}

impl Sought {
    /// Returns what a chunk seeks; `None` if it is for one host.
    pub(super) fn of(header: &NetworkHeader) -> Option<Sought> {
        let kind = match header.service {
            service if service.has(ServiceId::CONTENT_REQUEST) => Kind::Provider,
            // Anyone may announce any name as a content's: only the owner of the key says who is a member.
            service if service.has(ServiceId::ANYCAST) => Kind::Member,
            _ => return None,
        };
        Some(Sought {
            name: header.destination,
            request: header.extensions.request,
            kind: Some(kind),
        })
    }

    /// Returns what stored chunks for a name seek.
    pub(in crate::router) fn any(name: Guid) -> Sought {
        Sought {
            name,
            request: None,
            kind: None,
        }
    }

    /// Returns true if the chunks of a transfer must go to the same host.
    pub(super) fn is_service(&self) -> bool {
        self.kind == Some(Kind::Member)
    }

    fn holders(&self, records: &[Record]) -> Vec<Guid> {
        let meant = |record: &&Record| self.kind.is_none_or(|kind| record.kind() == kind);
        let meant = records.iter().filter(meant);
        meant.map(Record::holder).collect()
    }

    /// Returns the request whose providers are tried one after the other.
    fn tried_by(&self) -> (&Guid, Option<u64>) {
        let request = self.request.filter(|_| !self.is_service());
        (&self.name, request)
    }
}

/// Returns the time of a chunk over a link.
fn cost_of(link: &LinkState) -> Duration {
    let rtt = link.rtt.unwrap_or(UNMEASURED);
    let bytes = MEASURE + link.queue_bytes as u64;
    let nanos = |rate: u64| u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    let sending = link.delivery_rate.map_or(0, nanos).min(u64::MAX.into()) as u64;
    let once = rtt + Duration::from_nanos(sending);
    // Each loss costs another round.
    once.div_f64((1.0 - link.loss.unwrap_or(0.0)).max(0.1))
}

impl Binding {
    /// Returns the nearest responsive host attached here that has what is sought. No name service is asked:
    /// one that is far or away delays nothing local.
    pub(super) fn own_provider(
        &mut self,
        now: Time,
        sought: Sought,
        links: &Links,
    ) -> Option<Guid> {
        if let Some(chosen) = self.chosen_member(now, sought, links) {
            return self
                .own_hosts(now, sought, links)
                .contains(&chosen)
                .then_some(chosen);
        }
        let here = self.own_providers(now, sought, links);
        self.nearest_of(now, sought, &here, links)
    }

    fn own_providers(&self, now: Time, sought: Sought, links: &Links) -> Vec<Guid> {
        let here = self.own_hosts(now, sought, links);
        self.names.worth_asking(now, sought.tried_by(), here, true)
    }

    /// Returns true if a host that is attached here, and that is worth asking, has a content or is a member.
    pub(in crate::router) fn is_served_here(&self, now: Time, name: Guid, links: &Links) -> bool {
        !self.own_providers(now, Sought::any(name), links).is_empty()
    }

    fn own_hosts(&self, now: Time, sought: Sought, links: &Links) -> Vec<Guid> {
        let announced = self.names.look_up_own(now, &sought.name).providers;
        let hosts = sought.holders(&announced).into_iter();
        let answers = |guid: &Guid| self.attachments.hops_to(guid, links).best().is_some();
        let here: Vec<Guid> = hosts.filter(answers).collect();
        (self.names).by_merit(&sought.name, here, |host| self.place_of(host, links))
    }

    /// Returns the hosts that have what is sought, as the name service says, and that are worth asking.
    pub(super) fn providers_of(
        &self,
        now: Time,
        sought: Sought,
        answer: &Answer,
        links: &Links,
    ) -> Vec<Guid> {
        let mut announced = sought.holders(&answer.providers);
        // What this router keeps itself is answered from its copies.
        announced.retain(|holder| *holder != self.own);
        let announced =
            (self.names).by_merit(&sought.name, announced, |host| self.place_of(host, links));
        self.names
            .worth_asking(now, sought.tried_by(), announced, false)
    }

    /// "The network will route the request to the location of a copy" [MFTP §2]: an attached,
    /// responsive one, else the nearest, so that a repeated request may reach another.
    pub(in crate::router) fn pick_provider(
        &mut self,
        now: Time,
        sought: Sought,
        answer: &Answer,
        links: &Links,
    ) -> Option<Guid> {
        let providers = self.providers_of(now, sought, answer, links);
        if let Some(chosen) = self.chosen_member(now, sought, links)
            && providers.contains(&chosen)
        {
            return Some(chosen);
        }
        let answers = |guid: &Guid| self.attachments.hops_to(guid, links).best().is_some();
        let here: Vec<Guid> = providers.iter().copied().filter(answers).collect();
        match here.is_empty() {
            true => self.nearest_of(now, sought, &providers, links),
            false => self.nearest_of(now, sought, &here, links),
        }
    }

    /// Returns the nearest of these hosts; of those that have served a content, if any has. Of several that
    /// are as near, any one.
    fn nearest_of(
        &mut self,
        now: Time,
        sought: Sought,
        hosts: &[Guid],
        links: &Links,
    ) -> Option<Guid> {
        let among = match self.names.proven(&sought.name, hosts) {
            0 => hosts.len(),
            proven => proven,
        };
        // Of each network that hosts here are in, the first: one neighbour can be any number of hosts.
        let mut places = BTreeSet::new();
        let mut is_first = |host: &&Guid| {
            self.place_of(host, links)
                .is_none_or(|at| places.insert(at))
        };
        let among: Vec<Guid> = hosts[..among]
            .iter()
            .take_while(&mut is_first)
            .copied()
            .collect();
        let costs: Vec<Option<Duration>> = among
            .iter()
            .map(|it| self.cost_to(now, it, links))
            .collect();
        let least = costs.iter().flatten().min().copied();
        let as_near: Vec<Guid> = match least {
            None => among,
            Some(least) => {
                let bound = least + least / EQUAL_PART + EQUAL;
                let is_near = |cost: &Option<Duration>| cost.is_some_and(|cost| cost <= bound);
                let near = among.iter().zip(&costs).filter(|(_, cost)| is_near(cost));
                near.map(|(host, _)| *host).collect()
            }
        };
        let any = self.rng.below(as_near.len() as u64) as usize;
        as_near.get(any).copied()
    }

    /// Returns the cost of a host; `None` if the way to it is not known, or is silent.
    fn cost_to(&self, now: Time, host: &Guid, links: &Links) -> Option<Duration> {
        let here = self.attachments.hops_to(host, links);
        let hops = match here.is_empty() {
            false => here,
            true => {
                let answer = self.names.known(now, host)?;
                self.routes.towards_binding(&answer, links)?
            }
        };
        // Of the whole way, where ways are learned; else of its first link.
        hops.best().map(|branch| {
            let learned = branch.address.and_then(|at| self.routes.learning.cost(&at));
            learned.map_or_else(|| cost_of(&branch.link), whimbrel_routing::Cost::time)
        })
    }

    /// Looks up where the hosts are that have what is sought, if several have it. Returns one about which an
    /// answer is to come.
    pub(super) fn measure_providers(
        &mut self,
        now: Time,
        sought: Sought,
        answer: &Answer,
        links: &Links,
    ) -> Option<Guid> {
        let providers = self.providers_of(now, sought, answer, links);
        let is_here = |host: &Guid| !self.attachments.hops_to(host, links).is_empty();
        if providers.len() < 2 || providers.iter().any(is_here) {
            return None;
        }
        let unknown = |host: &Guid| self.names.known(now, host).is_none();
        let unknown = providers.into_iter().filter(unknown);
        let mut pending = None;
        for host in unknown.take(MAX_MEASURED).collect::<Vec<_>>() {
            if let Lookup::Pending = self.names.look_up(now, host) {
                pending = Some(host);
            }
        }
        pending
    }

    /// Returns the member that the transfer goes to already, as long as there is a way to it.
    fn chosen_member(&self, now: Time, sought: Sought, links: &Links) -> Option<Guid> {
        let chosen = self.names.chosen(&sought.name, sought.request)?;
        let has_way = sought.is_service() && self.cost_to(now, &chosen, links).is_some();
        has_way.then_some(chosen)
    }

    /// Notes that a chunk goes to this host.
    pub(super) fn note_provider(
        &mut self,
        chunk: &ChunkToSend,
        sought: Sought,
        provider: Guid,
        links: &Links,
    ) {
        let about = (sought.name, sought.request);
        let at = chunk.from.map(|from| links.source_of(from));
        match sought.is_service() {
            true => (self.names).note_chosen(sought.name, sought.request, at, provider),
            false => self.names.note_tried(about, at, provider),
        }
    }

    /// Looks up the way to a provider; returns false if a chunk for it would have to be stored at once.
    pub(in crate::router) fn look_up_way(
        &mut self,
        now: Time,
        provider: Guid,
        links: &Links,
    ) -> bool {
        let here = self.attachments.hops_to(&provider, links);
        if !here.is_empty() {
            return here.best().is_some();
        }
        match self.names.look_up(now, provider) {
            Lookup::Resolved(answer) => self
                .routes
                .towards_binding(&answer, links)
                .is_some_and(|hops| hops.best().is_some()),
            Lookup::Pending => true,
            Lookup::NotFound | Lookup::Busy => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_costs_its_round_trip_its_rate_its_queue_and_its_losses() {
        let near = LinkState {
            rtt: Some(Duration::from_millis(2)),
            delivery_rate: Some(65_536_000),
            ..LinkState::default()
        };
        assert_eq!(cost_of(&near), Duration::from_millis(3));
        let far = LinkState {
            rtt: Some(Duration::from_millis(200)),
            ..near
        };
        let slow = LinkState {
            delivery_rate: Some(65_536),
            ..near
        };
        let full = LinkState {
            queue_bytes: 6_553_600,
            ..near
        };
        let lossy = LinkState {
            loss: Some(0.5),
            ..near
        };
        for worse in [far, slow, full, lossy, LinkState::default()] {
            assert!(cost_of(&worse) > cost_of(&near), "{worse:?}");
        }
    }
}
