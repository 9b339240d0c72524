//! Back-pressure for one flow: what waits for a next hop is bounded in time, and a flow of which
//! enough waits is held back where it comes from, while others go on.
//!
//! A node that only stops granting room [MFTP §3.4.1] stops all that comes by the same hop for the
//! slowest of its next hops.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{Guid, PortId, Time};

use super::{ChunkToSend, Link, LinkEvent, Links};
use crate::chunk::{Chunk, Flow};
use crate::outbox::{Stuck, flow_of};
use crate::taken::MIN_GUARD;
use crate::wire::{Hold, HoldMode, Request};

/// What may wait for a next hop, as time that it takes there, beside round trips: what is on its way
/// there counts until the neighbour has acknowledged it (a second round trip if a packet was lost),
/// and what is let go again where it comes from arrives one of that link later. All flows there
/// share it, and it shrinks to nothing as the second half of the buffer fills.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Longest round trip that counts for that.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(5);
/// Bytes per second of a next hop whose rate is not known yet.
pub(super) const UNMEASURED: u64 = 2 << 20;
/// A hold is repeated at this interval, ...
pub(crate) const RENEWAL: Duration = Duration::from_secs(1);
/// ... or at a longer one on a link of which that would take more than one part in so many. It ends
/// when three of them and a round trip have passed without one.
const RENEWAL_SHARE: u64 = 100;
const MAX_RENEWAL: Duration = Duration::from_secs(9);
/// So many flows to one neighbour may take much of the buffer, however thin its link is.
const MANY_FLOWS: usize = 8;
/// While no more bytes wait for a neighbour than this, the first chunk of each content is queued for a
/// flow that is held back.
const MAX_READY: u64 = 4 << 20;
/// A credit of which nothing has come during this many renewals and a round trip is taken for spent:
/// its source has no more, or has dropped it.
const IDLE_RENEWALS: u8 = 2;
/// A flow of which nothing waits at this many renewals in succession is held back no more.
const EMPTY_RENEWALS: u8 = 2;
/// About the bytes of a hold on a link.
const HOLD_BYTES: u64 = 300;
/// Longest lease that is believed.
pub(super) const MAX_LEASE: Duration = Duration::from_secs(32);

/// What a flow that is held back may bring all the same. What comes in faster than it leaves is let in
/// by credit: if it simply went on, a fast link would bring what it carries in a round trip before
/// the next hold, which is minutes' worth for a thin one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credit {
    // The port that the flow leaves on.
    port: PortId,
    // Bytes that have not come yet.
    outstanding: u64,
    // Renewals since some of it came or more was given.
    idle: u8,
}

/// A chunk of a flow with credit that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    flow: Flow,
    from: PortId,
    size: u64,
}

/// Returns the round trip without a queue.
pub(super) fn round_trip(link: &Link) -> Duration {
    let known = link.hop.min_rtt().unwrap_or_default();
    known.min(MAX_ROUND_TRIP)
}

impl Links {
    /// Returns the bytes of a flow from `from` that may wait for the neighbour on a port.
    pub(super) fn allowance(&self, link: &Link, flow: &Flow, from: Option<PortId>) -> u64 {
        let rate = link.hop.delivery_rate().unwrap_or(UNMEASURED);
        self.allowance_at(rate, link, flow, from)
    }

    /// The same if the flow goes on at `rate` bytes per second.
    pub(super) fn allowance_at(
        &self,
        rate: u64,
        link: &Link,
        flow: &Flow,
        from: Option<PortId>,
    ) -> u64 {
        let half = (self.buffer.capacity() / 2).max(1) as u128;
        let free = self.buffer.capacity().saturating_sub(self.buffer.used()) as u128;
        let from = from.and_then(|from| self.links.get(&from));
        let time = MAX_WAIT + round_trip(link) * 2 + from.map_or(Duration::ZERO, round_trip);
        let bytes = u128::from(rate) * time.as_millis() / 1_000 * free.min(half) / half;
        let part = u64::try_from(bytes).unwrap_or(u64::MAX) / link.outbox.flows().max(1) as u64;
        // No more is let in than the next hop lets in, and no more than fits here, whatever that says.
        link.outbox
            .credit_of(flow)
            .map_or(part, |credit| credit.min(part))
    }

