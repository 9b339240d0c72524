//! The size of chunks: as large as their path affords.
//!
//! The ends negotiate it by "a tradeoff between the overhead and the fair use of network resources"
//! [MFTP §3.1]. A receiver asks for chunks up to a size. Each router on the way of its request bounds
//! them for the link that they will leave by, and the source decides, with [`Path::affords`] both.

use core::time::Duration;

use whimbrel_content::ChunkSize;
use whimbrel_core::Guid;

/// In the octet of a request's chunk size, and in that of a program's: chunks are to have exactly this
/// size.
pub const EXACT_SIZE: u8 = 0x80;
/// Bytes that a chunk costs on each link besides its content: headers and proof (0.5 to 0.9 kB), and
/// half of a packet, because its last one is not full.
const COST: u64 = 1 << 10;
/// Chunks that take longer than this on a link are too large for it: one that is lost half way, or not
/// wanted any more, should cost a second of the link, not a quarter of an hour.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(4);
/// They are replaced by chunks that take no longer than this, a second within a factor of the square
/// root of two. The distance to [`TOO_LONG`] keeps a rate that varies from changing a size twice.
const FITTING: Duration = Duration::from_millis(1_500);
/// A content of at most this many bytes is one chunk: it waits for its turn behind others once on each link,
/// not twice.
const SMALL: u64 = 32 << 10;
/// The largest chunk of a flow that may be divided: on the slower of two branches a chunk should take no
/// longer than all of its round trip and some.
const DIVIDED: ChunkSize = ChunkSize::GROUP;

/// Links assumed on the way to the members of a group: nobody knows all of them.
const GROUP_HOPS: u64 = 4;
/// A copy for a group names its members, with this many bytes each. The list has at most this part of a chunk.
const LISTED: u64 = Guid::LEN as u64;
const LIST_PART: u64 = 50;
/// Chunks for a group are larger only if their list needs it: a member may be behind a thin link.
const GROUPED: u64 = 256 << 10;

/// What a node knows of the path that a content takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Bytes to send; `None` if unknown.
    pub bytes: Option<u64>,
    /// Links between source and receiver, as far as they are known; 0 if none are.
    pub hops: u8,
    /// The rate of the slowest link that is known, in bytes per second.
    pub rate: Option<u64>,
    /// The flow may be divided among several ways.
    pub is_divided: bool,
}

impl Path {
    /// Returns the size of the chunks that this path should carry, `most` at most.
    ///
    /// Each router on the way has a chunk whole before it forwards it, and the receiver before it verifies
    /// it. So `n` bytes in chunks of `c` take at most as long as `n (1 + COST / c) + hops c` bytes take on
    /// one link, if all links have one rate: the least with `c = sqrt(n COST / hops)`. The result lies
    /// within a factor of the square root of two of it, where the time is a few per cent above the least.
    /// The rate of the links does not matter. Where one is slower than the others the path affords larger
    /// chunks, and these would save a part of `COST` only.
    pub fn affords(&self, most: ChunkSize) -> ChunkSize {
        let mut largest = most.bytes();
        let (too_long, fitting) = match u32::from(self.hops) {
            0..=2 => (TOO_LONG, FITTING),
            // On the whole path. Each router lets about a second's bytes wait, which should be several
            // chunks: with fewer, links are idle while one has left and the next one has not come.
            links => (TOO_LONG / links, FITTING * 2 / links),
        };
        if let Some(rate) = self.rate
            && largest > carried(rate, too_long)
        {
            largest = carried(rate, fitting);
        }
        if let (Some(bytes), 1..) = (self.bytes, self.hops) {
            let squared = bytes.saturating_mul(2 * COST) / u64::from(self.hops);
            let whole = if bytes <= SMALL { SMALL } else { 0 };
            largest = largest.min(squared.isqrt().max(whole));
        }
        if self.is_divided {
            largest = largest.min(DIVIDED.bytes());
        }
        let sizes = ChunkSize::all().take_while(|size| size.bytes() <= largest);
        sizes.last().unwrap_or(ChunkSize::MIN)
    }
}

/// Returns the size of the chunks of a content for a group of this many members, if they are known: as
/// [`Path::affords`], and large enough for the list of members.
pub(crate) fn for_group(bytes: u64, members: Option<usize>, most: ChunkSize) -> ChunkSize {
    let list = members.map_or(GROUPED / LIST_PART, |members| members as u64 * LISTED);
    let least = if bytes <= SMALL { SMALL } else { 0 };
    let squared = bytes.saturating_mul(2 * (COST + list)) / GROUP_HOPS;
    let squared = squared.max(least * least);
    let mut sizes = ChunkSize::all().take_while(|size| *size < most);
    let fits = |size: &ChunkSize| {
        let bytes = size.bytes();
        // The nearest one is less than the square root of two from the best.
        bytes >= LIST_PART * list && (2 * bytes * bytes >= squared || bytes >= GROUPED)
    };
    sizes.find(fits).unwrap_or(most)
}

