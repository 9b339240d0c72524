//! The chunks of one flow that wait, in the order in which they go, and what the hop has of them.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::Guid;
use whimbrel_link::turns::Turns;

use crate::chunk::Chunk;
use crate::outgoing::{ChunkToSend, Replaced};
use crate::wire::{Transport, TransportKind};

/// Lanes of a flow in the hop.
pub(super) const LANES: usize = 4;

/// Contents whose chunks go in turns, so that a file that somebody begins to fetch does not wait
/// until all that was requested before it has crossed a thin link. The chunks of one content keep
/// their order, and so do those that belong to none.
///
/// A content keeps to one of the flow's lanes in the hop while chunks of it are here or there; a new one
/// takes the emptiest. On a link that has just become thin it does not wait for what the hop had before.
#[derive(Debug)]
pub(super) struct Queue {
    contents: BTreeMap<u64, OfContent>,
    numbers: BTreeMap<Option<Guid>, u64>,
    turns: Turns<u64>,
    lanes: [OfLane; LANES],
    next_number: u64,
    len: usize,
    bytes: u64,
}

/// The chunks of one content.
#[derive(Debug)]
struct OfContent {
    content: Option<Guid>,
    lane: usize,
    chunks: VecDeque<ChunkToSend>,
    // Of these.
    bytes: u64,
    carried: usize,
}

/// The contents of one lane.
#[derive(Debug)]
struct OfLane {
    turns: Turns<u64>,
    carried: usize,
    // Of what waits and of what the hop has.
    bytes: u64,
}

