//! The contents that torture's hosts publish, made once for all schedules.

use std::sync::LazyLock;

use crate::RepeatingContent;

/// Lengths in bytes: nothing, less than a chunk, a chunk exactly, and some chunks.
const LENGTHS: [u64; 6] = [0, 1_000, 65_536, 65_537, 300_000, 900_000];

static CONTENTS: LazyLock<Vec<RepeatingContent>> = LazyLock::new(|| {
    (1..)
        .zip(LENGTHS)
        .map(|(seed, len)| RepeatingContent::new(len, seed))
        .collect()
});

/// Returns all contents. Host `n` of `hosts` publishes each `n + k * hosts`-th.
pub(super) fn contents() -> &'static [RepeatingContent] {
    &CONTENTS
}