    /// A chunk of a flow that came in on `from` waits for `port`: if there are enough, the flow is
    /// held back at `from`.
    pub(super) fn note_waiting(&mut self, port: PortId, flow: Flow, from: PortId) {
        self.review_late(port, &flow);
        let (bytes, chunks) = self.waiting(port, &flow);
        let Some(link) = self.links.get(&port) else {
            return;
        };
        // One on its way, and the next one.
        let allowance = self.allowance(link, &flow, Some(from));
        let is_enough = link.is_up() && chunks >= 2 && bytes > allowance;
        if is_enough
            && !self.crowd(port, &flow, from)
            && self.credits.remove(&(flow, from)).is_some()
        {
            // Its part has become smaller since it got credit.
            self.tell_hold(from, flow, Some(HoldMode::All), 0);
        }
    }

    /// Holds a flow back at `from` for what waits for `port`. Returns false if it is already.
    pub(super) fn crowd(&mut self, port: PortId, flow: &Flow, from: PortId) -> bool {
        let link = self.links.get_mut(&port);
        if !link.is_some_and(|link| link.outbox.note_told(flow, from)) {
            return false;
        }
        self.crowded.insert((port, *flow), 0);
        self.tell_hold(from, *flow, Some(HoldMode::All), 0);
        true
    }

    pub(super) fn tell_hold(
        &mut self,
        port: PortId,
        flow: Flow,
        mode: Option<HoldMode>,
        credit: u64,
    ) {
        self.events.push_back(LinkEvent::Hold {
            port,
            flow,
            mode,
            credit,
        });
    }

    /// A chunk less of a flow waits for `port`: more may come if few enough are left.
    pub(super) fn review_hold(&mut self, port: PortId, flow: &Flow) {
        self.review_late(port, flow);
        if !self.crowded.contains_key(&(port, *flow)) {
            return;
        }
        let (bytes, chunks) = self.waiting(port, flow);
        let Some(link) = self.links.get(&port).filter(|it| it.is_up()) else {
            // What comes for a neighbour that is away goes to the storage.
            return self.end_crowd(port, flow);
        };
        let told: Vec<PortId> = link.outbox.told(flow).collect();
        let most = told
            .iter()
            .map(|from| self.allowance(link, flow, Some(*from)));
        let most = most
            .max()
            .unwrap_or_else(|| self.allowance(link, flow, None));
        // A flow that comes from one port, and is not divided here since, goes on by credit.
        let is_divided = self.splits.contains_key(flow);
        let (false, [from]) = (is_divided, told.as_slice()) else {
            if chunks < 2 || bytes <= most / 4 * 3 {
                self.end_crowd(port, flow);
            }
            return;
        };
        let credit = self.credits.get(&(*flow, *from));
        let outstanding = credit.map_or(0, |credit| credit.outstanding);
        let expected = bytes + outstanding;
        if (chunks >= 2 || outstanding > 0) && expected > most / 4 * 3 {
            return;
        }
        // One chunk at least.
        let more = most.saturating_sub(expected).max(1);
        let credit = Credit {
            port,
            outstanding: outstanding + more,
            idle: 0,
        };
        self.credits.insert((*flow, *from), credit);
        self.tell_hold(*from, *flow, Some(HoldMode::All), more);
    }

