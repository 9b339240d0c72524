use core::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::Guid;
use whimbrel_link::Room;

use super::*;
use crate::chunk::Message;
use crate::wire::{ContentKind, NetworkHeader, Reliability, ServiceId};

fn flow(number: u8) -> Flow {
    Flow::requested(Guid([1; 32]), Guid([number; 32]))
}

/// Returns a chunk of a flow, or an urgent one of flow 0, that tells its place in the order of
/// arrival.
pub(crate) fn chunk(number: u8, place: u32, size: usize) -> ChunkToSend {
    let Flow {
        source,
        destination,
        ..
    } = flow(number);
    let upper = UpperProtocol::Transport;
    let header = NetworkHeader::new(ServiceId::UNICAST, upper, source, destination);
    let kind = match number {
        0 => TransportKind::Request,
        _ => TransportKind::Data,
    };
    let mut head = vec![0; size + 5];
    head[0] = kind as u8;
    head[1..5].copy_from_slice(&place.to_be_bytes());
    let (head, body) = (head.into(), Bytes::new());
    let message = Message { head, body };
    ChunkToSend {
        chunk: Chunk { header, message },
        room: Room::default(),
        from: None,
        origin: None,
        order: None,
        until: None,
    }
}

/// Returns a chunk of content `number`; of none, for 0.
pub(crate) fn of_content(number: u8, index: u32, size: usize) -> ChunkToSend {
    let mut outgoing = chunk(1, index, size);
    if number > 0 {
        let data = Data {
            content: Guid([number; 32]),
            index,
            chunk_log2: 20,
            content_len: 1 << 30,
            kind: ContentKind::File,
            reliability: Reliability::Nack,
            file_name: "noise".into(),
            proof: Bytes::new(),
            payload: vec![0; size].into(),
        };
        let header = outgoing.chunk.header;
        let message = Message::of_transport(&Transport::Data(data));
        outgoing.chunk = Chunk { header, message };
    }
    outgoing
}

fn place_of(outgoing: &ChunkToSend) -> u32 {
    let head = &outgoing.chunk.message.head;
    u32::from_be_bytes([head[1], head[2], head[3], head[4]])
}

#[derive(Clone, Debug)]
struct Known {
    number: u8,
    place: u32,
    size: u64,
    tag: Option<u64>,
}

/// Lists that are searched from end to end.
#[derive(Default)]
struct Model {
    chunks: Vec<Known>,
    // With the bytes that may go all the same.
    held: BTreeMap<u8, (FlowTurn, u64)>,
}

impl Model {
    fn queued(&self) -> impl Iterator<Item = &Known> {
        self.chunks.iter().filter(|it| it.tag.is_none())
    }

    fn turn(&self, number: u8) -> FlowTurn {
        match self.held.get(&number) {
            Some((turn, 0)) => *turn,
            _ => FlowTurn::Free,
        }
    }

    /// Returns the chunks of which one has to be the next: the first of each lane that may go.
    fn next(&self, full: bool, unsent: usize) -> Vec<u32> {
        let first = |number: u8| self.queued().find(|it| it.number == number);
        if let Some(urgent) = first(0) {
            return vec![urgent.place];
        }
        let turn = |number: &u8| self.turn(*number);
        let carried = |number: &u8| {
            let mut of_flow = self.chunks.iter().filter(|it| it.number == *number);
            of_flow.any(|it| it.tag.is_some())
        };
        let free: Vec<u8> = (1..4)
            .filter(|it| turn(it) == FlowTurn::Free && first(*it).is_some())
            .collect();
        // A full hop takes a chunk of a lane of which it has none.
        let takes = |number: &u8| !full || !carried(number);
        let spare = (1..4).filter(|it| turn(it) == FlowTurn::Spare);
        let numbers: Vec<u8> = match free.is_empty() && unsent < SPARE_BELOW {
            true => spare.filter(takes).collect(),
            false => free.into_iter().filter(takes).collect(),
        };
        let firsts = numbers.into_iter().filter_map(first);
        firsts.map(|it| it.place).collect()
    }
}

