//! The downstream rate, delay and backlog of divided flows.
//!
//! The node that divides a flow sees only the first link of each branch. If a branch leads through another
//! router, that router reports the rate at which the flow leaves it and its backlog (message Pace); an
//! intermediate router adds its own part. "A bifurcation point will schedule the data towards each interface
//! based on fine-grained link quality information" [MF-5G §III].

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, Time};

use super::link::Link;
use super::{ChunkToSend, LinkEvent};
use crate::split::schedule::{Measured, time_of};
use crate::wire::{Flow, Pace, ServiceId};

/// A branch has room for the next chunk while its hop has less than this to send, as time, or less
/// than one chunk.
pub(super) const LOW_WATER: Duration = Duration::from_millis(20);
/// Minimum interval between reports of a flow's pace, ...
const INTERVAL: Duration = Duration::from_millis(10);
/// ... and bytes of the flow that must have left; the message is about a hundredth of these.
const TOLD_AFTER: u64 = 30_000;
/// Bytes that may be outstanding at a next hop that has not reported yet, ...
const UNTOLD: u64 = 4 * CHUNK;
/// ... for this long: it may not support the message.
const UNTOLD_FOR: Duration = Duration::from_secs(3);
/// Flows whose pace is told, and flows and ports of which it is known.
const MAX_TOLD: usize = 1024;
const MAX_KNOWN: usize = 4096;
/// A report of this age may be forgotten for another flow.
const OLD: Duration = Duration::from_secs(10);
/// A chunk that waits behind the next hop is due after twice the time that it takes there and this.
const LATE: Duration = Duration::from_millis(200);
/// While one is late, at most [`UNTOLD`] goes there, and as much again after each such interval: its router
/// may have lost its state.
const PATIENCE: Duration = Duration::from_secs(5);
/// Parts of a flow meet at a node if they come from several ports within this time or twice this time.
const MEETING: Duration = Duration::from_secs(2);
/// The size of a chunk of a divided flow, for times.
pub(super) const CHUNK: u64 = 64 << 10;
/// Fewer bytes that wait are none.
pub(super) const LITTLE: u64 = 16 << 10;
/// Ports from which a flow comes that are remembered.
const MAX_FROM: usize = 8;
/// Greater numbers of bytes are not believed.
const MOST: u64 = 1 << 40;

/// A flow that another node divides, and that passes here.
#[derive(Clone, Debug)]
struct Passing {
    // Where it comes from, in this [`MEETING`] and in the one before. From several ports: its parts meet
    // here, and none of them has a pace of its own.
    from: BTreeSet<PortId>,
    from_before: BTreeSet<PortId>,
    since: Time,
    // By which port it leaves.
    to: PortId,
    told_at: Time,
}

impl Passing {
    fn origins(&mut self, now: Time) -> BTreeSet<PortId> {
        if now.since(self.since) >= MEETING {
            self.since = now;
            self.from_before = core::mem::take(&mut self.from);
        }
        self.from.union(&self.from_before).copied().collect()
    }
}

/// What a next hop has said of a flow.
#[derive(Clone, Copy, Debug)]
struct FlowReport {
    // 0: no pace is told of it, because its parts meet there.
    rate: u64,
    delay: Duration,
    // The shortest delay so far: that of empty queues.
    least_delay: Duration,
    waiting: u64,
    at: Time,
    // Bytes of the flow that the next hop had been given then.
    given: u64,
}

impl FlowReport {
    /// Returns the bytes that wait behind the next hop by now, which has been given `given` bytes in all.
    fn waiting(&self, now: Time, given: u64) -> u64 {
        let gone = u128::from(self.rate) * now.since(self.at).as_micros() / 1_000_000;
        let gone = u64::try_from(gone).unwrap_or(u64::MAX);
        self.unanswered(given).saturating_sub(gone)
    }

    /// Returns the delay by now, if the next hop has been given `given` bytes in all: the queues on the
    /// further way run empty in their own length when nothing is added. Nothing would be told of a way
    /// that gets no chunks because its queues were long once.
    fn delay(&self, now: Time, given: u64) -> Duration {
        match given > self.given {
            true => self.delay,
            false => (self.delay.saturating_sub(now.since(self.at))).max(self.least_delay),
        }
    }

    /// Returns the bytes of which the next hop has not said yet that they have left it.
    fn unanswered(&self, given: u64) -> u64 {
        self.waiting + given.saturating_sub(self.given)
    }

    /// Returns true if the next message is late.
    fn is_late(&self, now: Time, given: u64, round_trip: Duration) -> bool {
        let chunk = time_of(CHUNK, self.rate);
        let due = (chunk + self.delay) * 2 + round_trip + LATE;
        self.unanswered(given) > 0 && now.since(self.at) > due
    }
}

