//! Credit, the back-pressure for one flow: bounds the queueing delay per next hop. A flow above its share is
//! paused at its previous hop, while others continue.
//!
//! A node that only stops granting room [MFTP §3.4.1] would stop everything on the same hop for the
//! slowest of its next hops.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId};

use super::division::FlowDivision;
use super::neighbours::Neighbours;
use super::{Grant, LinkEvent, WaitingAt};
use crate::chunk::Chunk;
use crate::outbox::flow_of;
use crate::wire::Flow;

/// A credit of which nothing has come during this many renewals and a round trip is taken for spent:
/// its source has nothing left, or has dropped it.
const IDLE_RENEWALS: u8 = 2;
/// A flow of which nothing waits at this many renewals in succession is free again.
const EMPTY_RENEWALS: u8 = 2;

/// A flow of which enough waits.
#[derive(Debug, Default)]
struct Crowded {
    // The ports that it comes from and that have been told.
    told: BTreeSet<PortId>,
    // Renewals at which nothing of it waited.
    empty: u8,
}

/// What a flow may bring. What comes in faster than it leaves is let in by credit: if it were simply freed, a
/// fast link would bring what it carries in a round trip before it is held back again, which is minutes'
/// worth for a thin one.
#[derive(Clone, Copy, Debug)]
struct OpenCredit {
    // Where its chunks wait.
    place: WaitingAt,
    // Bytes that have not come yet.
    bytes: u64,
    // Renewals since some of it came or more was given.
    idle: u8,
}

/// A chunk of a flow with credit that has come.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    flow: Flow,
    from: PortId,
    size: u64,
}

/// The flows that are under credit where they come from.
#[derive(Debug, Default)]
pub(super) struct Grants {
    crowded: BTreeMap<(WaitingAt, Flow), Crowded>,
    // The same by flow: that of a group may be crowded at several ports.
    places: BTreeSet<(Flow, WaitingAt)>,
    // By the port that they come from.
    credits: BTreeMap<(Flow, PortId), OpenCredit>,
    arrived: Vec<Arrived>,
    // What is to be told.
    events: Vec<LinkEvent>,
}

/// What waits for next hops.
#[derive(Clone, Copy)]
pub(super) struct Backlogs<'a> {
    neighbours: &'a Neighbours,
    division: &'a FlowDivision,
}

impl<'a> Backlogs<'a> {
    pub(super) fn new(neighbours: &'a Neighbours, division: &'a FlowDivision) -> Backlogs<'a> {
        Backlogs {
            neighbours,
            division,
        }
    }

    /// Returns the bytes and chunks of a flow; `None` if its next hop is away: what comes then goes to the
    /// storage.
    fn of(&self, place: WaitingAt, flow: &Flow) -> Option<(u64, usize)> {
        match place {
            Some(port) => {
                let link = self.neighbours.at(port).filter(|link| link.is_up())?;
                Some(link.outbox.waiting(flow))
            }
            None => self.division.waiting(flow),
        }
    }

    /// Returns the bytes of a flow from `from` that may wait.
    fn allowance(&self, place: WaitingAt, flow: &Flow, from: PortId) -> u64 {
        match place.map(|port| self.neighbours.at(port)) {
            Some(Some(link)) => self.neighbours.allowance(link, flow, Some(from)),
            Some(None) => 0,
            None => self.division.allowance(self.neighbours, flow, from),
        }
    }

    /// Returns true if nothing of a flow waits or is on its way.
    fn none_waits(&self, place: WaitingAt, flow: &Flow) -> bool {
        self.of(place, flow).is_none_or(|(_, chunks)| chunks == 0)
    }
}