    /// Nothing holds a flow back any more.
    fn end_crowd(&mut self, port: PortId, flow: &Flow) {
        self.crowded.remove(&(port, *flow));
        let link = self.links.get_mut(&port);
        let told = link.map(|link| link.outbox.take_told(flow));
        for from in told.into_iter().flatten() {
            self.credits.remove(&(*flow, from));
            self.tell_hold(from, *flow, None, 0);
        }
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
    pub(super) fn review_arrived(&mut self) {
        for Arrived { flow, from, size } in core::mem::take(&mut self.arrived) {
            let Some(credit) = self.credits.get_mut(&(flow, from)) else {
                continue;
            };
            credit.outstanding = credit.outstanding.saturating_sub(size);
            credit.idle = 0;
            let port = credit.port;
            let is_late = self.late.contains_key(&(port, flow));
            match self.waiting(port, &flow).1 == 0 && !is_late {
                // It leaves by another port now.
                true => {
                    self.credits.remove(&(flow, from));
                    self.end_crowd(port, &flow);
                }
                false => self.review_hold(port, &flow),
            }
        }
    }

    /// Nothing but what waits here holds a flow back at `from` any more: credit that was not passed on
    /// meanwhile is given again.
    pub(crate) fn give_again(&mut self, from: PortId, flow: &Flow) {
        if let Some(credit) = self.credits.remove(&(*flow, from)) {
            self.review_hold(credit.port, flow);
        }
    }

    /// Returns true if a flow is held back at `from` for what waits here.
    pub(crate) fn holds_back(&self, from: PortId, flow: &Flow) -> bool {
        let of_flow = |(port, of): &&(PortId, Flow)| {
            of == flow
                && (self.links.get(port))
                    .is_some_and(|link| link.outbox.told(flow).any(|it| it == from))
        };
        self.split_holds_back(from, flow) || self.crowded.keys().any(|it| of_flow(&it))
    }

    /// The same for all flows of a port.
    pub(super) fn review_holds(&mut self, port: PortId) {
        let first = (port, Flow::FIRST)..;
        let crowded = self.crowded.range(first.clone()).map(|(it, _)| it);
        let crowded = crowded.take_while(|(at, _)| *at == port);
        let late = self.late.range(first).map(|(it, _)| it);
        let late = late.take_while(|(at, _)| *at == port);
        let flows: BTreeSet<Flow> = crowded.chain(late).map(|(_, flow)| *flow).collect();
        flows.iter().for_each(|flow| self.review_hold(port, flow));
    }

    /// Returns the interval at which the neighbour on a port is told again what it is to hold back.
    pub(crate) fn renewal(&self, port: PortId) -> Duration {
        let link = self.links.get(&port);
        let rate = link.and_then(|it| it.hop.delivery_rate());
        let fitting = rate.map_or(0, |rate| HOLD_BYTES * RENEWAL_SHARE * 1_000 / rate);
        Duration::from_millis(fitting).clamp(RENEWAL, MAX_RENEWAL)
    }

    /// How long the neighbour on a port is to hold back what it is told to.
    pub(crate) fn lease(&self, port: PortId) -> Duration {
        let way = self.links.get(&port).map_or(Duration::ZERO, round_trip);
        self.renewal(port) * 3 + way
    }

    /// The ports whose neighbours are to be told again.
    pub(crate) fn take_due_renewals(&mut self, now: Time) -> BTreeSet<PortId> {
        let ports = self.links.iter().filter(|(_, it)| now >= it.renew_at);
        let due: BTreeSet<PortId> = ports.map(|(port, _)| *port).collect();
        for port in &due {
            let next = now + self.renewal(*port);
            if let Some(link) = self.links.get_mut(port) {
                link.renew_at = next;
            }
        }
        due
    }

    /// Repeats the holds that go on, at these ports. Returns false if there are none at any.
    pub(crate) fn renew_holds(&mut self, due: &BTreeSet<PortId>) -> bool {
        let mut unused = Vec::new();
        for ((flow, from), credit) in &mut self.credits {
            let way = self.links.get(from).map_or(Duration::ZERO, round_trip);
            credit.idle = credit.idle.saturating_add(1);
            // There is a renewal each second.
            if u64::from(credit.idle) >= u64::from(IDLE_RENEWALS) + way.as_secs() {
                credit.outstanding = 0;
                if self.late.contains_key(&(credit.port, *flow)) {
                    unused.push((*from, *flow));
                }
            }
        }
        // While a content is late there may be no other one. What is left must not add up.
        for (from, flow) in unused {
            self.tell_hold(from, flow, Some(HoldMode::All), 0);
        }
        let crowded: Vec<(PortId, Flow)> = self.crowded.keys().copied().collect();
        for (port, flow) in crowded {
            let is_late = self.late.contains_key(&(port, flow));
            let is_empty = self.waiting(port, &flow).1 == 0 && !is_late;
            let empty = self.crowded.get_mut(&(port, flow)).map(|empty| {
                *empty = if is_empty { *empty + 1 } else { 0 };
                *empty
            });
            if empty >= Some(EMPTY_RENEWALS) {
                self.end_crowd(port, &flow);
                continue;
            }
            self.review_hold(port, &flow);
            let link = self.links.get(&port);
            let told = link.into_iter().flat_map(|it| it.outbox.told(&flow));
            let due: Vec<PortId> = told.filter(|it| due.contains(it)).collect();
            for from in due {
                // That would take its credit back.
                let credit = self.credits.get(&(flow, from));
                if credit.is_none_or(|credit| credit.outstanding == 0) {
                    self.tell_hold(from, flow, Some(HoldMode::All), 0);
                }
            }
        }
        let any_late = self.renew_late(due);
        self.renew_split_holds(due) || any_late || !self.crowded.is_empty()
    }

    /// A port goes: nothing waits for it any more.
    pub(super) fn forget_holds(&mut self, port: PortId, link: &mut Link) {
        let of_port = self.crowded.keys().filter(|(at, _)| *at == port);
        let flows: Vec<Flow> = of_port.map(|(_, flow)| *flow).collect();
        for flow in flows {
            self.crowded.remove(&(port, flow));
            for from in link.outbox.take_told(&flow) {
                self.credits.remove(&(flow, from));
                self.tell_hold(from, flow, None, 0);
            }
        }
        self.credits.retain(|(_, from), _| *from != port);
        let ends: Vec<Flow> = link.outbox.held().copied().collect();
        self.resumed = true;
        for flow in ends {
            self.hold_ends.cancel(&(port, flow, None));
        }
        for (flow, content) in link.outbox.stops().copied() {
            self.hold_ends.cancel(&(port, flow, Some(content)));
        }
        self.forget_late(port);
    }

    /// The neighbour on `port` says how to go on with a flow that goes there. Returns false if its
    /// network holds too many.
    pub(crate) fn hold(&mut self, now: Time, port: PortId, hold: &Hold) -> bool {
        let flow = Flow {
            source: hold.source,
            destination: hold.destination,
        };
        let until = now + hold.lease.min(MAX_LEASE);
        let credit = u64::from(hold.credit);
        let at = self.source_of(port);
        let key = (port, flow, None);
        if hold.mode.is_some() && !self.hold_ends.contains(&key) {
            if !self.passes(port, &flow) {
                return true;
            }
            if !self.hold_ends.admits(port, at) {
                return false;
            }
        }
        let Some(link) = self.links.get_mut(&port) else {
            return true;
        };
        let known = link.outbox.hold(now, flow, hold.mode, until, credit);
        if known && credit == 0 && hold.mode.is_some() {
            link.take_back_unbegun(now, &flow);
            self.pull_back_divided(now, port, &flow);
        }
        match hold.mode {
            Some(_) if known => self.hold_ends.set(at, (port, flow, None), until),
            Some(_) => return false,
            None => self.hold_ends.cancel(&(port, flow, None)),
        }
        if hold.mode.is_none() || credit > 0 {
            self.gained.insert(port);
            self.resumed = true;
        }
        self.touched.insert(port);
        true
    }

    /// Notes that a chunk of a flow went to the neighbour on a port.
    #[cfg(test)]
    pub(crate) fn note_passed(&mut self, port: PortId, flow: Flow) {
        if let Some(link) = self.links.get_mut(&port) {
            link.handovers.note_flow(flow);
        }
    }

    /// Returns true if chunks of a flow wait for the neighbour on a port, or went there of late: what a
    /// neighbour holds back of others is not noted. It repeats what it says.
    pub(super) fn passes(&self, port: PortId, flow: &Flow) -> bool {
        let of_link = |link: &Link| link.outbox.has_flow(flow) || link.handovers.has_flow(flow);
        self.splits.contains_key(flow) || self.links.get(&port).is_some_and(of_link)
    }

    /// Takes chunks of flows that neighbours have held back since `before` out of their queues
    /// until half of the buffer is free: of the flow with the most bytes in a queue first, its
    /// newest chunk first. Returns them from old to new.
    pub(crate) fn take_stuck(&mut self, before: Time) -> Vec<ChunkToSend> {
        let mut stuck: BTreeSet<(u64, PortId, Stuck)> = BTreeSet::new();
        for (port, link) in &self.links {
            let of_link = link.outbox.stuck(before);
            stuck.extend(of_link.map(|(which, bytes)| (bytes, *port, which)));
        }
        let mut taken = Vec::new();
        let mut reviewed = BTreeSet::new();
        let mut packets = 0;
        while (self.buffer.used().saturating_sub(packets)) * 2 >= self.buffer.capacity()
            && let Some((bytes, port, which)) = stuck.pop_last()
        {
            let link = self.links.get_mut(&port);
            let Some(outgoing) = link.and_then(|it| it.outbox.take_newest(&which)) else {
                continue;
            };
            packets += outgoing.room.packets() as usize;
            let left = bytes.saturating_sub(outgoing.chunk.size() as u64);
            taken.push(outgoing);
            stuck.insert((left, port, which));
            reviewed.insert((port, which.0));
        }
        for (port, flow) in reviewed {
            self.review_hold(port, &flow);
        }
        while (self.buffer.used().saturating_sub(packets)) * 2 >= self.buffer.capacity()
            && let Some(outgoing) = self.take_stuck_divided(before)
        {
            packets += outgoing.room.packets() as usize;
            taken.push(outgoing);
        }
        taken.reverse();
        taken
    }

    pub(super) fn end_holds(&mut self, now: Time) {
        let mut stops = BTreeSet::new();
        for (port, flow, content) in self.hold_ends.take_due(now) {
            if let Some(link) = self.links.get_mut(&port) {
                match content {
                    None => link.outbox.end_hold(now, &flow),
                    Some(content) if link.outbox.end_stop(now, &flow, content) => {
                        stops.insert((port, flow));
                    }
                    Some(_) => {}
                }
                self.gained.insert(port);
                self.resumed = true;
                self.touched.insert(port);
            }
        }
        stops
            .iter()
            .for_each(|(port, flow)| self.review_hold(*port, flow));
    }

    /// Returns true if the neighbour on `port` wants nothing of a flow now.
    pub(crate) fn is_held(&self, port: PortId, flow: &Flow) -> bool {
        let link = self.links.get(&port);
        link.is_some_and(|link| link.outbox.hold_of(flow) == Some(HoldMode::All))
    }

    /// Returns true if the next chunk of a content should wait on `port` for the end of a hold, so
    /// that the content has its turn then: none of it is here, and there is room.
    pub(crate) fn should_get_ready(&self, port: PortId, flow: &Flow, content: &Guid) -> bool {
        self.links.get(&port).is_some_and(|link| {
            link.is_up()
                && link.outbox.bytes() < MAX_READY
                && !link.outbox.has_content(flow, content)
        })
    }

    /// True if a flow that was held back may go on since the last call, or goes by another port.
    pub(crate) fn take_resumed(&mut self) -> bool {
        core::mem::take(&mut self.resumed)
    }

    /// Returns true if a chunk should not wait for `port` in the buffer, because half of that is
    /// taken and the part of its flow, too. A quarter, if many flows go there: one inbound peer holds half
    /// of the buffer at most, and two chunks of each of many flows must not take all of that from its other
    /// flows.
    pub(crate) fn is_crowded(&self, port: PortId, outgoing: &ChunkToSend) -> bool {
        let (Some(link), Some(flow)) = (self.links.get(&port), flow_of(&outgoing.chunk)) else {
            return false;
        };
        let (bytes, _) = self.waiting(port, &flow);
        let parts = if link.outbox.flows() >= MANY_FLOWS {
            4
        } else {
            2
        };
        outgoing.room.is_held()
            && self.buffer.used() * parts > self.buffer.capacity()
            && bytes + outgoing.chunk.size() as u64 > self.allowance(link, &flow, outgoing.from)
    }

    /// Returns the rate of the fastest link to the neighbour on `port`, in bytes per second, as far as
    /// it is measured.
    pub(crate) fn rate_to(&self, port: PortId) -> Option<u64> {
        let rates = self.to_same(port);
        let rates = rates.filter_map(|(_, it)| it.hop.delivery_rate());
        rates.max()
    }

    /// Takes the chunks that are on their way to `client` by the neighbour on `port` from its request
    /// with this id. They arrive without being sent again, however long that takes. Those on another
    /// port arrive if they answer this very request: after a crash, another run of the client asks, and
    /// the port of the former one may count as up for some seconds.
    pub(crate) fn subtract_under_way(
        &self,
        port: PortId,
        (client, id): (&Guid, Option<u64>),
        request: &mut Request,
    ) {
        for (at, link) in self.to_same(port).filter(|(_, link)| link.is_up()) {
            let counts = |chunk: &Chunk| at == port || chunk.header.extensions.request == id;
            link.outbox.subtract_under_way(client, counts, request);
        }
        self.subtract_divided(port, (client, id), request);
    }

    /// For how long a chunk of this size that was delivered on `port` is not sent again for a repeated
    /// request.
    pub(crate) fn repeat_guard(&self, port: PortId, bytes: usize) -> Duration {
        let link = self.links.get(&port);
        link.map_or(MIN_GUARD, |link| link.repeat_guard(bytes))
    }

    /// Takes the chunks that the neighbour on `port` has taken a moment ago from a request of `client`
    /// with this id: it may have crossed them, or waited on its way.
    pub(crate) fn subtract_taken(
        &self,
        now: Time,
        port: PortId,
        (client, id): (&Guid, Option<u64>),
        request: &mut Request,
    ) {
        for (_, link) in self.to_same(port).filter(|(_, link)| link.is_up()) {
            link.taken.subtract_from(now, client, id, request);
        }
    }

    /// Returns the links to the neighbour on `port`. There are two if each end calls the other: what
    /// it asks for by one goes to it by either.
    fn to_same(&self, port: PortId) -> impl Iterator<Item = (PortId, &Link)> {
        let neighbour = self.links.get(&port).and_then(|link| link.neighbour);
        let others = neighbour.into_iter().flat_map(|it| {
            let ports = self.by_neighbour.get(&it);
            ports.into_iter().flatten().copied()
        });
        let others = others.filter(move |it| *it != port);
        let ports = core::iter::once(port).chain(others);
        ports.filter_map(|port| Some((port, self.links.get(&port)?)))
    }

    /// Removes the chunks of this flow that `is_meant` picks and that their receiver no longer wants
    /// from the queue of `port` and from its hop. Returns how many there were.
    pub(crate) fn purge(
        &mut self,
        now: Time,
        port: PortId,
        flow: &Flow,
        is_meant: impl Fn(&crate::chunk::Chunk) -> bool,
    ) -> usize {
        let (mut purged, mut ports) = self.purge_split(flow, &is_meant);
        if !ports.contains(&port) {
            ports.push(port);
        }
        for port in ports {
            let Some(link) = self.links.get_mut(&port) else {
                continue;
            };
            let before = link.outbox.queued() + link.outbox.carried();
            for tag in link.outbox.purge(flow, &is_meant) {
                link.hop.withdraw(now, tag);
            }
            purged += before - (link.outbox.queued() + link.outbox.carried());
            self.touched.insert(port);
            self.review_hold(port, flow);
        }
        self.forget_purged(flow);
        purged
    }
}

#[cfg(test)]
pub(super) mod tests {
    use whimbrel_core::identity::KeyPair;
    use whimbrel_core::{Medium, PortEvent, PortInfo, PortOrigin, SeededRng};
    use whimbrel_link::HopConfig;

    use super::*;

    /// Returns hops with this many inbound peers.
    pub(in crate::links) fn links(ports: u32) -> Links {
        let hop = HopConfig::plain(&KeyPair::from_secret(&[1; 32]), [1; 32], 1472);
        let mut links = Links::new(hop, 64, SeededRng::new(1));
        for port in 0..ports {
            let up = PortEvent::Up(PortInfo {
                label: "caller".into(),
                origin: PortOrigin::Accepted(0),
                mtu: 1472,
                peer: "caller".into(),
                medium: Medium::Unaddressed,
            });
            links.handle_port(Time::ZERO, PortId(port), &up);
        }
        links
    }
}
