//! Lookups and updates per second of a server, without any network: `cargo bench -p whimbrel-gnrs`.

#![allow(
    missing_docs,
    reason = "criterion_group generates items without documentation"
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_core::{
    Guid, Machine, Medium, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock,
};
use whimbrel_gnrs::wire::{Frame, Message};
use whimbrel_gnrs::{
    Address, DiskStore, InPlace, KeyPair, MemoryStore, Record, Server, ServerConfig, Statement,
    Store, StoreLimits,
};

const EPOCH: u64 = 1_800_000_000_000;
/// The first number fits in a processor's cache, the second does not: there a lookup costs some ten
/// reads of cold memory.
const NAMES: [u64; 2] = [1_000, 100_000];
const BATCH: usize = 64;
const CLIENT: PortId = PortId(1);

fn keys(number: u64) -> KeyPair {
    let mut secret = [0; 32];
    secret[..8].copy_from_slice(&number.to_be_bytes());
    KeyPair::from_secret(&secret)
}

fn record(number: u64, version: u64) -> Record {
    let said = Statement::new(EPOCH, 3_600_000, vec![Address::new(Guid([1; 32]))]);
    Record::binding(&keys(number), &Statement { version, ..said })
        .unwrap_or_else(|why| panic!("{why}"))
}

fn encoded(cookie: u64, message: Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame::request(1, cookie, message).encode(&mut bytes);
    bytes
}

fn server<S: Store>(store: S) -> Server<S> {
    let mut server = Server::new(
        ServerConfig::default(),
        WallClock::new(EPOCH),
        [5; 32],
        store,
    );
    let (label, peer) = (String::new(), String::new());
    let info = PortInfo {
        label,
        origin: PortOrigin::Accepted(0),
        mtu: 1500,
        peer,
        medium: Medium::Unaddressed,
    };
    server.handle_port(Time::ZERO, CLIENT, PortEvent::Up(info));
    server
}

fn drain<S: Store>(server: &mut Server<S>, buffer: &mut Vec<u8>) {
    buffer.clear();
    while server.poll_transmit(Time::ZERO, BATCH, buffer).is_some() {}
}

fn all_lookups(criterion: &mut Criterion) {
    NAMES.iter().for_each(|names| lookups(criterion, *names));
}

fn lookups(criterion: &mut Criterion, count: u64) {
    let mut store = MemoryStore::new(StoreLimits::default());
    let names: Vec<Guid> = (0..count)
        .map(|number| {
            let record = record(number, 1);
            let guid = record.subject();
            let stored = store.put(EPOCH, record);
            assert!(stored.is_ok());
            guid
        })
        .collect();
    let mut server = server(store);
    let mut buffer = Vec::new();
    server.handle_frames(
        Time::ZERO,
        CLIENT,
        &[&encoded(
            0,
            Message::Lookup {
                guid: Guid([9; 32]),
                first: 0,
                padding: 0,
            },
        )],
    );
    drain(&mut server, &mut buffer);
    let cookie = Frame::decode(&buffer).map_or(0, |frame| frame.cookie);
    let mut rng = SeededRng::new(1);
    let requests: Vec<Vec<u8>> = (0..10_000)
        .map(|_| {
            let guid = names[rng.below(count) as usize];
            encoded(
                cookie,
                Message::Lookup {
                    guid,
                    first: 0,
                    padding: 0,
                },
            )
        })
        .collect();
    let mut group = criterion.benchmark_group("server");
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut at = 0;
    group.bench_function(format!("lookups among {count} names"), |bencher| {
        bencher.iter(|| {
            for _ in 0..BATCH {
                server.handle_frames(Time::ZERO, CLIENT, &[&requests[at]]);
                at = (at + 1) % requests.len();
            }
            drain(&mut server, &mut buffer);
        });
    });
    group.finish();
}

/// One client moves repeatedly: each update is signed beforehand, verified and stored here.
fn updates<S: Store>(criterion: &mut Criterion, name: &str, store: S) {
    let mut server = server(store);
    let mut buffer = Vec::new();
    let mut version = 0;
    let mut group = criterion.benchmark_group("server");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function(name, |bencher| {
        let prepare = || {
            version += 1;
            let request = |number| {
                let record = record(number, version);
                let view = Record::parse(record.as_bytes()).unwrap_or_else(|why| panic!("{why}"));
                encoded(0, Message::Insert { record: view })
            };
            (0..BATCH as u64).map(request).collect::<Vec<_>>()
        };
        let handle = |requests: Vec<Vec<u8>>| {
            for request in &requests {
                server.handle_frames(Time::ZERO, CLIENT, &[request]);
            }
            drain(&mut server, &mut buffer);
        };
        bencher.iter_batched(prepare, handle, criterion::BatchSize::SmallInput);
    });
    group.finish();
}

fn all_updates(criterion: &mut Criterion) {
    updates(
        criterion,
        "updates in memory, 64 a round",
        MemoryStore::new(StoreLimits::default()),
    );
    let Ok(folder) = tempfile::tempdir() else {
        return;
    };
    match DiskStore::open(
        folder.path().join("names"),
        StoreLimits::default(),
        InPlace::new,
    ) {
        Ok(store) => updates(criterion, "updates on disk, 64 a round", store),
        Err(why) => eprintln!("no disk: {why}"),
    }
}

criterion_group!(benches, all_lookups, all_updates);
criterion_main!(benches);
