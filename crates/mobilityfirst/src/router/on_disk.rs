//! A router with a disk, on the test bed.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{DiskKey, Guid, Source};
use whimbrel_gnrs::Record;
use whimbrel_sim::SimulatedDisk;

use super::RouterConfig;
use super::hostile::{control, keys, name, record};
use super::store::StoreLimits;
use super::tests::{Net, ROUTER, SOURCE, config, data, port};
use crate::chunk::Chunk;
use crate::wire::{Control, DropReason, ServiceId, Transport};

const HOST: Guid = Guid([9; 32]);
const LEN: usize = 60_000;

/// Starts a router with this disk and so much memory; neighbour 1 is the source.
fn start(disk: &SimulatedDisk, memory: u64) -> Net {
    let config = RouterConfig {
        store: StoreLimits {
            total: memory,
            ..config().store
        },
        ..config()
    };
    let mut net = Net::with_config(&[*SOURCE, name(3)], config);
    net.with_router(|it, now| it.set_disk(now, disk.attach()));
    net.run(Duration::from_millis(1));
    net
}

fn send(net: &mut Net, indices: core::ops::Range<u32>) {
    for index in indices {
        net.send(1, data(ServiceId::UNICAST, HOST, index, LEN));
        net.run(Duration::from_millis(50));
    }
}

/// The host is at neighbour 2 from now on.
fn attach_host(net: &mut Net) {
    net.with_router(|it, now| {
        assert!(it.binding.attachments.insert(HOST, port(2), 1));
        it.retry_destination(now, HOST);
    });
}

/// Returns the indices of the chunks that the source was told of: stored, dropped.
fn told(net: &Net) -> (Vec<u32>, Vec<u32>) {
    let (mut stored, mut dropped) = (Vec::new(), Vec::new());
    for message in net.chunks(1).iter().map(Chunk::transport) {
        match message {
            Ok(Transport::Store(notice)) => stored.extend(notice.chunks.iter().flatten()),
            Ok(Transport::Drop(notice, DropReason::Evicted)) => {
                dropped.extend(notice.chunks.iter().flatten())
            }
            _ => {}
        }
    }
    (stored, dropped)
}

#[track_caller]
fn arrives_once(net: &Net, indices: &[u32]) {
    let mut arrived: Vec<u32> = net
        .chunks(2)
        .iter()
        .filter_map(Chunk::data)
        .map(|it| it.index)
        .collect();
    arrived.sort_unstable();
    assert_eq!(arrived, indices);
    for (index, payload) in net.received(2) {
        assert!(payload.len() == LEN && payload.iter().all(|byte| *byte == index as u8));
    }
}

#[test]
fn what_was_stored_is_delivered_by_the_router_that_starts_next() {
    let disk = SimulatedDisk::new(64 << 20);
    let mut first = start(&disk, 64 << 20);
    send(&mut first, 0..20);
    first.run(Duration::from_secs(1));
    assert_eq!(told(&first).0, (0..20).collect::<Vec<_>>());
    drop(first);
    assert_eq!(disk.entries(), 20);
    let mut second = start(&disk, 64 << 20);
    assert_eq!(second.router().effects.counters.chunks_restored, 20);
    // The source sends one of them again.
    send(&mut second, 3..4);
    attach_host(&mut second);
    second.run(Duration::from_secs(5));
    arrives_once(&second, &(0..20).collect::<Vec<_>>());
    assert_eq!(second.router().memory().total(), 0);
    assert_eq!(disk.entries(), 0);
}

/// The next router takes its stored chunks only if it does.
#[test]
fn a_router_that_restarts_vouches_for_a_source_that_has_ended() {
    let disk = SimulatedDisk::new(64 << 20);
    let mut first = start(&disk, 64 << 20);
    let [old, new] = [5_000, 0].map(|before_ms| record(&keys(252), *ROUTER, before_ms));
    for (index, bytes) in (0..).zip([&old, &new]) {
        let record = Record::parse(bytes.clone()).expect("a record");
        let at = Source::Port(port(1));
        first.with_router(|it, _| it.sources.note_record(at, &record, &mut it.effects));
        send(&mut first, index..index + 1);
    }
    first.run(Duration::from_secs(1));
    drop(first);
    let mut second = start(&disk, 64 << 20);
    for source in [*SOURCE, name(77)] {
        second.send(2, control(name(3), &Control::Ask { guid: source }));
    }
    second.run(Duration::from_secs(1));
    let vouched = |chunk: &Chunk| match Control::decode(&chunk.message.head) {
        Ok(Control::Vouch { record }) => Some(record),
        _ => None,
    };
    let vouched: Vec<Bytes> = second.chunks(2).iter().filter_map(vouched).collect();
    assert_eq!(vouched, [new]);
}

