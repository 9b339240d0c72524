//! Processor time per frame of the NDN link service: Data one way and Interests the other between
//! two services in one thread, without a link and without loss.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::ndnlp::{LinkService, LinkServiceConfig, PaperOptions, Reliability};

fn packet(typ: u8, len: usize) -> Bytes {
    let mut packet = Vec::new();
    whimbrel_ndn_packet::tlv::write_element(&mut packet, u64::from(typ), &vec![7; len]);
    packet.into()
}

/// Moves all frames of `from` to `to`; returns the number of packets delivered.
fn carry(now: Time, from: &mut LinkService, to: &mut LinkService, buffer: &mut Vec<u8>) -> u64 {
    let mut packets = 0;
    loop {
        buffer.clear();
        let Some(written) = from.poll_transmit(now, 44, buffer) else {
            return packets;
        };
        for frame in buffer.chunks(written.segment_size.unwrap_or(written.size)) {
            to.handle_frame(now, frame, &mut |_| packets += 1);
        }
    }
}

fn bench(c: &mut Criterion) {
    let mut group = c.benchmark_group("two faces");
    group.measurement_time(Duration::from_secs(3));
    for (label, reliability) in [
        ("off", Reliability::Off),
        ("paper", Reliability::Paper(PaperOptions::default())),
        ("ndnlpv2", Reliability::Ndnlpv2),
        ("adaptive", Reliability::Adaptive),
    ] {
        for (size, data) in [("1000", packet(6, 1000)), ("8000", packet(6, 8000))] {
            let interest = packet(5, 40);
            group.throughput(Throughput::Elements(1));
            group.bench_function(format!("{label}, Data of {size} bytes"), |b| {
                b.iter_custom(|rounds| {
                    let config = LinkServiceConfig {
                        reliability,
                        ..LinkServiceConfig::datagram(1452)
                    };
                    let [mut a, mut b] =
                        [1, 2].map(|seed| LinkService::new(config.clone(), SeededRng::new(seed)));
                    let mut buffer = Vec::new();
                    let mut now = Time::ZERO;
                    let start = Instant::now();
                    let mut done = 0;
                    while done < rounds {
                        // 64 exchanges in 100 µs.
                        now += Duration::from_micros(100);
                        for _ in 0..64 {
                            a.send(now, interest.clone(), None);
                        }
                        for _ in 0..carry(now, &mut a, &mut b, &mut buffer) {
                            b.send(now, data.clone(), None);
                        }
                        done += carry(now, &mut b, &mut a, &mut buffer);
                        a.handle_timeout(now);
                        b.handle_timeout(now);
                    }
                    start.elapsed()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