/// Returns the octet of a program's request for chunks of exactly this size, or, without one, for such
/// as the path affords, up to the default.
pub fn asked(exactly: Option<ChunkSize>) -> u8 {
    exactly.map_or(ChunkSize::DEFAULT.code(), |size| size.code() | EXACT_SIZE)
}

/// Returns the bytes that a rate in bytes per second carries in this time.
fn carried(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_millis() / 1_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes that one link carries in the time that a content takes over `hops` of the same rate.
    fn length(bytes: u64, hops: u8, size: ChunkSize) -> u64 {
        let chunk = size.bytes().min(bytes);
        bytes + size.count(bytes) * COST + u64::from(hops) * (chunk + COST)
    }

    proptest! {
        #[test]
        fn no_fixed_size_would_be_much_faster(bytes in SMALL + 1..1 << 34, hops in 1u8..=32) {
            let path = Path { bytes: Some(bytes), hops, ..Path::default() };
            let ours = length(bytes, hops, path.affords(ChunkSize::MAX));
            let best = ChunkSize::all().map(|size| length(bytes, hops, size)).min().unwrap();
            prop_assert!(ours as f64 <= 1.08 * best as f64, "{ours} {best}");
        }

        #[test]
        fn what_more_is_known_never_makes_chunks_larger(
            bytes in prop::option::of(any::<u64>()), hops: u8, rate in prop::option::of(1u64..1 << 24),
            is_divided: bool, most in 14u8..=22,
        ) {
            let most = ChunkSize::from_code(most).unwrap();
            let path = Path { bytes, hops, rate, is_divided };
            let size = path.affords(most);
            prop_assert!(size <= most);
            let unmeasured = Path { rate: None, ..path };
            let without = unmeasured.affords(most);
            prop_assert!(without >= size);
            for less in [
                Path { bytes: None, ..unmeasured },
                Path { hops: 0, ..unmeasured },
                Path { is_divided: false, ..unmeasured },
            ] {
                prop_assert!(less.affords(most) >= without, "{less:?}");
            }
            // Nodes on the way and the source may decide one after the other.
            prop_assert_eq!(path.affords(size), size);
        }
    }

    #[test]
    fn a_small_content_is_one_chunk() {
        let path = |bytes| Path {
            bytes: Some(bytes),
            hops: 11,
            ..Path::default()
        };
        for bytes in [0, 1, 20_000, SMALL] {
            let size = path(bytes).affords(ChunkSize::DEFAULT);
            assert_eq!(size.count(bytes), 1);
        }
        let size = path(SMALL + 1).affords(ChunkSize::DEFAULT);
        assert_eq!(size, ChunkSize::MIN);
    }

    #[test]
    fn chunks_for_a_group_grow_with_the_content_and_the_list_of_members() {
        let of = |bytes, members, most| for_group(bytes, members, most).bytes() >> 10;
        let size = |bytes: u64, members| of(bytes, Some(members), ChunkSize::DEFAULT);
        assert_eq!(size(2_000_000, 1), 32);
        assert_eq!(size(2_000_000, 10), 32);
        assert_eq!(size(2_000_000, 30), 64);
        assert_eq!(size(4_000_000, 100), 256);
        assert_eq!(size(1 << 30, 1), 256);
        assert_eq!(size(1_000, 3), 32);
        // A list of 163 members is a fiftieth of 256 KiB.
        assert_eq!(size(4_000_000, 163), 256);
        assert_eq!(size(4_000_000, 164), 512);
        assert_eq!(size(4_000_000, 1_000), 1024);
        assert_eq!(of(4_000_000, None, ChunkSize::DEFAULT), 256);
        // The link of the source is thin.
        assert_eq!(of(4_000_000, Some(1_000), ChunkSize::GROUP), 64);
    }

    #[test]
    fn a_single_link_carries_large_chunks_unless_it_is_thin() {
        let of = |rate| Path {
            bytes: Some(1 << 30),
            hops: 1,
            rate: Some(rate),
            is_divided: false,
        };
        let size = |rate| of(rate).affords(ChunkSize::DEFAULT).bytes();
        assert_eq!(size(1_250_000_000), 1 << 20);
        assert_eq!(size(31_250), 32 << 10);
        assert_eq!(size(1_000), 16 << 10);
    }
}
