//! Links and frames of tests.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test uses a part of it, as its own module"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use whimbrel_core::{SeededRng, Time};
use whimbrel_sim::link::{LinkDirection, LinkSpec};

/// A link whose frames are bytes.
pub type Link = LinkDirection<Vec<u8>>;

pub fn link(spec: &LinkSpec, seed: u64) -> Link {
    Link::new(spec, SeededRng::new(seed)).unwrap()
}

/// Returns a frame that carries its number.
pub fn frame(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![0; length.max(4)];
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame
}

pub fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[..4].try_into().unwrap())
}

/// Returns everything that arrives, with the exact times, by polling only at the times that the
/// link states.
pub fn arrivals(link: &mut Link) -> Vec<(Time, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(at) = link.next_time() {
        while let Some(frame) = link.poll(at) {
            all.push((at, frame));
        }
    }
    all
}