impl Grants {
    /// A chunk of a flow that came in on `from` waits: if there are enough, the flow is held back there.
    pub(super) fn note_waiting(
        &mut self,
        backlogs: Backlogs<'_>,
        place: WaitingAt,
        flow: Flow,
        from: PortId,
    ) {
        let (bytes, chunks) = backlogs.of(place, &flow).unwrap_or_default();
        // One on its way, and the next one.
        if chunks < 2 || bytes <= backlogs.allowance(place, &flow, from) {
            return;
        }
        self.places.insert((flow, place));
        let crowded = self.crowded.entry((place, flow)).or_default();
        // Its part may have become smaller since it got credit.
        if crowded.told.insert(from) || self.credits.remove(&(flow, from)).is_some() {
            self.tell(from, flow, Grant::Octets(0));
        }
    }

    fn tell(&mut self, port: PortId, flow: Flow, grant: Grant) {
        self.events.push(LinkEvent::Credit { port, flow, grant });
    }

    /// Takes what is to be told.
    pub(super) fn take_events(&mut self) -> Vec<LinkEvent> {
        core::mem::take(&mut self.events)
    }

    /// A chunk less of a flow waits: more may come if few enough are left.
    pub(super) fn review(&mut self, backlogs: Backlogs<'_>, place: WaitingAt, flow: &Flow) {
        let Some(crowded) = self.crowded.get(&(place, *flow)) else {
            return;
        };
        let Some((bytes, chunks)) = backlogs.of(place, flow) else {
            return self.free(place, flow);
        };
        let told = crowded.told.iter();
        let most = told
            .clone()
            .map(|from| backlogs.allowance(place, flow, *from));
        let most = most.max().unwrap_or(0);
        // A flow that comes from one port and waits for one, and is not divided here since, continues by credit.
        let is_alone = told.len() == 1 && self.places_of(flow).count() == 1;
        let only = told.clone().next().filter(|_| is_alone);
        let Some(from) = only.copied().filter(|_| !backlogs.division.has(flow)) else {
            if chunks < 2 || bytes <= most / 4 * 3 {
                self.free(place, flow);
            }
            return;
        };
        let credit = self.credits.get(&(*flow, from));
        let outstanding = credit.map_or(0, |credit| credit.bytes);
        let expected = bytes + outstanding;
        if (chunks >= 2 || outstanding > 0) && expected > most / 4 * 3 {
            return;
        }
        // One chunk at least.
        let more = most.saturating_sub(expected).max(1);
        let credit = OpenCredit {
            place,
            bytes: outstanding + more,
            idle: 0,
        };
        self.credits.insert((*flow, from), credit);
        self.tell(from, *flow, Grant::Octets(more));
    }

    /// Nothing holds a flow back any more.
    fn free(&mut self, place: WaitingAt, flow: &Flow) {
        let crowded = self.crowded.remove(&(place, *flow));
        self.places.remove(&(*flow, place));
        for from in crowded.into_iter().flat_map(|it| it.told) {
            self.credits.remove(&(*flow, from));
            // What waits for another next hop of a group still holds it back.
            if !self.holds_back(from, flow) {
                self.tell(from, *flow, Grant::Free);
            }
        }
    }

    /// Returns where enough of a flow waits.
    fn places_of(&self, flow: &Flow) -> impl Iterator<Item = WaitingAt> {
        let places = self.places.range((*flow, None)..);
        let flow = *flow;
        places
            .take_while(move |(of, _)| *of == flow)
            .map(|(_, place)| *place)
    }

    /// A chunk came in on `from`. Wherever it goes, it uses up credit.
    pub(super) fn note_arrived(&mut self, from: PortId, chunk: &Chunk) {
        if !self.credits.is_empty()
            && let Some(flow) = flow_of(chunk)
            && self.credits.contains_key(&(flow, from))
        {
            let size = chunk.size() as u64;
            self.arrived.push(Arrived { flow, from, size });
        }
    }

