//! The largest frame that arrives: packetisation-layer path MTU discovery (RFC 8899) as a machine
//! of its own, without a wire.
//!
//! A path may swallow large packets without a word (RFC 8899 §1: a black hole; the message of the
//! router that dropped them is filtered). Frames that carry data serve as probes (RFC 8899 §4.1):
//! as long as they arrive, nothing else is sent. The size falls to [`BASE`] where large frames
//! vanish while small ones are answered, and a search for what the path takes begins: by padded
//! probes, up to the limit that the driver and the neighbour state.
//!
//! Loss of small frames, too, is no sign of a black hole. The sign is that none of at least
//! `HOLE_FRAMES` large frames arrived, while small frames sent after them were answered in at least
//! `HOLE_ROUNDS` round trips. With every seventh frame lost, this happens by chance once in
//! 10^13 times.

use core::time::Duration;

use whimbrel_core::{Deadline, Time};

/// Bytes of a frame that nearly every path takes: BASE_PLPMTU (RFC 8899 §5.1.2).
pub const BASE: usize = 1200;
/// Bytes of a frame that a path takes which does not even take [`BASE`]: what an IPv4 host must be
/// able to receive, without headers.
pub const FLOOR: usize = 512;
/// Large frames of which none arrived ...
const HOLE_FRAMES: u64 = 16;
/// ... and rounds in which a later small one was answered make a black hole.
const HOLE_ROUNDS: u32 = 3;
/// Probes of one size: MAX_PROBES (RFC 8899 §5.1.2).
const MAX_PROBES: u32 = 3;
/// A search ends when what is known to pass and what is known not to are so close, in bytes.
const CLOSE: usize = 16;
/// PMTU_RAISE_TIMER (RFC 8899 §5.1.1): how long a size below the limit is kept before a larger one
/// is tried. The RFC's ten minutes would leave a path that mends narrow for most of a transfer.
const RAISE_AFTER: Duration = Duration::from_secs(60);
/// Bounds of the wait for the answer to a probe.
const PROBE_PATIENCE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// What is being looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// The limit passes, as far as is known.
    Done,
    /// Frames of `candidate` bytes are tried; those of `above` do not pass.
    Trying {
        candidate: usize,
        above: usize,
        tries: u32,
        next_at: Time,
    },
    /// Larger ones are tried again then.
    Resting { until: Time },
}

/// What had been sent when a small frame was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    sent: u64,
    small_bytes: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct PathMtu {
    limit: usize,
    size: usize,
    search: Search,
    // Bytes of frames that are not large sent, in all, and by how much the bytes that had come
    // exceeded them at the last answer: while large frames vanish, that does not grow.
    small_bytes: u64,
    excess: Option<i64>,
    // Large frames sent, in all; so many of them need no more explanation.
    sent: u64,
    cleared: u64,
    // Rounds in which large frames sent before were missing, and when the last one ended.
    rounds: u32,
    round_from: Time,
    // Probes of the present size that are to be sent.
    checks: u32,
}

impl PathMtu {
    /// Frames of `limit` bytes are sent until they are found not to arrive.
    pub fn new(limit: usize) -> PathMtu {
        PathMtu {
            limit,
            size: limit,
            search: Search::Done,
            small_bytes: 0,
            excess: None,
            sent: 0,
            cleared: 0,
            rounds: 0,
            round_from: Time::ZERO,
            checks: 0,
        }
    }

    /// Bytes of the largest frame that may be sent, but for probes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// True while large frames are missing and it is not yet known why.
    pub fn is_suspicious(&self) -> bool {
        self.rounds > 0
    }

    /// True for a frame that may not pass where frames of the next smaller size would.
    pub fn is_large(&self, len: usize) -> bool {
        len > below(self.size)
    }

