//! Processor time of two hops' data path: chunks between two hops in one thread, without a link.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent, Pacing};

struct Side {
    hop: Hop,
    buffer: Buffer,
    delivered: u64,
}

fn side(name: u8, mtu: usize, plain: bool) -> Side {
    let config = HopConfig {
        pacing: Pacing::Unpaced,
        plain,
        ..HopConfig::sealed(&KeyPair::from_secret(&[name; 32]), [name; 32], mtu)
    };
    let hop = Hop::new(config, SeededRng::new(u64::from(name)), Time::ZERO);
    Side {
        hop,
        buffer: Buffer::new(16_384),
        delivered: 0,
    }
}

/// Moves all frames of `from` to `to`; returns true if there were any.
fn carry(now: Time, from: &mut Side, to: &mut Side, buffer: &mut Vec<u8>) -> bool {
    let mut any = false;
    loop {
        buffer.clear();
        let Some((size, segment)) = from.hop.poll_transmit(now, 64, buffer) else {
            break;
        };
        any = true;
        for frame in buffer[..size].chunks(segment.unwrap_or(size)) {
            to.hop.handle_frame(now, frame, &mut to.buffer);
        }
        take_events(now, to);
    }
    take_events(now, from);
    any
}

fn take_events(now: Time, side: &mut Side) {
    while let Some(event) = side.hop.poll_event() {
        match event {
            HopEvent::Received { room, .. } => {
                drop(room);
                side.hop.room_released(now, &mut side.buffer);
            }
            HopEvent::Delivered { .. } => side.delivered += 1,
            _ => {}
        }
    }
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("in-memory pair");
    group.measurement_time(Duration::from_secs(3));
    for (label, mtu, chunk, plain) in [
        ("1 MiB chunks, 1452-byte frames", 1_452, 1 << 20, false),
        (
            "1 MiB chunks, 1452-byte frames, plain",
            1_452,
            1 << 20,
            true,
        ),
        ("1 MiB chunks, 8952-byte frames", 8_952, 1 << 20, false),
        (
            "1 MiB chunks, 8952-byte frames, plain",
            8_952,
            1 << 20,
            true,
        ),
        ("200-byte chunks", 1_452, 200, false),
        ("200-byte chunks, plain", 1_452, 200, true),
    ] {
        let (mut a, mut b) = (side(1, mtu, plain), side(2, mtu, plain));
        let (mut buffer, start) = (Vec::with_capacity(1 << 20), Instant::now());
        let body = Bytes::from(vec![7; chunk]);
        group.throughput(Throughput::Bytes(chunk as u64));
        group.bench_function(label, |bencher| {
            bencher.iter_custom(|count| {
                let begin = Instant::now();
                let goal = a.delivered + count;
                let mut queued = a.delivered;
                while a.delivered < goal {
                    let now = Time::from_nanos(start.elapsed().as_nanos() as u64);
                    while queued < goal && a.hop.ready_for() > 0 {
                        a.hop.send(now, queued, Bytes::new(), body.clone());
                        queued += 1;
                    }
                    let moved = carry(now, &mut a, &mut b, &mut buffer);
                    if !carry(now, &mut b, &mut a, &mut buffer) && !moved {
                        a.hop.handle_timeout(now, &mut a.buffer);
                        b.hop.handle_timeout(now, &mut b.buffer);
                    }
                }
                begin.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
