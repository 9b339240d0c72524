//! Packet events per second of the simulator on one core: `cargo bench -p whimbrel-sim`.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use core::hint::black_box;
use core::net::Ipv4Addr;
use core::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_core::{Deadline, Machine, PortEvent, PortId, Time, Transmit};
use whimbrel_sim::link::{LinkSpec, Loss};
use whimbrel_sim::tcp::{Relay, TcpClient, TcpConfig, TcpServer};
use whimbrel_sim::{AnyMachine, DuplexLink, Simulator};

const FRAMES: u64 = 100_000;
const FRAME_SIZE: usize = 1_400;

/// Sends what comes out again, and keeps a timer that every frame moves.
#[derive(Default)]
struct Echo {
    frames: Vec<(PortId, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    last: Time,
}

impl Machine for Echo {
    type Event = ();

    fn handle_port(&mut self, _now: Time, _port: PortId, _event: PortEvent) {}

    fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(frame);
        self.frames.push((port, copy));
        self.last = now;
    }

    fn handle_timeout(&mut self, now: Time) {
        self.last = now;
    }

    fn poll_transmit(&mut self, _now: Time, _max_segments: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (port, mut frame) = self.frames.pop()?;
        buffer.extend_from_slice(&frame);
        let size = frame.len();
        frame.clear();
        self.spare.push(frame);
        Some(Transmit { port, size, segment_size: None })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        Some(Deadline::new(self.last + Duration::from_millis(200), "idle"))
    }
}

/// Ten nodes in a row, 64 frames bouncing over each link of 1 Gbit/s and 1 ms.
fn bounce(hash: bool) -> u64 {
    let mut sim = Simulator::new(1);
    if hash {
        sim.enable_trace_hash();
    }
    let nodes: Vec<_> = (0..10).map(|n| sim.add_node(&n.to_string(), Echo::default())).collect();
    let spec = LinkSpec {
        jitter: Duration::from_micros(50),
        ..LinkSpec::new(1_000_000_000, Duration::from_millis(1))
    }
    .with_loss(Loss::Independent(1e-7));
    for ends in nodes.windows(2) {
        let Ok(link) = sim.connect(ends[0], ends[1], &DuplexLink::symmetric(spec.clone())) else { return 0 };
        for _ in 0..64 {
            sim.with_node(ends[0], |m, _| m.frames.push((link.a, vec![7; FRAME_SIZE])));
        }
    }
    sim.run_while(Time::from_secs(1_000), |sim| sim.stats().delivered < FRAMES);
    sim.stats().delivered
}

/// A TCP transfer over a relay: packets delivered.
fn tcp() -> u64 {
    let (server_address, client_address) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut sim = Simulator::new(1);
    let server = AnyMachine::plain(TcpServer::new(TcpConfig::new(server_address)));
    let server = sim.add_node("server", server);
    let relay = sim.add_node("relay", AnyMachine::new(Relay::new(), |never| match never {}));
    let client = TcpClient::new(TcpConfig::new(client_address), server_address, Duration::from_millis(500));
    let client = sim.add_node("client", AnyMachine::plain(client));
    let spec = LinkSpec::new(100_000_000, Duration::from_millis(5));
    for (a, b) in [(server, relay), (relay, client)] {
        if sim.connect(a, b, &DuplexLink::ip(spec.clone(), spec.clone(), 1500)).is_err() {
            return 0;
        }
    }
    sim.with_node(client, |m, now| m.get_mut::<TcpClient>().map(|client| client.fetch(now, 20_000_000)));
    sim.run_until_idle(Time::from_secs(60));
    sim.stats().delivered
}

fn events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simulator");
    group.sample_size(20).throughput(Throughput::Elements(FRAMES));
    group.bench_function("frames-1400-bytes", |bencher| bencher.iter(|| black_box(bounce(false))));
    group.bench_function("frames-1400-bytes-hashed", |bencher| bencher.iter(|| black_box(bounce(true))));
    group.throughput(Throughput::Elements(tcp()));
    group.bench_function("tcp-packets", |bencher| bencher.iter(|| black_box(tcp())));
    group.finish();
}

criterion_group!(benches, events);
criterion_main!(benches);
