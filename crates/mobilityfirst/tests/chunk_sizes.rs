//! A chunk is as long as its path can afford: no fixed size would bring a file much sooner.

use core::time::Duration;

use crate::chain::{Compared, Wire, times_of};
use proptest::prelude::*;
use whimbrel_content::ChunkSize;

const MILLISECOND: Duration = Duration::from_millis(1);

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn no_fixed_size_brings_a_file_much_sooner(
        hops in 1usize..=11,
        mbit in prop::sample::select(vec![1u64, 20, 200, 1000]),
        delay_ms in 1u64..=10,
        kilobytes in prop::sample::select(vec![200usize, 1000, 5000]),
    ) {
        let path = vec![Wire::new(mbit, Duration::from_millis(delay_ms)); hops];
        let it = Compared::new(&path, &[kilobytes * 1000]);
        let (size, best_size) = (it.size.bytes() >> 10, it.best_size.bytes() >> 10);
        println!("{hops} x {mbit} Mbit/s, {delay_ms} ms, {kilobytes} kB: {:.3} ({size}, {best_size} KiB)", it.ratio());
        prop_assert!(it.ratio() <= 1.1, "{:.3} s with {size} KiB, {:.3} s with {best_size} KiB", it.ours, it.best);
    }
}

/// "Over two routers at 20 Mbit/s a file of 1 MB takes 1.31 s, with 64 KiB 0.52."
#[test]
fn a_file_over_two_routers_comes_in_small_chunks() {
    let path = vec![Wire::new(20, MILLISECOND); 3];
    let (ours, chunks) = times_of(&path, &[1_000_000], None);
    let (whole, _) = times_of(&path, &[1_000_000], Some(ChunkSize::DEFAULT));
    println!("{ours:?}, in one chunk {whole:?}");
    assert_eq!(chunks.iter().sum::<u32>(), 1_000_000_u32.div_ceil(16 << 10));
    assert!(
        ours[0] < 0.5 && ours[0] < whole[0] / 2.0,
        "{ours:?} {whole:?}"
    );
}

#[test]
fn a_long_file_over_one_link_comes_in_large_chunks() {
    let path = [Wire::new(1000, MILLISECOND)];
    let (_, chunks) = times_of(&path, &[600_000_000], None);
    assert_eq!(chunks[20], 600_000_000_u32.div_ceil(1 << 20), "{chunks:?}");
}

#[test]
fn a_program_that_asks_for_a_size_gets_it() {
    let thin = Wire {
        rate: 256_000,
        ..Wire::new(1, MILLISECOND)
    };
    let path = [Wire::new(20, MILLISECOND), thin];
    let exactly = ChunkSize::from_bytes(256 << 10).expect("a size");
    let (_, chunks) = times_of(&path, &[1 << 20], Some(exactly));
    assert_eq!((chunks[18], chunks.iter().sum()), (4, 4));
}

/// The source's own link is fast, and the content would afford chunks of 64 KiB: the router in front of
/// the thin link says what that carries in a second and a half.
#[test]
fn a_thin_link_behind_routers_makes_chunks_smaller() {
    let thin = Wire {
        rate: 256_000,
        ..Wire::new(1, MILLISECOND)
    };
    let path = [
        Wire::new(1000, MILLISECOND),
        Wire::new(1000, MILLISECOND),
        thin,
    ];
    let (_, chunks) = times_of(&path, &[8_000_000], None);
    println!("{chunks:?}");
    assert_eq!(chunks[15], 8_000_000_u32.div_ceil(32 << 10));
}