    /// Gives more credit for what has come, once that is where it waits.
    pub(super) fn review_arrived(&mut self, backlogs: Backlogs<'_>) {
        for Arrived { flow, from, size } in core::mem::take(&mut self.arrived) {
            let Some(credit) = self.credits.get_mut(&(flow, from)) else {
                continue;
            };
            credit.bytes = credit.bytes.saturating_sub(size);
            credit.idle = 0;
            let place = credit.place;
            match backlogs.none_waits(place, &flow) {
                // It leaves by another port now.
                true => {
                    self.credits.remove(&(flow, from));
                    self.free(place, &flow);
                }
                false => self.review(backlogs, place, &flow),
            }
        }
    }

    /// Nothing but what waits here holds a flow back at `from` any more: credit that was not passed on
    /// meanwhile is given again.
    pub(super) fn give_again(&mut self, backlogs: Backlogs<'_>, from: PortId, flow: &Flow) {
        if let Some(credit) = self.credits.remove(&(*flow, from)) {
            self.review(backlogs, credit.place, flow);
        }
    }

    /// Returns true if a flow is held back at `from` for what waits here.
    pub(super) fn holds_back(&self, from: PortId, flow: &Flow) -> bool {
        self.places_of(flow).any(|place| {
            let crowded = self.crowded.get(&(place, *flow));
            crowded.is_some_and(|crowded| crowded.told.contains(&from))
        })
    }

    /// Returns the flows that are held back for what waits for `port`.
    pub(super) fn flows_of(&self, port: PortId) -> Vec<Flow> {
        let crowded = self.crowded.range((Some(port), Flow::FIRST)..);
        let crowded = crowded.take_while(|((at, _), _)| *at == Some(port));
        crowded.map(|((_, flow), _)| *flow).collect()
    }

    /// Returns the flows to a host that are held back, with the ports that they leave on.
    pub(super) fn flows_to(&self, host: &Guid) -> Vec<(PortId, Flow)> {
        let crowded = self.crowded.keys();
        let to_host = crowded.filter(|(_, flow)| flow.destination == *host);
        to_host
            .filter_map(|(place, flow)| Some(((*place)?, *flow)))
            .collect()
    }

    /// Repeats at these ports what is told of flows without credit. Returns false if there are none at
    /// any.
    pub(super) fn renew(&mut self, backlogs: Backlogs<'_>, due: &BTreeSet<PortId>) -> bool {
        for ((_, from), credit) in &mut self.credits {
            let link = backlogs.neighbours.at(*from);
            let way = link.map_or(0, |link| link.round_trip().as_secs());
            credit.idle = credit.idle.saturating_add(1);
            // There is a renewal each second.
            if u64::from(credit.idle) >= u64::from(IDLE_RENEWALS) + way {
                credit.bytes = 0;
            }
        }
        for (place, flow) in self.crowded.keys().copied().collect::<Vec<_>>() {
            let is_empty = backlogs.none_waits(place, &flow);
            if let Some(crowded) = self.crowded.get_mut(&(place, flow)) {
                crowded.empty = if is_empty { crowded.empty + 1 } else { 0 };
                if crowded.empty >= EMPTY_RENEWALS {
                    self.free(place, &flow);
                    continue;
                }
            }
            self.review(backlogs, place, &flow);
            let crowded = self.crowded.get(&(place, flow)).into_iter();
            let told = crowded.flat_map(|it| it.told.intersection(due).copied());
            for from in told.collect::<Vec<_>>() {
                // That would take its credit back.
                let credit = self.credits.get(&(flow, from));
                if credit.is_none_or(|credit| credit.bytes == 0) {
                    self.tell(from, flow, Grant::Octets(0));
                }
            }
        }
        !self.crowded.is_empty()
    }

    /// A port is closed: nothing waits for its hop any more, and nothing comes from it.
    pub(super) fn forget_port(&mut self, port: PortId) {
        for flow in self.flows_of(port) {
            self.free(Some(port), &flow);
        }
        self.credits.retain(|(_, from), _| *from != port);
        self.crowded.retain(|_, crowded| {
            crowded.told.remove(&port);
            !crowded.told.is_empty()
        });
        (self.places).retain(|(flow, place)| self.crowded.contains_key(&(*place, *flow)));
    }
}