/// A chunk for the hop.
#[derive(Debug)]
pub(super) struct Next {
    /// The number of its content.
    pub(super) number: u64,
    pub(super) lane: usize,
    pub(super) outgoing: ChunkToSend,
    /// What waited and goes in it: it alone, or several messages.
    pub(super) replaced: Replaced,
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
        // A chunk is long enough for a turn.
        let lane = |_| OfLane {
            turns: Turns::new(0),
            carried: 0,
            bytes: 0,
        };
        Queue {
            contents: BTreeMap::new(),
            numbers: BTreeMap::new(),
            turns: Turns::new(0),
            lanes: core::array::from_fn(lane),
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

    /// Returns true if chunks of a content wait here that have no places in a divided flow.
    pub(super) fn has(&self, content: &Guid) -> bool {
        let number = self.numbers.get(&Some(*content));
        let of_content = number.and_then(|number| self.contents.get(number));
        of_content.is_some_and(|it| !it.chunks.is_empty())
    }

    /// Returns the number of chunks that the hop has.
    pub(super) fn carried(&self) -> usize {
        self.lanes.iter().map(|it| it.carried).sum()
    }

    /// Returns true if chunks of a lane wait.
    pub(super) fn waits_in(&self, lane: usize) -> bool {
        !self.lanes[lane].turns.is_empty()
    }

    /// Returns true if chunks of a lane wait of which the hop has none.
    pub(super) fn is_unserved(&self) -> bool {
        let is_unserved = |it: &OfLane| it.carried == 0 && !it.turns.is_empty();
        self.lanes.iter().any(is_unserved)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ChunkToSend> {
        self.contents.values().flat_map(|it| &it.chunks)
    }

    pub(super) fn push(&mut self, outgoing: ChunkToSend) {
        let content = content_of(&outgoing);
        let number = match self.numbers.get(&content) {
            Some(number) => *number,
            None => self.add(content),
        };
        self.insert(number, outgoing, VecDeque::push_back);
    }

    /// Adds a content, in the emptiest lane.
    fn add(&mut self, content: Option<Guid>) -> u64 {
        self.next_number += 1;
        let lanes = self.lanes.iter().enumerate();
        let emptiest = lanes.min_by_key(|(_, it)| it.bytes);
        let of_content = OfContent {
            content,
            lane: emptiest.map_or(0, |(lane, _)| lane),
            chunks: VecDeque::new(),
            bytes: 0,
            carried: 0,
        };
        self.contents.insert(self.next_number, of_content);
        self.numbers.insert(content, self.next_number);
        self.next_number
    }

    fn insert(
        &mut self,
        number: u64,
        outgoing: ChunkToSend,
        place: impl FnOnce(&mut VecDeque<ChunkToSend>, ChunkToSend),
    ) {
        let Some(of_content) = self.contents.get_mut(&number) else {
            return;
        };
        let size = outgoing.chunk.size() as u64;
        place(&mut of_content.chunks, outgoing);
        of_content.bytes += size;
        let lane = &mut self.lanes[of_content.lane];
        lane.bytes += size;
        lane.turns.join(number);
        self.turns.join(number);
        self.len += 1;
        self.bytes += size;
    }

    /// Removes and returns the next chunk, of those lanes that may go. The hop has it then.
    pub(super) fn pop_front(&mut self, may_go: impl Fn(usize) -> bool) -> Option<Next> {
        let mut waiting = (0..LANES).filter(|lane| self.waits_in(*lane));
        let number = match waiting.clone().all(&may_go) {
            true => self.turns.next(),
            false => self.lanes[waiting.find(|lane| may_go(*lane))?].turns.next(),
        }?;
        let of_content = self.contents.get_mut(&number)?;
        let (lane, outgoing) = (of_content.lane, of_content.chunks.pop_front()?);
        let chunks = &mut of_content.chunks;
        let (outgoing, replaced) = outgoing.with_following(chunks);
        let size = outgoing.chunk.size() as u64;
        of_content.carried += 1;
        self.turns.spend(number, size);
        self.lanes[lane].turns.spend(number, size);
        self.lanes[lane].carried += 1;
        self.lanes[lane].bytes += size;
        self.note_gone(number, replaced);
        self.tidy(number);
        Some(Next {
            number,
            lane,
            outgoing,
            replaced,
        })
    }

    /// The hop has a chunk of this content and of this size no longer.
    pub(super) fn note_over(&mut self, number: u64, size: u64) {
        if let Some(of_content) = self.contents.get_mut(&number) {
            of_content.carried -= 1;
            self.lanes[of_content.lane].carried -= 1;
            self.lanes[of_content.lane].bytes -= size;
            self.tidy(number);
        }
    }

    /// Puts back a chunk of the hop, which went before those of its content that are here.
    pub(super) fn put_back(&mut self, number: u64, outgoing: ChunkToSend) {
        let size = outgoing.chunk.size() as u64;
        self.insert(number, outgoing, VecDeque::push_front);
        self.note_over(number, size);
    }

    /// Removes and returns the newest chunk of the content that has most here.
    pub(super) fn take_newest(&mut self) -> Option<ChunkToSend> {
        let contents = self.contents.iter_mut();
        let (number, most) = contents.max_by_key(|(_, it)| it.bytes)?;
        let (number, outgoing) = (*number, most.chunks.pop_back()?);
        self.note_gone(number, Replaced::one(&outgoing));
        self.tidy(number);
        Some(outgoing)
    }

    /// Removes and returns the chunks that `is_meant` picks.
    pub(super) fn take_if(&mut self, is_meant: impl Fn(&ChunkToSend) -> bool) -> Vec<ChunkToSend> {
        let mut gone: Vec<(u64, ChunkToSend)> = Vec::new();
        for (number, of_content) in &mut self.contents {
            let all = core::mem::take(&mut of_content.chunks).into_iter();
            let (meant, left): (Vec<ChunkToSend>, Vec<ChunkToSend>) =
                all.partition(|it| is_meant(it));
            of_content.chunks = left.into();
            gone.extend(meant.into_iter().map(|it| (*number, it)));
        }
        for (number, outgoing) in &gone {
            self.note_gone(*number, Replaced::one(outgoing));
        }
        gone.iter().for_each(|(number, _)| self.tidy(*number));
        gone.into_iter().map(|(_, outgoing)| outgoing).collect()
    }

    /// Removes and returns the first chunk that `is_meant` picks.
    pub(super) fn take_first(
        &mut self,
        is_meant: impl Fn(&ChunkToSend) -> bool,
    ) -> Option<ChunkToSend> {
        let take = |(number, of_content): (&u64, &mut OfContent)| {
            let at = of_content.chunks.iter().position(&is_meant)?;
            Some((*number, of_content.chunks.remove(at)?))
        };
        let (number, outgoing) = self.contents.iter_mut().find_map(take)?;
        self.note_gone(number, Replaced::one(&outgoing));
        self.tidy(number);
        Some(outgoing)
    }

    /// Chunks of this content wait no longer.
    fn note_gone(&mut self, number: u64, gone: Replaced) {
        let size = gone.bytes;
        self.len -= gone.chunks;
        self.bytes -= size;
        if let Some(of_content) = self.contents.get_mut(&number) {
            of_content.bytes -= size;
            self.lanes[of_content.lane].bytes -= size;
        }
    }

    /// Leaves the turns of a content of which nothing waits, and forgets it if the hop has none either.
    fn tidy(&mut self, number: u64) {
        let Some(of_content) = self.contents.get(&number) else {
            return;
        };
        if of_content.chunks.is_empty() {
            self.turns.leave(number);
            self.lanes[of_content.lane].turns.leave(number);
            if of_content.carried == 0 {
                self.numbers.remove(&of_content.content);
                self.contents.remove(&number);
            }
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

    /// Takes a chunk that the hop has sent at once.
    fn pop(queue: &mut Queue) -> Option<ChunkToSend> {
        let next = queue.pop_front(|_| true)?;
        queue.note_over(next.number, next.outgoing.chunk.size() as u64);
        Some(next.outgoing)
    }

    #[test]
    fn what_is_asked_for_later_does_not_wait_for_all_before_it() {
        let mut queue = Queue::default();
        (0..100).for_each(|index| queue.push(of_content(1, index, 16_000)));
        (0..2).for_each(|_| drop(pop(&mut queue)));
        queue.push(of_content(2, 0, 16_000));
        queue.push(of_content(2, 1, 16_000));
        let order: Vec<usize> = (0..5)
            .filter_map(|_| Some(number_of(&pop(&mut queue)?)))
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
            let mut popped: Option<Next> = None;
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
                        if let Some(sent) = popped.take() {
                            queue.note_over(sent.number, sent.outgoing.chunk.size() as u64);
                        }
                        popped = queue.pop_front(|_| true);
                        if let Some(popped) = &popped {
                            let number = number_of(&popped.outgoing);
                            let (expected, size) = model[number].pop_front().expect("a chunk of it");
                            prop_assert_eq!(place(&popped.outgoing), expected);
                            (0..4).for_each(|other| sent[number][other] += size);
                        }
                    }
                    Step::PutBack => {
                        if let Some(Next { number, outgoing, .. }) = popped.take() {
                            let it = (place(&outgoing), outgoing.chunk.size() as u64);
                            model[number_of(&outgoing)].push_front(it);
                            queue.put_back(number, outgoing);
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
                let carried = popped.as_ref().map(|it| number_of(&it.outgoing));
                let contents = (0..4).filter(|it| !model[*it].is_empty() || carried == Some(*it));
                let contents = contents.count();
                prop_assert_eq!((queue.contents.len(), queue.numbers.len()), (contents, contents));
                let carried = popped.as_ref().map_or(0, |it| it.outgoing.chunk.size() as u64);
                let of_lanes = queue.lanes.iter().map(|it| it.bytes).sum::<u64>();
                prop_assert_eq!((of_lanes, queue.carried()), (queue.bytes() + carried, usize::from(carried > 0)));
            }
        }
    }
}
