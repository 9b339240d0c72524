//! A content of which so much waits for a next hop that all that comes after it would wait for long: the
//! link has become slow, or nobody knew how slow it is when the chunks were let in. Nothing of it is
//! given up. It comes no more until most of it has left, and others of its flow pass it.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_content::ChunkSize;
use whimbrel_core::{Guid, PortId, Time};

use super::holds::{MAX_LEASE, round_trip};
use super::{Link, LinkEvent, Links};
use crate::chunk::Flow;
use crate::chunk_size::TOO_LONG;
use crate::outbox::OfContent;
use crate::wire::{HoldMode, Stop};

/// A content is late if more of it waits than its flow's part of the link carries in this time and two
/// round trips, ...
const MAX_BEHIND: Duration = Duration::from_secs(4);
/// ... but in no case while no more than this waits, in bytes. It is late until a quarter is left.
const LEAST_LATE: u64 = 4 * ChunkSize::MIN.bytes();
/// One chunk on its way, and the next one: it takes more to be late, or chunks that are too large for
/// the link.
const FEW_CHUNKS: usize = 2;
/// Maximum of late contents of one flow: those of which most waits.
const MAX_LATE: usize = 4;
/// What has come of a late content at this many renewals was on its way when its source was told, and
/// counts as late, too, up to as much as waited then.
const GRACE_RENEWALS: u8 = 3;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A content that is late on a port.
#[derive(Debug)]
pub(super) struct LateContent {
    // Where it comes from: it is to come no more.
    told: BTreeSet<PortId>,
    // Bytes that waited when that was said, ...
    first: u64,
    // ... and with those that were on their way. More counts as if the content were not late: its
    // source may not know what it was told.
    bytes: u64,
    renewals: u8,
}

/// Returns the bytes of a content from which on it is late on a link that so many flows share, if its
/// rate is known.
fn late_above(link: &Link, flows: usize) -> Option<u64> {
    let rate = link.hop.delivery_rate().filter(|_| link.is_up())?;
    let time = MAX_BEHIND + round_trip(link) * 2;
    let bytes = u128::from(rate) * time.as_millis() / 1_000;
    let part = u64::try_from(bytes).unwrap_or(u64::MAX) / flows.max(1) as u64;
    Some(part.max(LEAST_LATE))
}

/// Returns true if chunks of this size take too long on a link.
fn is_large(link: &Link, size: u64) -> bool {
    let rate = link.hop.delivery_rate().unwrap_or(u64::MAX);
    u128::from(size) * 1_000 > u128::from(rate) * TOO_LONG.as_millis()
}

impl Links {
    /// Returns true if a content of a flow is late on `port`.
    pub(crate) fn is_behind(&self, port: PortId, flow: &Flow) -> bool {
        self.late.contains_key(&(port, *flow))
    }

    /// Finds out, every [`LOOK_INTERVAL`] at most, whether contents that this node originates are late:
    /// no chunk need come or go when a link becomes slow. Returns true if any content is late.
    pub(crate) fn look_for_late(&mut self, now: Time) -> bool {
        if now >= self.look_for_late_at {
            self.look_for_late_at = now + LOOK_INTERVAL;
            let mut long = Vec::new();
            for (port, link) in &self.links {
                // Nothing is late where all that waits leaves in time.
                let above = late_above(link, 1).filter(|above| link.outbox.bytes() > *above);
                let above = above.and_then(|_| late_above(link, link.outbox.flows()));
                let flows = above.map(|above| link.outbox.longer_than(above));
                long.extend(flows.into_iter().flatten().map(|flow| (*port, *flow)));
            }
            for (port, flow) in long {
                self.review_late(port, &flow);
            }
        }
        !self.late.is_empty()
    }