#[test]
fn a_new_content_does_not_wait_for_what_the_hop_has_of_others() {
    let mut outbox = Outbox::new();
    (0..3).for_each(|index| outbox.push(of_content(1, index, 1_000)));
    let begun: Vec<Lane> = (0..2)
        .filter_map(|tag| {
            let (lane, carried) = outbox.next_for(|_| true, 0)?;
            outbox.carrying.insert(tag, carried);
            Some(lane)
        })
        .collect();
    assert_eq!(begun[0], begun[1]);
    // The hop is full; it takes a chunk of each lane of which it has none.
    let full = |lane| lane != begun[0];
    assert!(outbox.next_for(full, 0).is_none());
    outbox.push(of_content(2, 3, 1_000));
    outbox.push(of_content(2, 4, 1_000));
    let (lane, new) = outbox.next_for(full, 0).expect("a new content's");
    assert_eq!(new.outgoing.chunk.data().map(|it| it.index), Some(3));
    let fuller = |it| full(it) && it != lane;
    assert!(outbox.next_for(fuller, 0).is_none());
    // All come back to where they were taken from.
    outbox.carrying.insert(2, new);
    outbox.take_back(&flow(1), vec![0, 1]);
    outbox.take_back(&flow(1), vec![2]);
    assert!(!outbox.carries(&flow(1)));
    assert_eq!((outbox.queued(), outbox.carried()), (5, 0));
}

proptest! {
    #[test]
    fn chunks_go_as_a_list_says(
        steps in prop::collection::vec((0u8..9, 0u8..4, 0usize..5_000, any::<bool>()), 1..200),
    ) {
        let mut outbox = Outbox::new();
        let mut model = Model::default();
        let mut numbers = BTreeMap::new();
        let (mut place, mut tag) = (0, 0);
        for (step, number, size, flag) in steps {
            match step {
                0..=2 => {
                    place += 1;
                    let outgoing = chunk(number, place, size);
                    let size = outgoing.chunk.size() as u64;
                    outbox.push(outgoing);
                    model.chunks.push(Known { number, place, size, tag: None });
                    let lanes = outbox.lanes_of(&flow(number)).into_iter().flatten();
                    numbers.extend(lanes.map(|lane| (lane, number)));
                }
                3 | 4 => {
                    let unsent = if flag { 0 } else { SPARE_BELOW };
                    let full = size % 2 == 0;
                    let carried = |lane: Lane| {
                        model.chunks.iter().any(|it| {
                            it.tag.is_some() && numbers.get(&lane) == Some(&it.number)
                        })
                    };
                    let takes = |lane| lane == Lane::Urgent || !full || !carried(lane);
                    let expected = model.next(full, unsent);
                    let next = outbox.next_for(takes, unsent);
                    let Some((_, carried)) = next else {
                        // The first of the lanes that may go is looked at, not all.
                        prop_assert!(expected.is_empty() || full, "{:?}", expected);
                        continue;
                    };
                    let at = place_of(&carried.outgoing);
                    prop_assert!(expected.contains(&at), "{} of {:?}", at, expected);
                    tag += 1;
                    outbox.carrying.insert(tag, carried);
                    let known = model.chunks.iter_mut().find(|it| it.place == at);
                    let known = known.expect("a chunk");
                    known.tag = Some(tag);
                    if let Some((_, credit)) = model.held.get_mut(&known.number) {
                        *credit = credit.saturating_sub(known.size);
                    }
                }
                5 => {
                    let carried = model.chunks.iter().find_map(|it| it.tag);
                    if let Some(tag) = carried {
                        prop_assert!(outbox.take_carried(tag).is_some());
                        model.chunks.retain(|it| it.tag != Some(tag));
                    }
                }
                6 if number > 0 => {
                    let turn = [FlowTurn::Free, FlowTurn::Held, FlowTurn::Spare][size % 3];
                    let is_free = turn == FlowTurn::Free;
                    let octets = (size as u64 / 3 % 4) * 900;
                    let credit = Credit {
                        flow: flow(number),
                        octets: octets as u32,
                        spare: turn == FlowTurn::Spare,
                        lease: Duration::from_secs(u64::from(!is_free)),
                    };
                    prop_assert!(outbox.note_credit(Time::ZERO, flow(number), &credit, Time::ZERO));
                    let left = model.held.remove(&number).map_or(0, |it| it.1);
                    let octets = if octets > 0 { octets + left } else { 0 };
                    if !is_free {
                        model.held.insert(number, (turn, octets));
                    }
                    if flag {
                        let of_flow = |it: &&mut Known| it.number == number;
                        let mut tags = Vec::new();
                        for it in model.chunks.iter_mut().filter(of_flow) {
                            tags.extend(it.tag.take());
                        }
                        tags.sort_unstable();
                        outbox.take_back(&flow(number), tags);
                    }
                }
                7 if number > 0 => {
                    let gone = outbox.purge(&flow(number), |_| true);
                    let of_flow = model.chunks.iter().filter(|it| it.number == number);
                    let mut tags: Vec<u64> = of_flow.filter_map(|it| it.tag).collect();
                    tags.sort_unstable();
                    prop_assert_eq!(gone, tags);
                    model.chunks.retain(|it| it.number != number);
                }
                8 if flag && size < 500 => {
                    let taken = outbox.take_queued().len();
                    prop_assert_eq!(taken, model.queued().count());
                    model.chunks.retain(|it| it.tag.is_some());
                }
                _ => {}
            }
            prop_assert_eq!(outbox.queued(), model.queued().count());
            prop_assert_eq!(outbox.carried(), model.chunks.len() - model.queued().count());
            prop_assert_eq!(outbox.bytes(), model.chunks.iter().map(|it| it.size).sum::<u64>());
            let sendable = model.queued().any(|it| model.turn(it.number) == FlowTurn::Free);
            prop_assert_eq!(outbox.has_sendable(), sendable);
            let here: BTreeSet<u8> = model.chunks.iter().map(|it| it.number).filter(|it| *it > 0).collect();
            prop_assert_eq!(outbox.flows(), here.len());
        }
    }
}