    /// What the driver and the neighbour allow has changed.
    pub fn set_limit(&mut self, now: Time, limit: usize) {
        if limit == self.limit {
            return;
        }
        let was_full = self.size == self.limit;
        self.limit = limit;
        if was_full || self.size >= limit {
            self.size = limit;
            self.search = Search::Done;
            self.clear(self.sent);
        } else {
            self.raise(now);
        }
    }

    /// Frames take another way from now on, of which nothing is known.
    pub fn forget(&mut self, limit: usize) {
        *self = PathMtu {
            small_bytes: self.small_bytes,
            sent: self.sent,
            cleared: self.sent,
            ..PathMtu::new(limit)
        };
    }

    /// A frame of `len` bytes was sent.
    pub fn frame_sent(&mut self, len: usize) {
        if self.is_large(len) {
            self.sent += 1;
        } else {
            self.small_bytes += len as u64;
        }
    }

    /// To be kept with a small frame that is sent now and asks for an answer.
    pub fn mark(&self) -> Mark {
        Mark {
            sent: self.sent,
            small_bytes: self.small_bytes,
        }
    }

    /// The neighbour counts the bytes that have come from nothing again.
    pub fn restart_count(&mut self) {
        self.excess = None;
    }

    /// The small frame that was sent at `sent_at` with this `mark` was answered: so many bytes of
    /// frames that were told to [`PathMtu::frame_sent`] had `received` then, and `arrived` if the
    /// answer tells that a large one has come. True if the size has fallen.
    pub fn answered(
        &mut self,
        now: Time,
        sent_at: Time,
        mark: Mark,
        received: u64,
        arrived: bool,
    ) -> bool {
        let excess = received as i64 - mark.small_bytes as i64;
        let grown = self
            .excess
            .replace(excess)
            .is_none_or(|before| excess > before);
        let mark = mark.sent;
        if arrived || grown {
            self.clear(mark);
        } else if mark > self.cleared && sent_at >= self.round_from {
            self.round_from = now;
            self.rounds += 1;
            let missing = mark - self.cleared;
            if missing >= HOLE_FRAMES && self.rounds >= HOLE_ROUNDS {
                return self.fall(now);
            }
            // A neighbour that is sent little would take long to be sure of.
            self.checks = (HOLE_FRAMES.saturating_sub(missing) as u32).min(1 << self.rounds.min(4));
        }
        false
    }

    /// A large frame has come, whenever it was sent.
    pub fn arrived(&mut self) {
        self.clear(self.sent);
    }

    /// The size of a probe that is to be sent now. `timeout` is how long its answer may take.
    pub fn poll_probe(&mut self, now: Time, timeout: Duration) -> Option<usize> {
        if self.checks > 0 {
            self.checks -= 1;
            self.sent += 1;
            return Some(self.size);
        }
        if let Search::Resting { until } = self.search
            && now >= until
        {
            self.raise(now);
        }
        while let Search::Trying {
            candidate,
            above,
            tries,
            next_at,
        } = self.search
        {
            if now < next_at {
                return None;
            }
            if tries < MAX_PROBES {
                self.search = Search::Trying {
                    candidate,
                    above,
                    tries: tries + 1,
                    next_at: now + timeout.clamp(PROBE_PATIENCE.0, PROBE_PATIENCE.1),
                };
                return Some(candidate);
            }
            self.try_next(now, candidate);
        }
        None
    }

    /// A probe of `len` bytes was answered. True if the size has grown.
    pub fn probe_arrived(&mut self, now: Time, len: usize) -> bool {
        if self.is_large(len) {
            self.clear(self.sent);
        }
        if len <= self.size || len > self.limit {
            return false;
        }
        self.size = len;
        self.clear(self.sent);
        match self.search {
            _ if len == self.limit => self.search = Search::Done,
            Search::Trying { above, .. } => self.try_next(now, above.max(len + 1)),
            // Late: the search has ended below.
            Search::Done | Search::Resting { .. } => {}
        }
        true
    }

