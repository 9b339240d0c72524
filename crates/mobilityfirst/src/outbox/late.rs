//! Contents of which so much waits for the neighbour that others of their flow pass them.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, Time};

use super::{Late, MAX_HOLDS, Outbox, flow_of};
use crate::chunk::Flow;

/// Maximum of contents of one flow that a neighbour may stop: twice as many as a router does at one time.
const MAX_STOPS_OF_FLOW: usize = 8;

/// A flow, or one content of it, that the neighbour holds back.
pub(crate) type Stuck = (Flow, Option<Guid>);

/// A content that the neighbour has stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopped {
    since: Time,
    until: Time,
}

/// What waits of one content, or is on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfContent {
    pub(crate) bytes: u64,
    pub(crate) chunks: usize,
    /// The bytes of the largest chunk.
    pub(crate) largest: u64,
    /// Where it comes from and can be held back.
    pub(crate) from: BTreeSet<PortId>,
}

impl Outbox {
    /// Returns what waits of each content of a flow that is not divided here.
    pub(crate) fn contents_of(&self, flow: &Flow) -> BTreeMap<Guid, OfContent> {
        let mut contents: BTreeMap<Guid, OfContent> = BTreeMap::new();
        let carried = self.carrying.values();
        let carried = carried.filter(|it| flow_of(&it.chunk) == Some(*flow));
        for outgoing in carried.chain(self.queued_in(flow)) {
            if let Some(data) = outgoing.chunk.data().filter(|_| outgoing.order.is_none()) {
                let of_content = contents.entry(data.content).or_default();
                let size = outgoing.chunk.size() as u64;
                of_content.bytes += size;
                of_content.chunks += 1;
                of_content.largest = of_content.largest.max(size);
                of_content.from.extend(outgoing.from);
            }
        }
        contents
    }

    /// Others of the flow pass this content from now on, or no longer. What the neighbour has stopped
    /// stays so. Returns true if that changes anything.
    pub(crate) fn set_late(&mut self, flow: &Flow, content: Guid, is_late: bool) -> bool {
        let late = match self.is_stopped(flow, &content) {
            true => Some(Late::Stopped),
            false => is_late.then_some(Late::Beside),
        };
        let Some(of_flow) = self.flows.get_mut(flow) else {
            return false;
        };
        if of_flow.queued.late().get(&content).copied() == late {
            return false;
        }
        of_flow.queued.set_late(content, late);
        if late.is_some() && of_flow.beside.is_none() {
            self.next_number += 1;
            of_flow.beside = Some(self.next_number);
            self.by_number.insert(self.next_number, *flow);
        }
        self.classify(flow);
        true
    }

    /// The neighbour takes nothing of a content until then (`None`: again). Returns false if it
    /// stops too many.
    pub(crate) fn stop(
        &mut self,
        now: Time,
        flow: &Flow,
        content: Guid,
        until: Option<Time>,
    ) -> bool {
        let key = (*flow, content);
        let known = self.stopped.get(&key).copied();
        let is_full =
            || self.stopped.len() >= MAX_HOLDS || self.stops_of(flow).count() >= MAX_STOPS_OF_FLOW;
        match until {
            Some(_) if known.is_none() && is_full() => return false,
            Some(until) => {
                let since = known.map_or(now, |known| known.since);
                self.stopped.insert(key, Stopped { since, until });
            }
            None => drop(self.stopped.remove(&key)),
        }
        self.set_late(flow, content, false);
        true
    }

    fn stops_of(&self, flow: &Flow) -> impl Iterator<Item = &Guid> {
        let first = (*flow, Guid::NONE)..;
        let stopped = self.stopped.range(first).map(|(key, _)| key);
        let of_flow = stopped.take_while(move |(of, _)| of == flow);
        of_flow.map(|(_, content)| content)
    }

    /// Returns true if chunks of contents of a flow are here that the neighbour has stopped.
    pub(crate) fn has_stopped(&self, flow: &Flow) -> bool {
        let of_flow = self.flows.get(flow);
        of_flow.is_some_and(|it| self.stops_of(flow).any(|content| it.queued.has(content)))
    }

