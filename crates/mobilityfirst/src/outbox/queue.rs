//! The chunks of one flow that wait, in the order in which they go.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::Guid;
use whimbrel_link::turns::Turns;

use crate::chunk::Chunk;
use crate::outgoing::ChunkToSend;
use crate::wire::{Transport, TransportKind};

/// Contents whose chunks go in turns, so that a file that somebody begins to fetch does not wait
/// until all that was requested before it has crossed a thin link. The chunks of one content keep
/// their order, and so do those that belong to none.
#[derive(Debug)]
pub(super) struct Queue {
    lanes: BTreeMap<u64, LaneOf>,
    numbers: BTreeMap<Option<Guid>, u64>,
    turns: Turns<u64>,
    next_number: u64,
    len: usize,
    bytes: u64,
}

/// The chunks of one content.
#[derive(Debug)]
struct LaneOf {
    content: Option<Guid>,
    chunks: VecDeque<ChunkToSend>,
    bytes: u64,
}

/// Returns the content with which a chunk takes turns.
fn content_of(outgoing: &ChunkToSend) -> Option<Guid> {
    let of_chunk = |chunk: &Chunk| {
        // It is to arrive behind the chunks that it speaks of.
        if chunk.message.head.first() == Some(&(TransportKind::Lost as u8))
            && let Ok(Transport::Lost(notice)) = chunk.transport()
        {
            return Some(notice.content);
        }
        Some(chunk.data()?.content)
    };
    // A divided flow's chunks have their places already.
    let is_divided = outgoing.order.is_some();
    (!is_divided).then(|| of_chunk(&outgoing.chunk)).flatten()
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            lanes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            // A chunk is long enough for a turn.
            turns: Turns::new(0),
            next_number: 0,
            len: 0,
            bytes: 0,
        }
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if chunks of a content are here that have no places in a divided flow.
    pub(super) fn has(&self, content: &Guid) -> bool {
        self.numbers.contains_key(&Some(*content))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ChunkToSend> {
        self.lanes.values().flat_map(|lane| &lane.chunks)
    }

    pub(super) fn push(&mut self, outgoing: ChunkToSend) {
        self.insert(outgoing, VecDeque::push_back);
    }

    /// Puts back a chunk that went before those of its content that are here.
    pub(super) fn push_front(&mut self, outgoing: ChunkToSend) {
        self.insert(outgoing, VecDeque::push_front);
    }

    fn insert(
        &mut self,
        outgoing: ChunkToSend,
        place: impl FnOnce(&mut VecDeque<ChunkToSend>, ChunkToSend),
    ) {
        let content = content_of(&outgoing);
        let size = outgoing.chunk.size() as u64;
        let number = *self.numbers.entry(content).or_insert_with(|| {
            self.next_number += 1;
            self.next_number
        });
        let lane = self.lanes.entry(number).or_insert_with(|| LaneOf {
            content,
            chunks: VecDeque::new(),
            bytes: 0,
        });
        place(&mut lane.chunks, outgoing);
        lane.bytes += size;
        self.len += 1;
        self.bytes += size;
        self.turns.join(number);
    }

    /// Removes and returns the next chunk.
    pub(super) fn pop_front(&mut self) -> Option<ChunkToSend> {
        let number = self.turns.next()?;
        let outgoing = self.lanes.get_mut(&number)?.chunks.pop_front()?;
        self.turns.spend(number, outgoing.chunk.size() as u64);
        self.note_gone(number, &outgoing);
        Some(outgoing)
    }

    /// Removes and returns the newest chunk of the content that has most here.
    pub(super) fn take_newest(&mut self) -> Option<ChunkToSend> {
        let lanes = self.lanes.iter_mut();
        let (number, lane) = lanes.max_by_key(|(_, lane)| lane.bytes)?;
        let (number, outgoing) = (*number, lane.chunks.pop_back()?);
        self.note_gone(number, &outgoing);
        Some(outgoing)
    }

    /// Removes and returns the chunks that `is_meant` picks.
    pub(super) fn take_if(&mut self, is_meant: impl Fn(&ChunkToSend) -> bool) -> Vec<ChunkToSend> {
        let mut gone: Vec<(u64, ChunkToSend)> = Vec::new();
        for (number, lane) in &mut self.lanes {
            let all = core::mem::take(&mut lane.chunks).into_iter();
            let (meant, left): (Vec<ChunkToSend>, Vec<ChunkToSend>) =
                all.partition(|it| is_meant(it));
            lane.chunks = left.into();
            gone.extend(meant.into_iter().map(|it| (*number, it)));
        }
        for (number, outgoing) in &gone {
            self.note_gone(*number, outgoing);
        }
        gone.into_iter().map(|(_, outgoing)| outgoing).collect()
    }

    /// Removes and returns the first chunk that `is_meant` picks.
    pub(super) fn take_first(
        &mut self,
        is_meant: impl Fn(&ChunkToSend) -> bool,
    ) -> Option<ChunkToSend> {
        let take = |(number, lane): (&u64, &mut LaneOf)| {
            let at = lane.chunks.iter().position(&is_meant)?;
            Some((*number, lane.chunks.remove(at)?))
        };
        let (number, outgoing) = self.lanes.iter_mut().find_map(take)?;
        self.note_gone(number, &outgoing);
        Some(outgoing)
    }

    /// A chunk has been removed from this lane.
    fn note_gone(&mut self, number: u64, outgoing: &ChunkToSend) {
        let size = outgoing.chunk.size() as u64;
        self.len -= 1;
        self.bytes -= size;
        let Some(lane) = self.lanes.get_mut(&number) else {
            return;
        };
        lane.bytes -= size;
        if lane.chunks.is_empty() {
            self.numbers.remove(&lane.content);
            self.lanes.remove(&number);
            self.turns.leave(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outbox::tests::of_content;

    fn number_of(outgoing: &ChunkToSend) -> usize {
        outgoing
            .chunk
            .data()
            .map_or(0, |data| data.content.0[0].into())
    }

    #[test]
    fn what_is_asked_for_later_does_not_wait_for_all_before_it() {
        let mut queue = Queue::default();
        (0..100).for_each(|index| queue.push(of_content(1, index, 16_000)));
        (0..2).for_each(|_| drop(queue.pop_front()));
        queue.push(of_content(2, 0, 16_000));
        queue.push(of_content(2, 1, 16_000));
        let order: Vec<usize> = (0..5)
            .filter_map(|_| Some(number_of(&queue.pop_front()?)))
            .collect();
        assert_eq!(order, [1, 2, 1, 2, 1]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8, usize),
        Pop,
        TakeNewest,
        Take(u8),
        PutBack,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0u8..4, 0usize..5_000).prop_map(|(number, size)| Step::Push(number, size)),
            4 => Just(Step::Pop),
            1 => Just(Step::TakeNewest),
            1 => (0u8..4).prop_map(Step::Take),
            1 => Just(Step::PutBack),
        ]
    }

    proptest! {
        #[test]
        fn each_content_keeps_its_order_and_none_stands_back(
            steps in prop::collection::vec(step(), 1..200),
        ) {
            let mut queue = Queue::default();
            let mut model: Vec<VecDeque<(u32, u64)>> = vec![VecDeque::new(); 4];
            let mut popped: Option<ChunkToSend> = None;
            // What each has sent while another waited; how far they differ is what is bounded.
            let mut sent = [[0u64; 4]; 4];
            let mut index = 0;
            for step in steps {
                let place = |it: &ChunkToSend| match it.chunk.data() {
                    Some(data) => data.index,
                    None => u32::from_be_bytes(it.chunk.message.head[1..5].try_into().expect("4")),
                };
                match step {
                    Step::Push(number, size) => {
                        index += 1;
                        let outgoing = of_content(number, index, size);
                        model[usize::from(number)].push_back((index, outgoing.chunk.size() as u64));
                        queue.push(outgoing);
                    }
                    Step::Pop => {
                        popped = queue.pop_front();
                        if let Some(popped) = &popped {
                            let number = number_of(popped);
                            let (expected, size) = model[number].pop_front().expect("a chunk of it");
                            prop_assert_eq!(place(popped), expected);
                            (0..4).for_each(|other| sent[number][other] += size);
                        }
                    }
                    Step::PutBack => {
                        if let Some(outgoing) = popped.take() {
                            let it = (place(&outgoing), outgoing.chunk.size() as u64);
                            model[number_of(&outgoing)].push_front(it);
                            queue.push_front(outgoing);
                            sent = [[0; 4]; 4];
                        }
                    }
                    Step::TakeNewest => {
                        if let Some(newest) = queue.take_newest() {
                            let bytes = |of: &VecDeque<(u32, u64)>| of.iter().map(|it| it.1).sum::<u64>();
                            let of = &mut model[number_of(&newest)];
                            let (its, expected) = (bytes(of), of.pop_back().map(|it| it.0));
                            prop_assert_eq!(Some(place(&newest)), expected);
                            prop_assert!(model.iter().all(|other| bytes(other) <= its));
                        }
                    }
                    Step::Take(number) => {
                        let number = usize::from(number);
                        let taken = queue.take_if(|it| number_of(it) == number);
                        let places: Vec<u32> = taken.iter().map(place).collect();
                        let expected: Vec<u32> = model[number].drain(..).map(|it| it.0).collect();
                        prop_assert_eq!(places, expected);
                    }
                }
                // From when both wait, one sends no more than the other and a chunk of each.
                for (one, other) in (1..4).flat_map(|one| (1..4).map(move |other| (one, other))) {
                    if model[one].is_empty() || model[other].is_empty() {
                        sent[one][other] = 0;
                        sent[other][one] = 0;
                    }
                    let most = sent[other][one] + 2 * 6_000;
                    prop_assert!(sent[one][other] <= most, "{} and {}: {:?}", one, other, sent);
                }
                let all = model.iter().flatten();
                prop_assert_eq!(queue.len(), all.clone().count());
                prop_assert_eq!(queue.bytes(), all.map(|it| it.1).sum::<u64>());
                let contents = model.iter().filter(|of| !of.is_empty()).count();
                prop_assert_eq!((queue.lanes.len(), queue.numbers.len()), (contents, contents));
            }
        }
    }
}