    /// When [`PathMtu::poll_probe`] has something.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        match self.search {
            Search::Done => None,
            Search::Trying { next_at, .. } => Some(Deadline::new(next_at, "probe of the path MTU")),
            Search::Resting { until } => Some(Deadline::new(until, "try a larger path MTU")),
        }
    }

    fn clear(&mut self, mark: u64) {
        self.cleared = self.cleared.max(mark);
        (self.rounds, self.checks) = (0, 0);
    }

    /// Frames of the present size do not arrive. False if there is no smaller one.
    fn fall(&mut self, now: Time) -> bool {
        let above = self.size;
        self.clear(self.sent);
        if below(above) == 0 {
            return false;
        }
        self.size = below(above);
        self.try_next(now, above);
        true
    }

    /// Frames of `above` bytes do not pass.
    fn try_next(&mut self, now: Time, above: usize) {
        self.search = if above.saturating_sub(self.size) <= CLOSE {
            Search::Resting {
                until: now + RAISE_AFTER,
            }
        } else {
            Search::Trying {
                candidate: if (self.size + 1..above).contains(&BASE) {
                    BASE
                } else {
                    self.size + (above - self.size) / 2
                },
                above,
                tries: 0,
                next_at: now,
            }
        };
    }

    /// All up to the limit is open again, which is tried first: a path that mends takes it.
    fn raise(&mut self, now: Time) {
        self.search = Search::Trying {
            candidate: self.limit,
            above: self.limit + 1,
            tries: 0,
            next_at: now,
        };
    }
}