/// Returns a message of a program of this node, which holds room.
fn message(pool: &whimbrel_link::Pool, number: u64, len: usize) -> ChunkToSend {
    let message = crate::wire::Message {
        id: number,
        channel: 7,
        payload: vec![number as u8; len].into(),
    };
    let header = chunk(1, 0, 0).chunk.header;
    let chunk = Chunk::of_transport(header, &Transport::Message(message));
    ChunkToSend::originated(chunk, pool.hold(len as u64))
}

#[test]
fn messages_that_wait_together_leave_together() {
    let (pool, mut outbox) = (whimbrel_link::Pool::default(), Outbox::new());
    for number in 0..11 {
        let len = if number == 7 { 5_000 } else { 200 };
        outbox.push(message(&pool, number, len));
    }
    // Another header, and one that is not this node's own.
    for number in 11..13 {
        let mut other = message(&pool, number, 200);
        match number {
            11 => other.chunk.header.extensions.lifetime_ms = Some(1),
            _ => other.origin = Some(whimbrel_core::PortId(1)),
        }
        outbox.push(other);
    }
    let mut left = Vec::new();
    let mut tag = 0;
    while let Some((_, carried)) = outbox.next_for(|_| true, 0) {
        let ids = match carried.outgoing.chunk.transport() {
            Ok(Transport::Message(one)) => vec![one.id],
            Ok(Transport::Messages(all)) => all.iter().map(|it| it.id).collect(),
            other => panic!("{other:?}"),
        };
        let bytes: usize = ids
            .iter()
            .map(|id| if *id == 7 { 5_000 } else { 200 })
            .sum();
        assert_eq!(carried.outgoing.room.bytes(), bytes as u64);
        left.push(ids);
        outbox.carrying.insert(tag, carried);
        tag += 1;
    }
    let expected: [&[u64]; 6] = [&[0, 1, 2, 3, 4], &[5, 6], &[7], &[8, 9, 10], &[11], &[12]];
    assert_eq!(left, expected);
    assert_eq!((outbox.queued(), pool.bytes()), (0, 12 * 200 + 5_000));
    let of_carried = outbox.carrying().map(|(_, it)| it.chunk.size() as u64);
    assert_eq!(outbox.bytes(), of_carried.sum::<u64>());
    (0..tag).for_each(|tag| drop(outbox.take_carried(tag)));
    assert_eq!((outbox.bytes(), outbox.flows(), pool.bytes()), (0, 0, 0));
}

/// What one that comes alone costs: it is not decoded.
#[test]
fn a_message_that_waits_alone_leaves_as_it_is() {
    let (pool, mut outbox) = (whimbrel_link::Pool::default(), Outbox::new());
    outbox.push(message(&pool, 1, 200));
    let carried = outbox.next_for(|_| true, 0).map(|(_, it)| it.outgoing);
    let carried = carried.and_then(|it| it.chunk.transport().ok());
    assert!(matches!(carried, Some(Transport::Message(it)) if it.id == 1));
}