    pub(crate) fn is_stopped(&self, flow: &Flow, content: &Guid) -> bool {
        self.stopped.contains_key(&(*flow, *content))
    }

    /// A stop that was not repeated ends. Returns true if it does.
    pub(crate) fn end_stop(&mut self, now: Time, flow: &Flow, content: Guid) -> bool {
        let stopped = self.stopped.get(&(*flow, content));
        let ends = stopped.is_some_and(|it| it.until <= now);
        ends && self.stop(now, flow, content, None)
    }

    /// Returns what the neighbour has stopped.
    pub(crate) fn stops(&self) -> impl Iterator<Item = &(Flow, Guid)> {
        self.stopped.keys()
    }

    pub(super) fn stopped_since(&self, before: Time) -> impl Iterator<Item = Stuck> {
        let stopped = self.stopped.iter();
        let stopped = stopped.filter(move |(_, it)| it.since <= before);
        stopped.map(|((flow, content), _)| (*flow, Some(*content)))
    }

    /// Returns what it was.
    pub(super) fn forget_stops(&mut self) -> Vec<Stuck> {
        let stopped = core::mem::take(&mut self.stopped).into_keys();
        let stopped: Vec<(Flow, Guid)> = stopped.collect();
        for (flow, content) in &stopped {
            self.set_late(flow, *content, false);
        }
        let stopped = stopped.into_iter();
        stopped
            .map(|(flow, content)| (flow, Some(content)))
            .collect()
    }

