//! Processor time of a fetch and a producer, without sockets and routers: `cargo bench -p
//! whimbrel-transport`.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use core::time::Duration;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_core::Medium;
use whimbrel_core::{Machine, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_ndn_packet::{DigestSigner, Name, tlv};
use whimbrel_transport::register::Registrar;
use whimbrel_transport::serve::SegmentResponder;
use whimbrel_transport::{
    AppFace, Application, BytesSource, FetchEvent, FetchOptions, Fetcher, Producer,
    ProducerOptions, RegisterOptions, Service, Verify, WindowKind, WindowOptions,
};

const PORT: PortId = PortId(1);
const SIZE: usize = 20_000_000;

fn up<A: Application>(face: &mut AppFace<A>) {
    let label = String::new();
    let medium = Medium::Unix {
        path: None,
        descriptor: 0,
        accepted: false,
    };
    let info = PortInfo {
        peer: label.clone(),
        label,
        origin: PortOrigin::Local,
        mtu: 8800,
        medium,
    };
    face.handle_port(Time::ZERO, PORT, PortEvent::Up(info));
}

fn producer(segment_size: usize) -> AppFace<Producer<BytesSource>> {
    let clock = WallClock::new(1_700_000_000_000);
    let options = ProducerOptions {
        sign_ahead: true,
        ..ProducerOptions::new(clock, Time::ZERO)
    };
    let source = BytesSource::new(vec![7; SIZE], segment_size);
    let name: Name = "/file/v=1".parse().unwrap_or_default();
    let responder = SegmentResponder::new(name, source, Arc::new(DigestSigner), options);
    let registrar = Registrar::new(RegisterOptions::new(clock), []);
    let mut face = AppFace::new(Service::new(responder, registrar, SeededRng::new(1)));
    up(&mut face);
    face
}

fn consumer(verify: Verify) -> AppFace<Fetcher> {
    let window = WindowOptions {
        kind: WindowKind::Fixed(256),
        ..WindowOptions::default()
    };
    let options = FetchOptions {
        window,
        verify,
        ..FetchOptions::default()
    };
    let name: Name = "/file/v=1".parse().unwrap_or_default();
    let mut face = AppFace::new(Fetcher::new(name, options, SeededRng::new(2), Time::ZERO));
    up(&mut face);
    face
}

/// Passes all pending packets of `from` to `to`; returns true if there were any.
fn carry<A: Application, B: Application>(
    now: Time,
    from: &mut AppFace<A>,
    to: &mut AppFace<B>,
    buffer: &mut Vec<u8>,
) -> bool {
    let mut any = false;
    buffer.clear();
    while from.poll_transmit(now, 44, buffer).is_some() {
        any = true;
        let mut reader = tlv::Reader::new(buffer);
        while let Ok(Some(packet)) = reader.element() {
            to.handle_frames(now, PORT, &[packet.whole]);
        }
        buffer.clear();
    }
    any
}

fn fetch(mut consumer: AppFace<Fetcher>, producer: &mut AppFace<Producer<BytesSource>>) -> u64 {
    let (mut now, mut bytes, mut buffer) = (Time::ZERO, 0, Vec::new());
    loop {
        now += Duration::from_micros(10);
        let mut any = carry(now, &mut consumer, producer, &mut buffer);
        any |= carry(now, producer, &mut consumer, &mut buffer);
        while let Some(event) = consumer.poll_event() {
            any = true;
            if let FetchEvent::Segment { content, .. } = event {
                bytes += content.len() as u64;
            }
        }
        if consumer.application().is_over() || !any {
            return bytes;
        }
    }
}

fn fetches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fetch");
    group
        .sample_size(20)
        .throughput(Throughput::Bytes(SIZE as u64));
    for segment_size in [8000, 1000] {
        let mut producer = producer(segment_size);
        assert_eq!(fetch(consumer(Verify::None), &mut producer), SIZE as u64);
        for (label, digest) in [("unchecked", false), ("digest", true)] {
            group.bench_function(format!("{segment_size}-{label}"), |bencher| {
                let verify = || if digest { Verify::Digest } else { Verify::None };
                bencher.iter_batched(
                    || consumer(verify()),
                    |consumer| fetch(consumer, &mut producer),
                    BatchSize::PerIteration,
                );
            });
        }
    }
    group.finish();
}

criterion_group!(benches, fetches);
criterion_main!(benches);
