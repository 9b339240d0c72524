//! The largest frame that arrives: packetisation-layer path MTU discovery (RFC 8899) as a separate
//! machine, without a wire format.
//!
//! A path may drop large packets silently (RFC 8899 §1: a black hole; the message of the router
//! that dropped them is filtered). Frames that carry data serve as probes (RFC 8899 §4.1): as long
//! as they arrive, no other probe is sent. If large frames are lost while small ones are answered,
//! the size falls to [`BASE`], and a search for the path's MTU begins: by padded probes, up to the
//! limit that the driver and the neighbour state.
//!
//! Small frames are lost on lossy paths as well, so loss alone is not a sign. A black hole is
//! assumed when none of at least `HOLE_FRAMES` large frames arrived, while small frames sent after
//! them were answered in at least `HOLE_ROUNDS` round trips. With every seventh frame lost, this
//! happens by chance once in 10^13 times.

use core::time::Duration;

use whimbrel_core::{Deadline, Time};

/// Bytes of a frame that nearly every path carries: BASE_PLPMTU (RFC 8899 §5.1.2).
pub const BASE: usize = 1200;
/// Bytes of a frame for a path that does not even carry [`BASE`]: the minimum that an IPv4 host
/// must be able to receive, without headers.
pub const FLOOR: usize = 512;
/// A black hole is assumed when no frame of this many large ones arrived ...
const HOLE_FRAMES: u64 = 16;
/// ... while in this many rounds a later small frame was answered.
const HOLE_ROUNDS: u32 = 3;
/// Probes of one size: MAX_PROBES (RFC 8899 §5.1.2).
const MAX_PROBES: u32 = 3;
/// A search ends when the largest size that passed and the smallest that failed are this close, in
/// bytes.
const CLOSE: usize = 16;
/// PMTU_RAISE_TIMER (RFC 8899 §5.1.1): the time for which a size below the limit is kept before a
/// larger one is tried. With the RFC's ten minutes, a transfer over a repaired path would mostly
/// use small frames.
const RAISE_AFTER: Duration = Duration::from_secs(60);
/// Bounds of the time to wait for the answer to a probe.
const PROBE_PATIENCE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The state of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Search {
    /// The limit passes, as far as is known.
    Done,
    /// Frames of `candidate` bytes are being probed; those of `above` do not pass.
    Trying {
        candidate: usize,
        above: usize,
        tries: u32,
        next_at: Time,
    },
    /// Larger sizes are tried again at `until`.
    Resting { until: Time },
}

/// The count of sent frames at the time of a small frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    sent: u64,
    small_bytes: u64,
}

/// The search for the path MTU of one path.
#[derive(Clone, Debug)]
pub struct PathMtu {
    limit: usize,
    size: usize,
    search: Search,
    // The total bytes of small frames sent, and the excess of arrived bytes over it at the last
    // answer: while large frames are lost, that does not grow.
    small_bytes: u64,
    excess: Option<i64>,
    // The total of large frames sent, and the number of them that are accounted for.
    sent: u64,
    cleared: u64,
    // The rounds in which earlier large frames were missing, and the end of the last one.
    rounds: u32,
    round_from: Time,
    // Probes of the present size that must be sent.
    checks: u32,
}

impl PathMtu {
    /// Starts with frames of `limit` bytes, until they are found not to arrive.
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

    /// Returns the bytes of the largest frame that may be sent, except probes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns true while large frames are missing for an unknown reason.
    pub fn is_suspicious(&self) -> bool {
        self.rounds > 0
    }

    /// Returns the limit of the driver or the neighbour.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns true while a size below the limit is kept before a larger one is tried.
    pub fn is_resting(&self) -> bool {
        matches!(self.search, Search::Resting { .. })
    }

    /// Returns true for a frame that may be lost where frames of the next smaller size would pass.
    pub fn is_large(&self, len: usize) -> bool {
        len > below(self.size)
    }

    /// Sets a new limit of the driver or the neighbour.
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

    /// Starts anew for another path, of which nothing is known.
    pub fn forget(&mut self, limit: usize) {
        *self = PathMtu {
            small_bytes: self.small_bytes,
            sent: self.sent,
            cleared: self.sent,
            ..PathMtu::new(limit)
        };
    }

    /// Notes that a frame of `len` bytes was sent.
    pub fn frame_sent(&mut self, len: usize) {
        if self.is_large(len) {
            self.sent += 1;
        } else {
            self.small_bytes += len as u64;
        }
    }

    /// Returns a mark to keep with a small frame that is sent now and asks for an answer.
    pub fn mark(&self) -> Mark {
        Mark {
            sent: self.sent,
            small_bytes: self.small_bytes,
        }
    }

    /// Notes that the neighbour's count of arrived bytes restarts at zero.
    pub fn restart_count(&mut self) {
        self.excess = None;
    }

