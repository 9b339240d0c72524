use super::*;
use crate::wire::{ContentKind, Data, Reliability, ServiceId, Transport, UpperProtocol};
use bytes::Bytes;
use proptest::prelude::*;

fn part(source: u8, destination: u8, index: u32, size: usize) -> Chunk {
    let (source, destination) = (Guid([source; 32]), Guid([destination; 32]));
    let data = Data {
        content: Guid([9; 32]),
        index,
        chunk_log2: 20,
        content_len: 1 << 30,
        kind: ContentKind::File,
        reliability: Reliability::Nack,
        file_name: String::new(),
        proof: Bytes::new(),
        payload: Bytes::from(vec![0; size]),
    };
    let header = NetworkHeader::new(
        ServiceId::DELAY_TOLERANT,
        UpperProtocol::Transport,
        source,
        destination,
    );
    Chunk::of_transport(header, &Transport::Data(data))
}

fn store(total: u64, per_flow: u64) -> ProxyStore {
    let limits = StoreLimits {
        total,
        per_flow,
        cache: 0,
        lifetime: Duration::from_secs(60),
    };
    ProxyStore::new(limits, &mut SeededRng::new(1))
}

fn store_size() -> u64 {
    charge_of(&part(1, 9, 0, 1000))
}

fn held(stored: Stored) -> StoreId {
    match stored {
        Stored::Held(id, evicted) if evicted.is_empty() => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_destination_has_requested_is_found_beside_what_it_is_offered() {
    let mut store = store(1 << 20, 1 << 20);
    let mut ids = Vec::new();
    for index in 0..4 {
        let mut chunk = part(1, 2, index, 1000);
        if index != 2 {
            chunk.header.extensions.offer = Some(Box::new(crate::router::cached::offer()));
        }
        ids.push(held(store.store(Time::ZERO, None, chunk, &Room::default())));
    }
    let destination = Guid([2; 32]);
    assert_eq!(store.first_for(&destination, 1), [ids[0], ids[2]]);
    assert_eq!(store.first_for(&destination, 2), [ids[0], ids[1], ids[2]]);
    assert_eq!(store.ids_for(&destination), ids);
    store.discard(ids[0]);
    assert_eq!(store.oldest_for(&destination), Some(ids[1]));
    for at in [1, 3] {
        store.discard(ids[at]);
    }
    assert_eq!(store.first_for(&destination, 1), [ids[2]]);
    store.discard(ids[2]);
    assert!(store.has_none_for(&destination));
}

#[test]
fn a_flow_holds_no_more_than_s_and_other_flows_are_left_alone() {
    let mut store = store(20_000, 8_000);
    let other = held(store.store(Time::ZERO, None, part(1, 2, 0, 1000), &Room::default()));
    held(store.store(Time::ZERO, None, part(3, 4, 0, 1000), &Room::default()));
    held(store.store(Time::ZERO, None, part(3, 4, 1, 1000), &Room::default()));
    assert!(matches!(
        store.store(Time::ZERO, None, part(3, 4, 2, 1000), &Room::default()),
        Stored::FlowFull(_)
    ));
    assert!(store.get(other).is_some());
}

#[test]
fn a_chunk_for_the_least_recently_used_flow_is_evicted_to_make_room() {
    let mut store = store(10_350, 10_350);
    let first = held(store.store(Time::ZERO, None, part(1, 9, 0, 1000), &Room::default()));
    let second = held(store.store(Time::ZERO, None, part(2, 9, 0, 1000), &Room::default()));
    held(store.store(Time::ZERO, None, part(1, 9, 1, 1000), &Room::default()));
    match store.store(Time::ZERO, None, part(3, 9, 0, 1000), &Room::default()) {
        Stored::Held(_, evicted) => assert_eq!(evicted[0].1.header.source, Guid([2; 32])),
        other => panic!("{other:?}"),
    }
    assert!(store.get(second).is_none());
    assert!(store.get(first).is_some());
}

/// Whoever fills the storage loses its own chunks, not those of others.
#[test]
fn who_has_the_most_gives_first() {
    let mut store = store(32_500, 32_500);
    let (honest, flood) = (Some(PortId(1)), Some(PortId(2)));
    let kept: Vec<StoreId> = (0..3)
        .map(|index| {
            held(store.store(
                Time::ZERO,
                honest,
                part(1, 9, index, 1000),
                &Room::default(),
            ))
        })
        .collect();
    for number in 0..100 {
        let stored = store.store(
            Time::ZERO,
            flood,
            part(2, number, 0, 1000),
            &Room::default(),
        );
        let Stored::Held(_, evicted) = stored else {
            panic!("{stored:?}");
        };
        assert!(
            evicted
                .iter()
                .all(|(_, it)| it.header.source == Guid([2; 32]))
        );
    }
    assert!(kept.iter().all(|id| store.get(*id).is_some()));
    // There is room for a third one, at the cost of the flood.
    let third = store.store(
        Time::ZERO,
        Some(PortId(3)),
        part(3, 9, 0, 1000),
        &Room::default(),
    );
    let Stored::Held(_, evicted) = third else {
        panic!("{third:?}");
    };
    assert_eq!(evicted[0].1.header.source, Guid([2; 32]));
    // The honest one grows until both have the same.
    for index in 3..20 {
        store.store(
            Time::ZERO,
            honest,
            part(1, 9, index, 1000),
            &Room::default(),
        );
    }
    assert_eq!(
        (
            store.by_owner[&honest].ids.len(),
            store.by_owner[&flood].ids.len()
        ),
        (4, 4)
    );
}

#[test]
fn the_same_chunk_is_stored_once() {
    let mut store = store(10_000, 10_000);
    held(store.store(Time::ZERO, None, part(1, 2, 5, 100), &Room::default()));
    assert_eq!(
        store.store(Time::ZERO, None, part(1, 2, 5, 100), &Room::default()),
        Stored::Duplicate
    );
    assert!(
        store
            .find(
                Flow::requested(Guid([1; 32]), Guid([2; 32])),
                Guid([9; 32]),
                5
            )
            .is_some()
    );
}

#[test]
fn what_is_leaving_counts_in_the_total() {
    let mut store = store(12_000, 12_000);
    let leaving: Vec<_> = (0..2)
        .map(|index| held(store.store(Time::ZERO, None, part(1, 9, index, 1000), &Room::default())))
        .collect();
    let leaving: Vec<_> = leaving.into_iter().map(|id| store.take(id)).collect();
    assert_eq!(
        (store.bytes(), store.leaving_bytes()),
        (0, 2 * store_size())
    );
    let first = held(store.store(Time::ZERO, None, part(2, 9, 0, 1000), &Room::default()));
    match store.store(Time::ZERO, None, part(3, 9, 0, 1000), &Room::default()) {
        Stored::Held(_, evicted) => assert_eq!(evicted[0].0, first),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        store.store(Time::ZERO, None, part(4, 9, 0, 5000), &Room::default()),
        Stored::FlowFull(_)
    ));
    drop(leaving);
    assert_eq!(store.leaving_bytes(), 0);
}

#[test]
fn a_chunk_goes_when_its_lifetime_ends() {
    let mut store = store(10_000, 10_000);
    let mut short = part(1, 2, 0, 100);
    short.header.extensions.lifetime_ms = Some(1000);
    held(store.store(Time::ZERO, None, short, &Room::default()));
    held(store.store(Time::ZERO, None, part(1, 2, 1, 100), &Room::default()));
    assert!(store.take_expired(Time::from_millis(999)).is_none());
    assert!(store.take_expired(Time::from_millis(1000)).is_some());
    assert_eq!(store.next_expiry(), Some(Time::from_secs(60)));
}

proptest! {
    /// Compares with a list that is searched from end to end.
    #[test]
    fn accounts_like_a_list(
        steps in prop::collection::vec((0u8..3, 0u8..4, 0u8..3, 0u32..6, 1usize..500), 1..120),
    ) {
        let mut store = store(10_000, 6_000);
        // Least recently used first: flow, then its chunks in order of arrival.
        let mut model: Vec<(Flow, Vec<Chunk>)> = Vec::new();
        for (step, source, destination, index, size) in steps {
            let chunk = part(source, destination, index, size);
            let flow = chunk.flow();
            let bytes = |list: &[Chunk]| list.iter().map(charge_of).sum::<u64>();
            let at = model.iter().position(|(known, _)| *known == flow);
            if step < 2 {
                let stored = store.store(Time::ZERO, None, chunk.clone(), &Room::default());
                let of_flow = at.map_or(&[][..], |at| &model[at].1);
                if of_flow.iter().any(|old| old.data().map(|d| d.index) == Some(index)) {
                    prop_assert_eq!(stored, Stored::Duplicate);
                    continue;
                }
                if bytes(of_flow) + charge_of(&chunk) > 6_000 {
                    prop_assert_eq!(stored, Stored::FlowFull(chunk));
                    continue;
                }
                let mut expected = Vec::new();
                while model.iter().map(|(_, list)| bytes(list)).sum::<u64>() + charge_of(&chunk) > 10_000 {
                    expected.push(model[0].1.remove(0));
                    model.retain(|(_, list)| !list.is_empty());
                }
                let Stored::Held(_, evicted) = stored else { panic!("{stored:?}") };
                prop_assert_eq!(evicted.into_iter().map(|(_, chunk)| chunk).collect::<Vec<_>>(), expected);
                let mut of_flow = model.iter().position(|(known, _)| *known == flow)
                    .map_or(Vec::new(), |at| model.remove(at).1);
                of_flow.push(chunk);
                model.push((flow, of_flow));
            } else {
                let id = store.find(flow, Guid([9; 32]), index);
                let taken = id.and_then(|id| store.take(id)).map(|(chunk, _)| chunk);
                let expected = at.and_then(|at| {
                    let (_, list) = &mut model[at];
                    let found = list.iter().position(|old| old.data().map(|d| d.index) == Some(index))?;
                    Some(list.remove(found))
                });
                prop_assert_eq!(&taken, &expected);
                if taken.is_some() {
                    let entry = model.remove(at.expect("the flow"));
                    if !entry.1.is_empty() {
                        model.push(entry);
                    }
                }
            }
            prop_assert_eq!(store.bytes(), model.iter().map(|(_, list)| bytes(list)).sum::<u64>());
            let owned: u64 = store.by_owner.values().map(|it| it.bytes).sum();
            prop_assert_eq!((owned, store.owners.len()), (store.bytes(), store.by_owner.len()));
            prop_assert_eq!(store.len(), model.iter().map(|(_, list)| list.len()).sum::<usize>());
            let to_same = model.iter().filter(|(it, _)| it.destination == flow.destination);
            let of_content = to_same.flat_map(|(_, list)| list.iter().filter_map(Chunk::data));
            let mut wanted: Vec<(u8, u32)> = of_content.map(|it| (it.chunk_log2, it.index)).collect();
            wanted.sort_unstable();
            let found: Vec<_> = store.data_for(flow.destination, Guid([9; 32])).collect();
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(store.data_for(flow.destination, Guid([8; 32])).count(), 0);
        }
    }
}

/// What is on a disk takes no memory for its bytes, and leaves only when they are back.
#[test]
fn an_entry_on_a_disk_counts_its_header_only() {
    let mut store = store(12_000, 100_000);
    let on_disk = whimbrel_core::Copies::default();
    let ids: Vec<StoreId> = (0..4)
        .map(|index| {
            let chunk = part(1, 2, index, 1000);
            let id = held(store.store(Time::ZERO, None, chunk, &Room::default()));
            let copy = on_disk.hold(whimbrel_core::DiskKey(index.into()), 1000);
            store.set_disk_copy(id, copy.clone());
            store.page_out(id);
            assert_eq!(store.bytes_to_keep(), store.memory_bytes());
            copy.set_written();
            store.note_written(copy.key());
            id
        })
        .collect();
    let flow = part(1, 2, 0, 0).flow();
    assert_eq!(store.flow_bytes(&flow), 4 * store_size());
    assert_eq!(store.memory_bytes(), 4 * ENTRY_BYTES);
    assert_eq!((store.leaving_bytes(), on_disk.bytes()), (0, 4 * 4096));
    assert!(store.take(ids[0]).is_none());
    // Its fields are known.
    let known = store.chunk_of(ids[0]).and_then(|chunk| chunk.data());
    assert_eq!(
        known.map(|data| (data.index, data.payload.len())),
        Some((0, 0))
    );
    let message = part(1, 2, 0, 1000).message;
    assert!(!store.page_in(ids[0], Message::default()));
    assert!(store.page_in(ids[0], message.clone()));
    assert_eq!(store.bytes_to_keep(), 4 * ENTRY_BYTES);
    let (chunk, room) = store.take(ids[0]).expect("in memory");
    assert_eq!((chunk.message, room.bytes()), (message, store_size()));
    assert_eq!(store.discard(ids[1]), Some(flow));
    assert_eq!(on_disk.take_dropped(), [whimbrel_core::DiskKey(1)]);
    drop(room);
    assert_eq!(on_disk.take_dropped(), [whimbrel_core::DiskKey(0)]);
    assert_eq!((store.len(), store.leaving_bytes()), (2, 0));
}

/// Their producers choose how long copies are kept, in any order.
#[test]
fn a_kept_copy_goes_when_its_own_time_is_over() {
    let mut store = store(20_000, 20_000);
    for (index, seconds) in [(0, 60), (1, 1), (2, 30), (3, 1)] {
        let chunk = part(1, 9, index, 1000);
        let keeping = CopyTerms {
            purpose: Purpose::Kept,
            expires: Some(Time::from_secs(seconds)),
        };
        assert!(store.keep_copy(&chunk, &chunk.data().unwrap(), keeping));
    }
    assert_eq!(store.next_expiry(), Some(Time::from_secs(1)));
    let mut dropped = |at| {
        let now = Time::from_secs(at);
        core::iter::from_fn(|| store.drop_expired_copy(now).then_some(())).count()
    };
    assert_eq!([0, 1, 29, 30, 60].map(&mut dropped), [0, 2, 0, 1, 1]);
    assert_eq!(store.next_expiry(), None);
    assert_eq!(store.copies().bytes(Purpose::Kept), 0);
}