/// One way on for a flow: the neighbour on a port, and the bytes that it has been given if they are counted
/// here.
#[derive(Clone, Copy)]
pub(super) struct OnwardWay<'a> {
    pub(super) link: &'a Link,
    pub(super) flow: &'a Flow,
    pub(super) port: PortId,
    pub(super) given: Option<u64>,
}

/// Paces of flows: those that pass here are told to the node before, and what next hops have said of flows.
#[derive(Default)]
pub(super) struct Paces {
    is_used: bool,
    passing: BTreeMap<Flow, Passing>,
    onward: BTreeMap<(PortId, Flow), FlowReport>,
    // What is to be told.
    events: Vec<LinkEvent>,
}

impl Paces {
    /// Sets whether paces are told and believed.
    pub(super) fn set_used(&mut self, is_used: bool) {
        self.is_used = is_used;
    }

    /// Notes that a chunk from this neighbour, which a node before may have bound to this way, leaves by
    /// `to`.
    pub(super) fn note_passing(
        &mut self,
        neighbour: Option<Guid>,
        to: PortId,
        outgoing: &ChunkToSend,
    ) {
        if !self.is_used {
            return;
        }
        let header = &outgoing.chunk.header;
        let Some(from) = outgoing.from else { return };
        // A host binds its chunks by the link that it sends them on. With several addresses, this way is one
        // of those that part before this node, or the only one.
        let is_bound = !header.extensions.addresses.is_empty() || neighbour == Some(header.source);
        let is_part = is_bound && header.service.has(ServiceId::MULTIHOMING);
        if !is_part || outgoing.chunk.data().is_none() {
            return;
        }
        let flow = outgoing.chunk.flow();
        if let Some(passing) = self.passing.get_mut(&flow) {
            if passing.from.len() < MAX_FROM {
                passing.from.insert(from);
            }
            passing.to = to;
            return;
        }
        if self.passing.len() >= MAX_TOLD {
            let newest = self.passing.values().map(|it| it.told_at).max();
            let newest = newest.unwrap_or(Time::ZERO);
            self.passing.retain(|_, it| newest.since(it.told_at) < OLD);
        }
        if self.passing.len() < MAX_TOLD {
            let passing = Passing {
                from: BTreeSet::from([from]),
                from_before: BTreeSet::new(),
                since: Time::ZERO,
                to,
                told_at: Time::ZERO,
            };
            self.passing.insert(flow, passing);
        }
    }

    /// Returns the port by which a flow leaves whose pace is to be told. Where parts of a flow meet, tells
    /// that there is none.
    pub(super) fn way_of(&mut self, now: Time, flow: &Flow) -> Option<PortId> {
        let passing = self.passing.get_mut(flow)?;
        let origins = passing.origins(now);
        if origins.len() > 1 {
            if passing.told_at == Time::ZERO || now.since(passing.told_at) >= MEETING / 2 {
                passing.told_at = now;
                let pace = Pace::none(*flow);
                let told = origins.into_iter();
                let told = told.map(|port| LinkEvent::Pace { port, pace });
                self.events.extend(told);
            }
            return None;
        }
        (!origins.is_empty()).then_some(passing.to)
    }

    /// Tells the previous node of a flow at which pace it leaves here, if that is due.
    pub(super) fn tell(&mut self, now: Time, flow: &Flow, pace: Pace) {
        let Some(passing) = self.passing.get_mut(flow) else {
            return;
        };
        let interval = INTERVAL.max(time_of(TOLD_AFTER, pace.rate));
        // The last of several chunks is told of in any case: nothing comes after it.
        let is_soon = passing.told_at != Time::ZERO && now.since(passing.told_at) < interval;
        if is_soon && pace.waiting >= LITTLE {
            return;
        }
        passing.told_at = now;
        let origin = passing.origins(now).first().copied();
        self.events
            .extend(origin.map(|port| LinkEvent::Pace { port, pace }));
    }

    /// Returns true if a flow passes here and leaves by this port.
    pub(super) fn leaves_by(&self, flow: &Flow, port: PortId) -> bool {
        self.passing.get(flow).is_some_and(|it| it.to == port)
    }

    /// Notes the pace that the neighbour on a port tells of a flow, and the bytes of it that the neighbour has
    /// been given. Returns false if the paces of too many flows are known.
    pub(super) fn note(
        &mut self,
        now: Time,
        port: PortId,
        pace: &Pace,
        given: Option<u64>,
    ) -> bool {
        let flow = pace.flow;
        let is_new = !self.onward.contains_key(&(port, flow));
        if is_new && self.onward.len() >= MAX_KNOWN {
            self.onward.retain(|_, it| now.since(it.at) < OLD);
        }
        if is_new && self.onward.len() >= MAX_KNOWN {
            return false;
        }
        let before = self.onward.get(&(port, flow));
        let onward = FlowReport {
            rate: pace.rate.min(MOST),
            delay: pace.delay,
            least_delay: before.map_or(pace.delay, |it| it.least_delay.min(pace.delay)),
            waiting: pace.waiting.min(MOST),
            at: now,
            given: given.unwrap_or(0),
        };
        self.onward.insert((port, flow), onward);
        true
    }

