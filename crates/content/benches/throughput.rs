//! Hashing and verifying speed. `cargo bench -p whimbrel-content` prints GiB/s.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use whimbrel_content::{Assembly, ChunkSize, ChunkTree, Offer, verify_chunk};

const MIB: usize = 1 << 20;

fn hashing(criterion: &mut Criterion) {
    let content = vec![0x5a; 64 * MIB];
    let mut group = criterion.benchmark_group("hash 64 MiB");
    group
        .sample_size(20)
        .throughput(Throughput::Bytes(content.len() as u64));
    for chunk_size in [ChunkSize::GROUP, ChunkSize::DEFAULT, ChunkSize::MAX] {
        group.bench_function(
            format!("groups of {} KiB", chunk_size.bytes() / 1024),
            |bencher| {
                bencher.iter(|| {
                    ChunkTree::from_reader(black_box(&content[..]), chunk_size, &mut |_| {})
                });
            },
        );
    }
    group.bench_function("blake3::hash, for comparison", |bencher| {
        bencher.iter(|| blake3::hash(black_box(&content)));
    });
    group.finish();
}

fn verifying(criterion: &mut Criterion) {
    let content = vec![0x5a; 64 * MIB];
    let tree = ChunkTree::from_reader(&content[..], ChunkSize::GROUP, &mut |_| {})
        .expect("memory can be read");
    let mut group = criterion.benchmark_group("verify one chunk");
    for chunk_size in [ChunkSize::GROUP, ChunkSize::DEFAULT, ChunkSize::MAX] {
        let data = &content[..chunk_size.bytes() as usize];
        let proof = tree.proof(0, chunk_size).expect("chunk 0 exists");
        group.throughput(Throughput::Bytes(chunk_size.bytes()));
        group.bench_function(format!("{} KiB", chunk_size.bytes() / 1024), |bencher| {
            bencher.iter(|| {
                verify_chunk(
                    tree.root(),
                    tree.content_len(),
                    chunk_size,
                    0,
                    black_box(data),
                    &proof,
                )
            });
        });
    }
    group.finish();
}

fn records(criterion: &mut Criterion) {
    // Every other chunk: the longest record that a content with this many chunks can have.
    let content = vec![0x5a; 64 * MIB];
    let tree = ChunkTree::from_reader(&content[..], ChunkSize::GROUP, &mut |_| {})
        .expect("memory can be read");
    let mut assembly = Assembly::new(tree.root(), u64::MAX);
    for index in (0..1024).step_by(2) {
        let range = index as usize * 65536..(index as usize + 1) * 65536;
        let proof = tree
            .proof(index, ChunkSize::GROUP)
            .expect("the chunk exists");
        let offer = Offer {
            chunk_size: ChunkSize::GROUP,
            index,
            claimed_len: tree.content_len(),
            data: &content[range],
            proof: &proof,
        };
        assembly.commit(assembly.check(&offer).expect("the chunk is true"));
    }
    criterion.bench_function("encode a record of 512 runs", |bencher| {
        bencher.iter_batched(
            || &assembly,
            |assembly| assembly.encode(),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, hashing, verifying, records);
criterion_main!(benches);
