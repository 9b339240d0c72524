//! Packet events per second of the simulator on one core: `cargo bench -p whimbrel-sim`.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use core::hint::black_box;
use core::net::Ipv4Addr;
use core::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_core::Time;
use whimbrel_sim::bounce::bounce;
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::tcp::{Relay, TcpClient, TcpConfig, TcpServer};
use whimbrel_sim::{AnyMachine, DuplexLink, Simulator};

const FRAMES: u64 = 100_000;

/// Runs a TCP transfer over a relay. Returns the packets delivered.
fn tcp() -> u64 {
    let (server_address, client_address) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut sim = Simulator::new(1);
    let server = AnyMachine::plain(TcpServer::new(TcpConfig::new(server_address)));
    let server = sim.add_node("server", server);
    let relay = sim.add_node(
        "relay",
        AnyMachine::new(Relay::new(), |never| match never {}),
    );
    let client = TcpClient::new(
        TcpConfig::new(client_address),
        server_address,
        Duration::from_millis(500),
    );
    let client = sim.add_node("client", AnyMachine::plain(client));
    let spec = LinkSpec::new(100_000_000, Duration::from_millis(5));
    for (a, b) in [(server, relay), (relay, client)] {
        if sim
            .connect(a, b, &DuplexLink::ip(spec.clone(), spec.clone(), 1500))
            .is_err()
        {
            return 0;
        }
    }
    sim.with_node(client, |m, now| {
        m.get_mut::<TcpClient>()
            .map(|client| client.fetch(now, 20_000_000))
    });
    sim.run_until_idle(Time::from_secs(60));
    sim.stats().delivered
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulator");
    group
        .sample_size(20)
        .throughput(Throughput::Elements(FRAMES));
    group.bench_function("frames-1400-bytes", |bencher| {
        bencher.iter(|| black_box(bounce(FRAMES, false)))
    });
    group.bench_function("frames-1400-bytes-hashed", |bencher| {
        bencher.iter(|| black_box(bounce(FRAMES, true)))
    });
    group.throughput(Throughput::Elements(tcp()));
    group.bench_function("tcp-packets", |bencher| bencher.iter(|| black_box(tcp())));
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