/// The size that is fallen back to from `size`; 0 if there is none. Larger frames are the large
/// ones.
fn below(size: usize) -> usize {
    [BASE, FLOOR]
        .into_iter()
        .find(|step| *step < size)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_core::SeededRng;

    use super::*;

    const RTT: Duration = Duration::from_millis(40);
    const LIMIT: usize = 1472;

    /// A sender of data that asks, with a small frame, once in a round trip, over a path that takes
    /// frames of up to `takes` bytes and loses some in either direction.
    struct Bench {
        mtu: PathMtu,
        now: Time,
        rng: SeededRng,
        takes: usize,
        loss: f64,
        falls: u32,
        received: u64,
    }

    impl Bench {
        fn new(seed: u64, takes: usize, loss: f64) -> Bench {
            Bench {
                mtu: PathMtu::new(LIMIT),
                now: Time::from_secs(1),
                rng: SeededRng::new(seed),
                takes,
                loss,
                falls: 0,
                received: 0,
            }
        }

        fn is_lost(&mut self) -> bool {
            (self.rng.next_word() >> 11) as f64 / (1u64 << 53) as f64 <= self.loss
        }

        fn passes(&mut self, len: usize) -> bool {
            len <= self.takes && !self.is_lost()
        }

        /// `frames` of data of the present size and a question, and then the answer.
        fn round(&mut self, frames: usize) {
            let mut arrived = false;
            for _ in 0..frames {
                let len = self.mtu.size();
                self.mtu.frame_sent(len);
                if self.passes(len) {
                    arrived = true;
                    self.received += len as u64;
                }
                // The end of a chunk.
                self.mtu.frame_sent(100);
                if self.passes(100) {
                    self.received += 100;
                }
            }
            let mut probes = Vec::new();
            while let Some(len) = self.mtu.poll_probe(self.now, RTT * 2) {
                if self.passes(len) && !self.is_lost() {
                    probes.push(len);
                }
            }
            let (sent_at, mark, received) = (self.now, self.mtu.mark(), self.received);
            self.now += RTT;
            for len in probes {
                self.mtu.probe_arrived(self.now, len);
            }
            if self.passes(40) && !self.is_lost() {
                let fallen = self
                    .mtu
                    .answered(self.now, sent_at, mark, received, arrived);
                self.falls += u32::from(fallen);
            }
            assert!(self.mtu.size() <= LIMIT);
        }
    }

    #[test]
    fn a_path_that_loses_every_seventh_frame_is_not_taken_for_narrow() {
        for seed in 0..20 {
            let mut bench = Bench::new(seed, LIMIT, 0.15);
            // Few frames in a round are the hard case.
            (0..20_000).for_each(|round| bench.round(1 + round % 3));
            assert_eq!((bench.falls, bench.mtu.size()), (0, LIMIT), "seed {seed}");
        }
    }

    #[test]
    fn a_black_hole_is_left_within_a_few_rounds_and_what_passes_is_found() {
        let mut bench = Bench::new(1, 1400, 0.0);
        let start = bench.now;
        while bench.falls == 0 {
            bench.round(1);
        }
        assert!(
            bench.now.since(start) <= RTT * 6,
            "{:?}",
            bench.now.since(start)
        );
        assert_eq!(bench.mtu.size(), BASE);
        (0..60).for_each(|_| bench.round(1));
        let size = bench.mtu.size();
        assert!((1400 - CLOSE..=1400).contains(&size), "{size}");
        assert_eq!(bench.falls, 1, "probes that vanish are no black hole");
        // Nothing more is tried until the timer says so.
        assert!(bench.mtu.poll_timeout().unwrap().at > bench.now + Duration::from_secs(50));
    }

    #[test]
    fn larger_frames_are_found_again_when_the_path_mends() {
        let mut bench = Bench::new(2, 1300, 0.0);
        (0..100).for_each(|_| bench.round(4));
        assert!(bench.mtu.size() <= 1300);
        bench.takes = LIMIT;
        bench.now += RAISE_AFTER;
        (0..4).for_each(|_| bench.round(0));
        assert_eq!(bench.mtu.size(), LIMIT);
        assert_eq!(bench.mtu.poll_timeout(), None);
    }

    #[test]
    fn a_path_that_does_not_take_the_base_size_has_a_floor() {
        let mut bench = Bench::new(3, 900, 0.0);
        (0..200).for_each(|_| bench.round(4));
        let size = bench.mtu.size();
        assert!((900 - CLOSE..=900).contains(&size), "{size}");
    }

    #[test]
    fn a_dead_path_says_nothing_about_sizes() {
        let mut bench = Bench::new(4, 0, 0.0);
        (0..200).for_each(|_| bench.round(32));
        assert_eq!(bench.mtu.size(), LIMIT);
    }

    #[test]
    fn another_limit_holds_at_once_and_another_path_is_begun_anew() {
        let mut bench = Bench::new(5, 1300, 0.0);
        (0..100).for_each(|_| bench.round(4));
        let narrow = bench.mtu.size();
        bench.mtu.set_limit(bench.now, 1252);
        assert_eq!(bench.mtu.size(), 1252);
        bench.mtu.set_limit(bench.now, LIMIT);
        assert_eq!(bench.mtu.size(), LIMIT, "nothing speaks against it");
        (0..100).for_each(|_| bench.round(4));
        assert_eq!(bench.mtu.size(), narrow);
        bench.mtu.forget(1452);
        assert_eq!(bench.mtu.size(), 1452);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the path takes and however it changes, the size ends just below it, and not
        /// below what it ever needed to be.
        #[test]
        fn the_size_follows_the_path(
            seed in any::<u64>(), paths in prop::collection::vec(520usize..2_000, 1..5), loss in 0.0..0.15f64,
        ) {
            let mut bench = Bench::new(seed, LIMIT, loss);
            for takes in paths {
                bench.takes = takes;
                (0..400).for_each(|_| bench.round(4));
                bench.now += RAISE_AFTER;
                (0..400).for_each(|_| bench.round(4));
                // A search may be misled by three lost probes of one size: by half of what was left.
                let (size, passes) = (bench.mtu.size(), takes.min(LIMIT));
                prop_assert!(size <= passes, "{size} of {passes}");
                prop_assert!(size + CLOSE >= passes || loss > 0.0, "{size} of {passes}");
                prop_assert!(size >= below(passes), "{size} of {passes}");
            }
        }
    }
}