    /// Returns the bytes and chunks of a flow that wait for `port` or are on their way, without those
    /// that others pass.
    pub(super) fn waiting(&self, port: PortId, flow: &Flow) -> (u64, usize) {
        let Some(link) = self.links.get(&port) else {
            return (0, 0);
        };
        let (mut bytes, mut chunks) = link.outbox.waiting(flow);
        let Some(late) = self.late.get(&(port, *flow)) else {
            return (bytes, chunks);
        };
        for (content, waiting) in link.outbox.contents_of(flow) {
            if let Some(late) = late.get(&content) {
                bytes -= waiting.bytes.min(late.bytes);
                if waiting.bytes <= late.bytes {
                    chunks -= waiting.chunks;
                }
            }
        }
        (bytes, chunks)
    }

    /// Finds out which contents of a flow are late on `port`, and tells where they come from.
    pub(super) fn review_late(&mut self, port: PortId, flow: &Flow) {
        let key = (port, *flow);
        let Some(link) = self.links.get(&port) else {
            return;
        };
        let above = late_above(link, link.outbox.flows());
        let above = above.filter(|_| !self.splits.contains_key(flow));
        let none = BTreeMap::new();
        let before = self.late.get(&key).unwrap_or(&none);
        let is_little = above.is_none_or(|above| link.outbox.waiting(flow).0 <= above);
        if is_little && before.is_empty() && !link.outbox.has_stopped(flow) {
            return;
        }
        let contents = link.outbox.contents_of(flow);
        let is_late = |(content, it): &(&Guid, &OfContent)| {
            let stays = before.contains_key(*content);
            let is_more = |above: u64| match stays {
                true => it.bytes > above / 4,
                false => {
                    let are_many = it.chunks > FEW_CHUNKS || is_large(link, it.largest);
                    it.bytes > above && are_many
                }
            };
            link.outbox.is_stopped(flow, content) || above.is_some_and(is_more)
        };
        let mut late: Vec<(&Guid, &OfContent)> = contents.iter().filter(is_late).collect();
        late.sort_by_key(|(content, it)| {
            let is_new = !before.contains_key(*content);
            (is_new, core::cmp::Reverse(it.bytes))
        });
        late.truncate(MAX_LATE);
        let late: BTreeMap<Guid, OfContent> = late
            .into_iter()
            .map(|(content, it)| (*content, it.clone()))
            .collect();
        // What the neighbour has stopped is not to come either while none of it is here.
        let stays = |it: &&Guid| late.contains_key(*it) || link.outbox.is_stopped(flow, it);
        let over = before.keys().filter(|it| !stays(it));
        let over: Vec<Guid> = over.copied().collect();
        for content in over {
            let is_left = contents.contains_key(&content);
            self.end_late(port, flow, content, is_left);
        }
        for (content, it) in late {
            self.note_late(port, flow, content, &it);
        }
    }

    /// A content is late, as it was before or from now on.
    fn note_late(&mut self, port: PortId, flow: &Flow, content: Guid, it: &OfContent) {
        let of_flow = self.late.entry((port, *flow)).or_default();
        let late = of_flow.entry(content).or_insert_with(|| LateContent {
            told: BTreeSet::new(),
            first: it.bytes,
            bytes: it.bytes,
            renewals: 0,
        });
        if late.renewals < GRACE_RENEWALS {
            late.bytes = late.bytes.max(it.bytes.min(2 * late.first));
        }
        let more = it.from.difference(&late.told).copied();
        let more: Vec<PortId> = more.collect();
        late.told.extend(&more);
        for from in more {
            self.tell_stop(from, flow, content, true);
            // The others come by credit: all of one at once would be late as well.
            self.crowd(port, flow, from);
        }
        // What is known of a flow in the outbox goes when nothing of it is left there.
        if let Some(link) = self.links.get_mut(&port)
            && link.outbox.set_late(flow, content, true)
        {
            tracing::debug!(
                link = %link.info.label, %content, to = %flow.destination, bytes = it.bytes,
                "the link is slow for what waits: other contents pass this one"
            );
            self.touched.insert(port);
        }
    }

