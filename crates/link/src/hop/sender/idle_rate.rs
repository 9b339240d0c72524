//! The rate of a link that carries little: short trains of probes, as seldom as the owner asks for them.
//!
//! What crosses an idle link shows nothing of its rate, and a radio's changes while nothing crosses it. The probes of a
//! train leave back to back; the time between the arrivals of the first and the last one is that of those in between.

use core::time::Duration;

/// Bytes of a probe: as many as every path carries.
const PROBE_BYTES: usize = 1200;
/// Probes of the shortest and of the longest train.
const LENGTHS: (usize, usize) = (2, 16);
/// Trains that arrive within a shorter time are followed by longer ones: radios hold packets back for as long.
const SHORTEST: Duration = Duration::from_millis(5);
/// The time that the arrival of the next train should take.
const WANTED: Duration = Duration::from_millis(15);
/// Trains of one measurement, repeated ones included.
const MAX_TRAINS: u8 = 5;

/// A rate is another one if it differs by more than this factor.
const CHANGED: f64 = 2.0;

/// Returns true if an idle path that carries `rate` bytes per second is not the one that has carried `known`.
pub(super) fn differs(rate: u64, known: f64) -> bool {
    let rate = rate as f64;
    rate > known * CHANGED || rate * CHANGED < known
}

/// A measurement of the link's rate by trains of probes.
#[derive(Debug)]
pub(super) struct IdleRate {
    // Probes of the present train that are still to be sent.
    due: usize,
    length: usize,
    bytes: usize,
    // The numbers of its first and last probe, as far as they are sent, and when the first one arrived, by the
    // neighbour's clock.
    first: Option<u32>,
    last: Option<u32>,
    first_at: Option<u64>,
    trains: u8,
    // The rate in bytes per second that the last train showed, which another one confirms.
    doubtful: Option<u64>,
}

impl IdleRate {
    pub(super) fn new() -> IdleRate {
        IdleRate {
            due: 0,
            length: LENGTHS.0,
            bytes: PROBE_BYTES,
            first: None,
            last: None,
            first_at: None,
            trains: 0,
            doubtful: None,
        }
    }

    /// Begins a measurement, over frames of at most `frame` bytes.
    pub(super) fn begin(&mut self, frame: usize) {
        self.bytes = PROBE_BYTES.min(frame);
        self.trains = 0;
        self.doubtful = None;
        self.again();
    }

    fn again(&mut self) {
        (self.first, self.last, self.first_at) = (None, None, None);
        self.due = match self.trains < MAX_TRAINS {
            true => self.length,
            false => 0,
        };
        self.trains += 1;
    }

    /// Returns the probes to send now, and the bytes of each.
    pub(super) fn due(&self, frame: usize) -> (usize, usize) {
        (self.due, self.bytes.min(frame))
    }

    /// A probe was sent.
    pub(super) fn sent(&mut self, number: u32) {
        self.first.get_or_insert(number);
        self.due = self.due.saturating_sub(1);
        if self.due == 0 {
            self.last = Some(number);
        }
    }

    /// Returns true for the number of a probe of the present train.
    pub(super) fn has_sent(&self, number: u32) -> bool {
        let sent = self.first.zip(self.last);
        sent.is_some_and(|(first, last)| number.wrapping_sub(first) <= last.wrapping_sub(first))
    }

    /// Handles the answer to CSYN `number`, which arrived at `clock`. Returns the link's rate in bytes per second if that
    /// is known now.
    pub(super) fn answered(&mut self, number: u32, clock: u64) -> Option<u64> {
        let (first, last) = (self.first?, self.last?);
        if number == first {
            self.first_at = Some(clock);
            return None;
        }
        if (number.wrapping_sub(last) as i32) < 0 {
            return None;
        }
        let Some(at) = self.first_at.filter(|_| number == last) else {
            // An end of the train, or its answer, is lost.
            self.length = (self.length / 2).max(LENGTHS.0);
            self.again();
            return None;
        };
        let spread = Duration::from_nanos(clock.saturating_sub(at)).max(Duration::from_micros(100));
        let gaps = self.length.saturating_sub(1).max(1);
        let rate = (self.bytes * gaps) as u64 * 1_000_000 / (spread.as_micros() as u64).max(1);
        let fitting = gaps as u128 * WANTED.as_micros() / spread.as_micros().max(1) + 1;
        let is_short = spread < SHORTEST && self.length < LENGTHS.1;
        self.length = usize::try_from(fitting)
            .unwrap_or(LENGTHS.1)
            .clamp(LENGTHS.0, LENGTHS.1);
        if is_short {
            self.again();
            return None;
        }
        // Other packets hold a train up, and nothing makes it faster.
        match self.doubtful.replace(rate) {
            None => {
                self.again();
                None
            }
            Some(before) => {
                (self.first, self.last, self.first_at) = (None, None, None);
                Some(before.max(rate))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers the due train, whose probes arrive `gap` apart.
    fn cross(it: &mut IdleRate, number: &mut u32, gap: Duration) -> Option<u64> {
        let (due, _) = it.due(1400);
        let mut found = None;
        let first = *number;
        for _ in 0..due {
            it.sent(*number);
            *number += 1;
        }
        for index in 0..due as u32 {
            let clock = 7_000_000 + u64::from(index) * gap.as_nanos() as u64;
            found = found.or(it.answered(first + index, clock));
        }
        found
    }

    fn measure(gap: Duration) -> (Option<u64>, u32) {
        let (mut it, mut number) = (IdleRate::new(), 1);
        it.begin(1400);
        let mut found = None;
        while it.due(1400).0 > 0 {
            found = found.or(cross(&mut it, &mut number, gap));
        }
        (found, number - 1)
    }

    #[test]
    fn trains_are_as_long_as_the_rate_needs() {
        // 440 kbit/s, 4 Mbit/s, 10 Mbit/s.
        assert_eq!(measure(Duration::from_micros(21_818)), (Some(55_000), 4));
        let (rate, probes) = measure(Duration::from_micros(2_400));
        assert_eq!(rate, Some(500_000));
        assert!(probes <= 18, "{probes}");
        let (rate, probes) = measure(Duration::from_micros(960));
        assert_eq!(rate, Some(1_250_000));
        assert!(probes <= 34, "{probes}");
        // A gigabit is at least this.
        assert!(measure(Duration::from_micros(10)).0.unwrap() > 50_000_000);
    }

    #[test]
    fn a_train_that_was_held_up_does_not_count() {
        let (mut it, mut number) = (IdleRate::new(), 1);
        it.begin(1400);
        assert_eq!(
            cross(&mut it, &mut number, Duration::from_millis(200)),
            None
        );
        let rate = cross(&mut it, &mut number, Duration::from_millis(12));
        assert_eq!(rate, Some(100_000));
        assert_eq!(it.due(1400).0, 0);
    }

    #[test]
    fn lost_probes_end_a_measurement_after_a_few_trains() {
        let (mut it, mut number) = (IdleRate::new(), 1);
        it.begin(1400);
        let mut trains = 0;
        while it.due(1400).0 > 0 {
            for _ in 0..it.due(1400).0 {
                it.sent(number);
                number += 1;
            }
            trains += 1;
            // The answer to something that was sent later.
            assert_eq!(it.answered(number, 5), None);
            number += 1;
        }
        assert_eq!(trains, usize::from(MAX_TRAINS));
    }
}