#[test]
fn a_router_stores_more_than_its_memory_holds() {
    let disk = SimulatedDisk::new(64 << 20);
    let mut net = start(&disk, 400_000);
    send(&mut net, 0..60);
    net.run(Duration::from_secs(1));
    let store = net.router().proxy.store();
    assert_eq!((store.len(), disk.entries()), (60, 60));
    assert!(
        store.memory_bytes() <= 400_000,
        "{} bytes",
        store.memory_bytes()
    );
    assert!(told(&net).1.is_empty());
    attach_host(&mut net);
    net.run(Duration::from_secs(5));
    arrives_once(&net, &(0..60).collect::<Vec<_>>());
    let in_order = net
        .chunks(2)
        .iter()
        .filter_map(Chunk::data)
        .map(|it| it.index);
    assert!(in_order.is_sorted());
    assert_eq!((net.router().memory().total(), disk.entries()), (0, 0));
}

#[test]
fn a_copy_stays_until_the_next_hop_has_the_chunk() {
    let disk = SimulatedDisk::new(64 << 20);
    let mut net = start(&disk, 64 << 20);
    send(&mut net, 0..1);
    attach_host(&mut net);
    while !net.router().proxy.store().is_empty() {
        net.run(Duration::from_micros(100));
    }
    assert_eq!((net.chunks(2).len(), disk.entries()), (0, 1));
    net.run(Duration::from_secs(1));
    assert_eq!((net.chunks(2).len(), disk.entries()), (1, 0));
}

#[test]
fn a_damaged_copy_is_skipped_and_its_source_is_told() {
    let disk = SimulatedDisk::new(64 << 20);
    drop({
        let mut first = start(&disk, 64 << 20);
        send(&mut first, 0..4);
        first
    });
    disk.damage(DiskKey(2));
    let mut second = start(&disk, 64 << 20);
    attach_host(&mut second);
    second.run(Duration::from_secs(5));
    arrives_once(&second, &[0, 1, 3]);
    assert_eq!(second.router().effects.counters.chunks_damaged, 1);
    assert_eq!((second.router().memory().total(), disk.entries()), (0, 0));
}

#[test]
fn a_disk_that_fails_leaves_a_router_that_stores_in_memory_and_promises_nothing() {
    let disk = SimulatedDisk::new(64 << 20);
    let mut net = start(&disk, 400_000);
    send(&mut net, 0..2);
    disk.set_fault(Some("on fire"));
    send(&mut net, 2..5);
    assert_eq!((told(&net).0, disk.entries()), (vec![0, 1], 2));
    let status = net
        .with_router(|it, now| it.status(now))
        .disk
        .expect("a disk");
    assert_eq!(status.fault.as_deref(), Some("on fire"));
    attach_host(&mut net);
    net.run(Duration::from_secs(2));
    arrives_once(&net, &[0, 1, 2, 3, 4]);
    // Chunks that are on the disk only wait until it works again.
    disk.set_fault(None);
    drop(net);
    let mut net = start(&disk, 400_000);
    send(&mut net, 10..30);
    disk.set_fault(Some("on fire"));
    attach_host(&mut net);
    net.run(Duration::from_secs(3));
    assert!(net.chunks(2).len() < 20);
    disk.set_fault(None);
    net.run(Duration::from_secs(5));
    arrives_once(&net, &(10..30).collect::<Vec<_>>());
}

/// A flood on one port does not take the disk from the chunks of another.
#[test]
fn a_full_disk_is_shared_among_ports() {
    let disk = SimulatedDisk::new(10 * 64 * 1024);
    let mut net = start(&disk, 64 << 20);
    send(&mut net, 0..30);
    assert_eq!((disk.entries(), net.router().proxy.store().len()), (10, 30));
    assert_eq!(told(&net).0, (0..10).collect::<Vec<_>>());
    let mut other = data(ServiceId::UNICAST, HOST, 99, LEN);
    other.header.source = name(3);
    net.send(2, other);
    net.run(Duration::from_millis(100));
    assert_eq!(disk.entries(), 10);
    assert_eq!(told(&net).1, [0]);
}

#[test]
fn what_has_expired_meanwhile_is_not_restored() {
    let disk = SimulatedDisk::new(64 << 20);
    drop({
        let mut first = start(&disk, 64 << 20);
        let mut short = data(ServiceId::UNICAST, HOST, 0, LEN);
        short.header.extensions.lifetime_ms = Some(1);
        // Its router is gone before it could see that the time is over.
        first.send(1, short);
        send(&mut first, 1..2);
        first
    });
    let second = start(&disk, 64 << 20);
    let restored = second.router().effects.counters.chunks_restored;
    assert_eq!((restored, disk.entries()), (1, 1));
}