    /// Returns the downstream rate of a flow at the neighbour on a port, if it has been reported.
    pub(super) fn rate(&self, port: PortId, flow: &Flow) -> Option<u64> {
        let onward = self.onward.get(&(port, *flow));
        onward.map(|it| it.rate).filter(|rate| *rate > 0)
    }

    /// Adds to the measurements of a branch what is known of its further way. Returns `None` if nothing
    /// comes out there any more.
    pub(super) fn beyond(&self, now: Time, way: OnwardWay<'_>, here: Measured) -> Option<Measured> {
        let onward = self.onward.get(&(way.port, *way.flow));
        let Some(onward) = onward.filter(|it| it.rate > 0) else {
            return Some(here);
        };
        let delay = way
            .given
            .map_or(onward.delay, |given| onward.delay(now, given));
        let given = way.given.unwrap_or(onward.given);
        let carried = way.link.outbox.waiting(way.flow).0;
        if onward.is_late(now, given, here.round_trip) {
            let times = now.since(onward.at).as_secs() / PATIENCE.as_secs() + 1;
            if onward.unanswered(given) + carried >= UNTOLD * times {
                return None;
            }
        }
        let waiting = carried + onward.waiting(now, given);
        let rate = here.rate.map_or(onward.rate, |it| it.min(onward.rate));
        // What is taken now is told of a round trip later.
        let lag = LOW_WATER + INTERVAL + here.round_trip;
        let room = u128::from(rate) * lag.as_micros() / 1_000_000 + u128::from(TOLD_AFTER + CHUNK);
        Some(Measured {
            rate: Some(rate),
            round_trip: here.round_trip + delay * 2,
            least_round_trip: here.least_round_trip + delay * 2,
            waiting,
            has_room: here.has_room && u128::from(waiting) < room,
            ..here
        })
    }

    /// Returns true if the neighbour on a way forwards a flow, has said nothing of it, and has got enough:
    /// `given` bytes since `since`.
    pub(super) fn is_awaited(
        &self,
        now: Time,
        way: OnwardWay<'_>,
        given: u64,
        since: Option<Time>,
    ) -> bool {
        let is_end = way.link.neighbour == Some(way.flow.destination);
        let is_known = self.onward.contains_key(&(way.port, *way.flow));
        let is_young = since.is_some_and(|since| now.since(since) < UNTOLD_FOR);
        self.is_used && !is_end && !is_known && is_young && given >= UNTOLD
    }

    /// Forgets what the neighbour on a port has said.
    pub(super) fn forget_port(&mut self, port: PortId) {
        self.onward.retain(|(at, _), _| *at != port);
        self.passing.retain(|_, it| {
            it.from.remove(&port);
            !it.from.is_empty() && it.to != port
        });
    }

    /// Takes what is to be told.
    pub(super) fn take_events(&mut self) -> Vec<LinkEvent> {
        core::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detour_that_has_ended_is_forgotten() {
        let (near, detour) = (PortId(1), PortId(2));
        let mut passing = Passing {
            from: BTreeSet::from([near, detour]),
            from_before: BTreeSet::new(),
            since: Time::from_secs(10),
            to: PortId(3),
            told_at: Time::ZERO,
        };
        assert_eq!(passing.origins(Time::from_secs(11)).len(), 2);
        passing.from.insert(near);
        assert_eq!(passing.origins(Time::from_secs(12)).len(), 2);
        passing.from.insert(near);
        let left = passing.origins(Time::from_secs(14));
        assert_eq!(left, BTreeSet::from([near]));
    }

    #[test]
    fn a_way_that_gets_nothing_more_is_soon_as_short_as_it_ever_was() {
        let told = FlowReport {
            rate: 1_000_000,
            delay: Duration::from_millis(800),
            least_delay: Duration::from_millis(250),
            waiting: 0,
            at: Time::from_millis(1_000),
            given: 500,
        };
        let after = |ms: u64, given| told.delay(Time::from_millis(1_000 + ms), given).as_millis();
        assert_eq!([after(0, 500), after(300, 500)], [800, 500]);
        assert_eq!(after(10_000, 500), 250);
        // What goes there now meets the queue that was told of, until more is told.
        assert_eq!(after(10_000, 501), 800);
    }
}
