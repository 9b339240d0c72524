//! A router's work on every packet: decoding and encoding. `cargo bench -p whimbrel-ndn-packet`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::{
    Data, DataRef, DigestSigner, Interest, InterestRef, LpHeader, LpPacket, Name, SignatureInfo,
};
use whimbrel_ndn_packet::{SignatureType, Signer};

/// Signs in no time, so that only the encoding is measured.
struct NoSigner;

impl Signer for NoSigner {
    fn info(&self) -> SignatureInfo {
        SignatureInfo::new(SignatureType::DigestSha256)
    }

    fn sign(&self, _: &[&[u8]]) -> Vec<u8> {
        vec![0; 32]
    }
}

fn name() -> Name {
    let object: Name = "/site/alice/files/holiday.jpg".parse().unwrap_or_default();
    object
        .with_version(1_700_000_000_000_000)
        .with_segment(1234)
}

fn interest() -> Interest {
    Interest {
        nonce: Some([1, 2, 3, 4]),
        lifetime: Some(Duration::from_secs(1)),
        hop_limit: Some(64),
        ..Interest::new(name())
    }
}

fn in_link_packet(packet: &[u8]) -> Vec<u8> {
    let header = LpHeader {
        pit_token: Some(vec![7; 8].into()),
        congestion_mark: Some(1),
        ..LpHeader::default()
    };
    let link = LinkFields {
        sequence: Some(9),
        tx_sequence: Some(11),
        acks: Numbers::Listed(&[1, 2]),
        ..LinkFields::default()
    };
    let mut wire = Vec::new();
    lp::encode(&mut wire, &link, &header, Some(packet));
    wire
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    let wire = interest().encode();
    group.bench_function("interest", |bench| {
        bench.iter(|| InterestRef::decode(black_box(&wire)))
    });
    let wire = Data {
        freshness: Duration::from_secs(1),
        ..Data::new(name(), vec![0; 1000])
    }
    .encode(&DigestSigner);
    group.bench_function("data of 1000", |bench| {
        bench.iter(|| DataRef::decode(black_box(&wire)))
    });
    group.bench_function("bare frame", |bench| {
        bench.iter(|| LpPacket::decode(black_box(&wire), false))
    });
    let wire = in_link_packet(&wire);
    group.bench_function("link packet", |bench| {
        bench.iter(|| LpPacket::decode(black_box(&wire), false))
    });
    group.finish();
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(1));
    let packet = interest();
    group.bench_function("interest", |bench| {
        bench.iter(|| black_box(&packet).encode())
    });
    for size in [1000, 8000] {
        let packet = Data {
            freshness: Duration::from_secs(1),
            ..Data::new(name(), vec![0; size])
        };
        group.bench_function(format!("data of {size}, unsigned"), |bench| {
            bench.iter(|| black_box(&packet).encode(&NoSigner));
        });
        group.bench_function(format!("data of {size}, SHA-256"), |bench| {
            bench.iter(|| black_box(&packet).encode(&DigestSigner));
        });
    }
    let packet = interest().encode();
    group.bench_function("link packet", |bench| {
        bench.iter(|| in_link_packet(black_box(&packet)))
    });
    group.finish();
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);