    /// Handles the answer to a small frame that was sent at `sent_at` with this `mark`. Of the
    /// frames passed to [`PathMtu::frame_sent`], `received` bytes had arrived then; `arrived` is
    /// true if the answer shows that a large one did. Returns true if the size has fallen.
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
            // With little traffic to the neighbour, the proof by data alone would take long. A single
            // frame is sent again anyway, and that serves as a probe: on a thin link, where few are
            // under way, each loss would otherwise cost further large frames.
            self.checks = match missing {
                1 => 0,
                _ => (HOLE_FRAMES.saturating_sub(missing) as u32).min(1 << self.rounds.min(4)),
            };
        }
        false
    }

    /// Notes that a large frame has arrived, whenever it was sent.
    pub fn arrived(&mut self) {
        self.clear(self.sent);
    }

    /// Falls back because the owner knows that frames of the present size do not arrive. Probes
    /// confirm the smaller size first, and the size falls further if they do not arrive.
    pub fn leave_size(&mut self, now: Time) {
        let above = self.size;
        if self.fall(now) {
            self.search = Search::Trying {
                candidate: self.size,
                above,
                tries: 0,
                next_at: now,
            };
        }
    }

    /// Returns the size of a probe that must be sent now. `timeout` bounds the time for its answer.
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
            if candidate > self.size {
                self.try_next(now, candidate);
            } else if below(self.size) > 0 {
                self.leave_size(now);
            } else {
                self.try_next(now, above);
            }
        }
        None
    }

    /// Notes that a probe of `len` bytes was answered. Returns true if the size has grown.
    pub fn probe_arrived(&mut self, now: Time, len: usize) -> bool {
        if self.is_large(len) {
            self.clear(self.sent);
        }
        if let Search::Trying {
            candidate, above, ..
        } = self.search
            && candidate == self.size
            && len >= candidate
        {
            // The smaller size after a fall passes.
            self.try_next(now, above);
        }
        if len <= self.size || len > self.limit {
            return false;
        }
        self.size = len;
        self.clear(self.sent);
        match self.search {
            _ if len == self.limit => self.search = Search::Done,
            Search::Trying { above, .. } => self.try_next(now, above.max(len + 1)),
            // The answer is late: the search has ended at a smaller size.
            Search::Done | Search::Resting { .. } => {}
        }
        true
    }

    /// Returns the time of the next call to [`PathMtu::poll_probe`].
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

    /// Falls back because frames of the present size do not arrive. Returns false if there is no
    /// smaller size.
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

    /// Continues the search after frames of `above` bytes did not pass.
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

    /// Reopens the search up to the limit. The limit is tried first, because a repaired path
    /// carries it.
    fn raise(&mut self, now: Time) {
        self.search = Search::Trying {
            candidate: self.limit,
            above: self.limit + 1,
            tries: 0,
            next_at: now,
        };
    }
}

/// Returns the next size below `size` to fall back to, or 0 if there is none. Larger frames than
/// this are large.
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

    /// A sender of data that sends a small question once per round trip, over a path that carries
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

        /// Sends `frames` of data of the present size and a question, and handles the answer.
        fn round(&mut self, frames: usize) {
            let mut arrived = false;
            for _ in 0..frames {
                let len = self.mtu.size();
                self.mtu.frame_sent(len);
                if self.passes(len) {
                    arrived = true;
                    self.received += len as u64;
                }
                // A short frame ends the chunk.
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
    fn loss_of_every_seventh_frame_is_not_taken_for_a_small_mtu() {
        for seed in 0..20 {
            let mut bench = Bench::new(seed, LIMIT, 0.15);
            // Few frames per round are the hard case.
            (0..20_000).for_each(|round| bench.round(1 + round % 3));
            assert_eq!((bench.falls, bench.mtu.size()), (0, LIMIT), "seed {seed}");
        }
    }

    #[test]
    fn a_black_hole_is_left_within_a_few_rounds_and_the_path_s_size_is_found() {
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
        // Nothing more is tried until the timer expires.
        assert!(bench.mtu.poll_timeout().unwrap().at > bench.now + Duration::from_secs(50));
    }

    #[test]
    fn larger_frames_are_used_again_when_the_path_is_repaired() {
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
    fn a_new_limit_applies_at_once_and_a_new_path_starts_anew() {
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

    /// Sends over a path that takes `takes` bytes from now on, until a search has been tried again.
    fn change_path(bench: &mut Bench, takes: usize) {
        bench.takes = takes;
        (0..400).for_each(|_| bench.round(4));
        search_again(bench);
    }

    fn search_again(bench: &mut Bench) {
        bench.now += RAISE_AFTER;
        (0..400).for_each(|_| bench.round(4));
    }

    #[test]
    fn a_search_that_lost_probes_have_misled_is_made_good_by_the_next_one() {
        let mut bench = Bench::new(3_344_994_356_924_756_912, LIMIT, 0.10066);
        for takes in [630, 959, 1201] {
            change_path(&mut bench, takes);
        }
        // Three probes of BASE were lost, or their answers.
        assert!(bench.mtu.size() < BASE, "{}", bench.mtu.size());
        search_again(&mut bench);
        assert!(
            (BASE..=1201).contains(&bench.mtu.size()),
            "{}",
            bench.mtu.size()
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For any changes of the path, the size ends just below its MTU, and never falls below
        /// what was needed.
        #[test]
        fn the_size_follows_the_path(
            seed in any::<u64>(), paths in prop::collection::vec(520usize..2_000, 1..5), loss in 0.0..0.15f64,
        ) {
            let mut bench = Bench::new(seed, LIMIT, loss);
            for takes in paths {
                let (before, passes) = (bench.mtu.size(), takes.min(LIMIT));
                change_path(&mut bench, takes);
                let size = bench.mtu.size();
                prop_assert!(size <= passes, "{size} of {passes}");
                prop_assert!(size >= before.min(below(passes)), "{size} after {before} of {passes}");
                // Three lost probes of one size mislead a search until the next one, which is misled
                // in one of 40 cases at most.
                for _ in 0..8 {
                    if bench.mtu.size() < below(passes) {
                        search_again(&mut bench);
                    }
                }
                let size = bench.mtu.size();
                prop_assert!((below(passes)..=passes).contains(&size), "{size} of {passes}");
                prop_assert!(size + CLOSE >= passes || loss > 0.0, "{size} of {passes}");
            }
        }
    }
}