    /// Applies what the neighbour has stopped to a flow of which the first chunk came.
    pub(super) fn apply_stops(&mut self, flow: &Flow) {
        let stopped: Vec<Guid> = self.stops_of(flow).copied().collect();
        for content in stopped {
            self.set_late(flow, content, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outbox::SPARE_BELOW;
    use crate::outbox::tests::of_content;
    use crate::wire::HoldMode;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(u8, usize),
        Send { is_full: bool },
        Deliver,
        TakeBack,
        Late(u8, bool),
        Stop(u8, bool),
        Hold(bool, u64),
        Purge(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        let content = || 1u8..4;
        prop_oneof![
            4 => (content(), 0usize..5_000).prop_map(|(content, size)| Step::Push(content, size)),
            4 => any::<bool>().prop_map(|is_full| Step::Send { is_full }),
            3 => Just(Step::Deliver),
            1 => Just(Step::TakeBack),
            2 => (content(), any::<bool>()).prop_map(|(content, is)| Step::Late(content, is)),
            2 => (content(), any::<bool>()).prop_map(|(content, is)| Step::Stop(content, is)),
            1 => (any::<bool>(), 0u64..9_000).prop_map(|(is, credit)| Step::Hold(is, credit)),
            1 => content().prop_map(Step::Purge),
        ]
    }

    #[derive(Clone, Copy, Debug)]
    struct Known {
        content: u8,
        index: u32,
        size: u64,
        tag: Option<u64>,
    }

    #[derive(Default)]
    struct Model {
        chunks: Vec<Known>,
        late: BTreeSet<u8>,
        stopped: BTreeSet<u8>,
        held: Option<u64>,
    }

    impl Model {
        /// Returns the first queued chunk of each content that may go.
        fn may_go(&self) -> Vec<u32> {
            if self.held == Some(0) {
                return Vec::new();
            }
            let free = (1..4).filter(|it| !self.stopped.contains(it));
            let first = free.filter_map(|content| {
                let mut of_content = self.chunks.iter().filter(|it| it.content == content);
                of_content.find(|it| it.tag.is_none())
            });
            first.map(|it| it.index).collect()
        }
    }

    fn content(number: u8) -> Guid {
        Guid([number; 32])
    }

    /// A content that is late, or that the neighbour has stopped, keeps no other one of its flow; each
    /// keeps its order.
    fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
        let (mut outbox, mut model) = (Outbox::new(), Model::default());
        let flow = of_content(1, 0, 0).chunk.flow();
        let (mut index, mut tag) = (0, 0);
        for step in steps {
            match step {
                Step::Push(content, size) => {
                    index += 1;
                    let outgoing = of_content(content, index, size);
                    let size = outgoing.chunk.size() as u64;
                    let tag = None;
                    model.chunks.push(Known {
                        content,
                        index,
                        size,
                        tag,
                    });
                    outbox.push(outgoing);
                }
                Step::Send { is_full } => {
                    let expected = model.may_go();
                    // A full hop takes the chunks of lanes of which it has none.
                    let takes = |lane| {
                        let number = |it: &u64| whimbrel_link::Lane::Flow(*it) == lane;
                        let of_flow = outbox.flows.get(&flow);
                        let of_lane = of_flow.and_then(|it| {
                            it.numbers()
                                .find(number)
                                .map(|number| it.carried_on(number))
                        });
                        !is_full || of_lane == Some(0)
                    };
                    let carried: Vec<u64> = model.chunks.iter().filter_map(|it| it.tag).collect();
                    let takes: BTreeMap<_, bool> = outbox
                        .lanes_of(&flow)
                        .into_iter()
                        .map(|lane| (lane, takes(lane)))
                        .collect();
                    let takes = |lane| takes.get(&lane).copied().unwrap_or(true);
                    let Some((_, outgoing)) = outbox.next_for(takes, SPARE_BELOW, tag + 1) else {
                        let is_idle = !is_full || carried.is_empty();
                        prop_assert!(expected.is_empty() || !is_idle, "{:?}", expected);
                        continue;
                    };
                    let at = outgoing.chunk.data().expect("data").index;
                    prop_assert!(expected.contains(&at), "{} of {:?}", at, expected);
                    tag += 1;
                    outbox.carrying.insert(tag, outgoing);
                    let known = model.chunks.iter_mut().find(|it| it.index == at);
                    let known = known.expect("a chunk");
                    known.tag = Some(tag);
                    model.held = model.held.map(|it| it.saturating_sub(known.size));
                }
                Step::Deliver => {
                    if let Some(tag) = model.chunks.iter().find_map(|it| it.tag) {
                        prop_assert!(outbox.take_carried(tag).is_some());
                        model.chunks.retain(|it| it.tag != Some(tag));
                    }
                }
                Step::TakeBack => {
                    let mut tags: Vec<u64> = Vec::new();
                    model
                        .chunks
                        .iter_mut()
                        .for_each(|it| tags.extend(it.tag.take()));
                    tags.sort_unstable();
                    outbox.take_back(&flow, tags);
                }
                Step::Late(number, is_late) => {
                    outbox.set_late(&flow, content(number), is_late);
                    // It is known of a flow with chunks here.
                    match is_late && !model.chunks.is_empty() {
                        true => drop(model.late.insert(number)),
                        false => drop(model.late.remove(&number)),
                    }
                }
                Step::Stop(number, is_stopped) => {
                    let until = is_stopped.then_some(Time::ZERO);
                    prop_assert!(outbox.stop(Time::ZERO, &flow, content(number), until));
                    match is_stopped {
                        true => drop(model.stopped.insert(number)),
                        false => drop(model.stopped.remove(&number)),
                    }
                    model.late.remove(&number);
                }
                Step::Hold(is_held, credit) => {
                    let mode = is_held.then_some(HoldMode::All);
                    outbox.hold(Time::ZERO, flow, mode, Time::ZERO, credit);
                    let left = model.held.unwrap_or(0);
                    let credit = if credit > 0 { credit + left } else { 0 };
                    model.held = is_held.then_some(credit);
                }
                Step::Purge(number) => {
                    let is_meant = |it: &crate::chunk::Chunk| {
                        it.data().is_some_and(|it| it.content == content(number))
                    };
                    outbox.purge(&flow, is_meant);
                    model.chunks.retain(|it| it.content != number);
                }
            }
            if model.chunks.is_empty() {
                model.late.clear();
            }
            let sendable = !model.may_go().is_empty();
            prop_assert_eq!(outbox.has_sendable(), sendable);
            let bytes: u64 = model.chunks.iter().map(|it| it.size).sum();
            prop_assert_eq!(outbox.waiting(&flow), (bytes, model.chunks.len()));
            let contents = outbox.contents_of(&flow);
            for number in 1..4 {
                let of_content = model.chunks.iter().filter(|it| it.content == number);
                let expected: u64 = of_content.map(|it| it.size).sum();
                let found = contents.get(&content(number)).map_or(0, |it| it.bytes);
                prop_assert_eq!(found, expected);
            }
            let is_left = !model.chunks.is_empty();
            prop_assert_eq!(outbox.by_number.is_empty(), !is_left);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn contents_pass_those_that_are_late(steps in prop::collection::vec(step(), 1..200)) {
            check(steps)?;
        }
    }

    /// What is late has its chunk on its way, and another content leaves beside it.
    #[test]
    fn a_content_leaves_beside_one_that_is_late() {
        let mut outbox = Outbox::new();
        (1..4).for_each(|index| outbox.push(of_content(1, index, 5_000)));
        let flow = of_content(1, 0, 0).chunk.flow();
        let (first, outgoing) = outbox.next_for(|_| true, 0, 1).expect("a chunk");
        outbox.carrying.insert(1, outgoing);
        outbox.push(of_content(2, 4, 500));
        // The hop takes nothing more of the lane that has its chunk.
        assert!(outbox.next_for(|lane| lane != first, 0, 2).is_none());
        outbox.set_late(&flow, content(1), true);
        let (lane, outgoing) = outbox
            .next_for(|lane| lane != first, 0, 2)
            .expect("a chunk");
        assert_ne!(lane, first);
        assert_eq!(outgoing.chunk.data().expect("data").content, content(2));
    }

    #[test]
    fn a_neighbour_stops_a_bounded_number_of_contents() {
        let mut outbox = Outbox::new();
        let numbered = |number: usize| {
            let mut guid = [9; 32];
            guid[..8].copy_from_slice(&(number as u64).to_be_bytes());
            Guid(guid)
        };
        let flow = |number| Flow {
            source: numbered(0),
            destination: numbered(number),
        };
        let mut stop = |number, content| {
            let (flow, until) = (flow(number), Some(Time::ZERO));
            outbox.stop(Time::ZERO, &flow, numbered(content), until)
        };
        assert!((0..MAX_STOPS_OF_FLOW).all(|content| stop(0, content)));
        assert!(!stop(0, MAX_STOPS_OF_FLOW));
        assert!((MAX_STOPS_OF_FLOW..MAX_HOLDS).all(|number| stop(number, 1)));
        assert!(!stop(MAX_HOLDS, 1));
        assert!(stop(0, 3));
        outbox.forget_holds();
        assert_eq!(outbox.stops().count(), 0);
        assert_eq!(outbox.take_forgotten().len(), MAX_HOLDS);
    }

    /// What has been stopped for a while leaves the buffer, and nothing else of its flow does.
    #[test]
    fn stopped_contents_are_stuck_and_others_are_not() {
        let (mut outbox, second) = (Outbox::new(), core::time::Duration::from_secs(1));
        (1..3).for_each(|index| outbox.push(of_content(1, index, 5_000)));
        outbox.push(of_content(2, 3, 9_000));
        let flow = of_content(1, 0, 0).chunk.flow();
        let (first, later) = (Time::ZERO + second, Time::ZERO + second * 5);
        // A repetition does not begin anew.
        for at in [first, later] {
            assert!(outbox.stop(at, &flow, content(1), Some(at + second * 3)));
        }
        assert_eq!(outbox.stuck(Time::ZERO).count(), 0);
        let stuck: Vec<(Stuck, u64)> = outbox.stuck(first).collect();
        let [(stuck, bytes)] = stuck[..] else {
            panic!("{stuck:?}");
        };
        assert_eq!(stuck, (flow, Some(content(1))));
        assert!((10_000..12_000).contains(&bytes));
        let taken = core::iter::from_fn(|| outbox.take_newest(&stuck));
        let taken: Vec<u32> = taken
            .map(|it| it.chunk.data().expect("data").index)
            .collect();
        assert_eq!(taken, [2, 1]);
        assert_eq!(outbox.waiting(&flow).1, 1);
    }
}