    /// A content is late no more. If some of it `is_left`, more comes by credit.
    fn end_late(&mut self, port: PortId, flow: &Flow, content: Guid, is_left: bool) {
        let key = (port, *flow);
        let Some(of_flow) = self.late.get_mut(&key) else {
            return;
        };
        let late = of_flow.remove(&content);
        if of_flow.is_empty() {
            self.late.remove(&key);
        }
        if let Some(link) = self.links.get_mut(&port) {
            link.outbox.set_late(flow, content, false);
            self.touched.insert(port);
        }
        for from in late.into_iter().flat_map(|late| late.told) {
            if is_left && !self.crowd(port, flow, from) {
                // What was let in meanwhile was not meant for this content.
                self.credits.remove(&(*flow, from));
                self.tell_hold(from, *flow, Some(HoldMode::All), 0);
            }
            self.tell_stop(from, flow, content, false);
        }
    }

    fn tell_stop(&mut self, port: PortId, flow: &Flow, content: Guid, is_stopped: bool) {
        self.events.push_back(LinkEvent::Stop {
            port,
            flow: *flow,
            content,
            is_stopped,
        });
    }

    /// Reviews all contents that are late, and repeats to the neighbours on these ports what they are not
    /// to send. Returns false if there are none.
    pub(super) fn renew_late(&mut self, due: &BTreeSet<PortId>) -> bool {
        let keys: Vec<(PortId, Flow)> = self.late.keys().copied().collect();
        for (port, flow) in keys {
            self.review_hold(port, &flow);
            let mut again = Vec::new();
            for (content, late) in self.late.get_mut(&(port, flow)).into_iter().flatten() {
                late.renewals = late.renewals.saturating_add(1);
                let told = late.told.iter().filter(|from| due.contains(from));
                again.extend(told.map(|from| (*from, *content)));
            }
            for (from, content) in again {
                self.tell_stop(from, &flow, content, true);
            }
        }
        !self.late.is_empty()
    }

    /// A port goes: nothing is late there.
    pub(super) fn forget_late(&mut self, port: PortId) {
        let of_port = self.late.range((port, Flow::FIRST)..);
        let of_port = of_port.take_while(|((at, _), _)| *at == port);
        let all = of_port.flat_map(|((_, flow), of_flow)| of_flow.keys().map(|it| (*flow, *it)));
        for (flow, content) in all.collect::<Vec<_>>() {
            self.end_late(port, &flow, content, false);
        }
        for of_flow in self.late.values_mut() {
            for late in of_flow.values_mut() {
                late.told.remove(&port);
            }
        }
    }

    /// The neighbour on `port` says whether it takes chunks of a content. Returns false if it stops too
    /// many.
    pub(crate) fn stop(&mut self, now: Time, port: PortId, stop: &Stop) -> bool {
        let flow = Flow {
            source: stop.source,
            destination: stop.destination,
        };
        let until = now + stop.lease.min(MAX_LEASE);
        let is_stopped = !stop.lease.is_zero();
        let at = self.source_of(port);
        let end = (port, flow, Some(stop.content));
        if is_stopped && !self.hold_ends.contains(&end) {
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
        let was_stopped = link.outbox.is_stopped(&flow, &stop.content);
        let wanted = is_stopped.then_some(until);
        if !link.outbox.stop(now, &flow, stop.content, wanted) {
            return false;
        }
        match is_stopped {
            true => self.hold_ends.set(at, end, until),
            false => self.hold_ends.cancel(&end),
        }
        // A repetition changes nothing else.
        if is_stopped == was_stopped {
            return true;
        }
        if is_stopped {
            link.take_back_unbegun(now, &flow);
        } else {
            self.resumed = true;
            self.gained.insert(port);
        }
        self.touched.insert(port);
        self.review_hold(port, &flow);
        true
    }

    /// Returns true if the neighbour on `port` takes nothing of a content now.
    pub(crate) fn is_stopped(&self, port: PortId, flow: &Flow, content: &Guid) -> bool {
        let link = self.links.get(&port);
        link.is_some_and(|link| link.outbox.is_stopped(flow, content))
    }
}
