//! Links whose rate follows a recorded trace, in the format of mahimahi's `mm-link`.

use whimbrel_core::Time;

/// Bytes that one line of a trace transmits.
pub(super) const OPPORTUNITY_BYTES: u64 = 1500;

const NANOS_PER_MILLI: u64 = 1_000_000;

/// A trace of delivery opportunities. Each line of the text form is a time in whole milliseconds
/// from the start, at which up to 1,500 bytes leave; the trace repeats after the time of its last
/// line (mm-link(1), "DESCRIPTION"). An opportunity that finds no frame waiting is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryTrace {
    // Ascending, never empty, the last one above zero.
    millis: Box<[u64]>,
}

/// The reason why a text is not a delivery trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not a whole number of milliseconds.
    #[error("line {line}: '{text}' is not a whole number of milliseconds")]
    NotANumber {
        /// The line number, from 1.
        line: usize,
        /// The line, shortened.
        text: String,
    },
    /// A line's time is before the line above it.
    #[error("line {line}: {millis} ms is earlier than the line above, and times must not go back")]
    GoesBack {
        /// The line number, from 1.
        line: usize,
        /// The time on that line.
        millis: u64,
    },
    /// There is no line, or all are at 0 ms.
    #[error("the trace is empty or ends at 0 ms: it must last for some time to be repeated")]
    NoLength,
    /// A time is too large for a run.
    #[error("line {line}: {millis} ms is too large")]
    TooLarge {
        /// The line number, from 1.
        line: usize,
        /// The time on that line.
        millis: u64,
    },
}

impl DeliveryTrace {
    /// Reads the text form: one time per line, empty lines ignored.
    pub fn parse(text: &str) -> Result<DeliveryTrace, TraceError> {
        let mut millis = Vec::new();
        for (index, content) in text.lines().enumerate() {
            let (line, content) = (index + 1, content.trim());
            if content.is_empty() {
                continue;
            }
            let at: u64 = content.parse().map_err(|_| TraceError::NotANumber {
                line,
                text: content.chars().take(40).collect(),
            })?;
            check_next(&millis, at, line)?;
            millis.push(at);
        }
        DeliveryTrace::checked(millis)
    }

    /// Builds a trace from times in milliseconds. Errors count the entries from 1.
    pub fn from_millis(times: impl IntoIterator<Item = u64>) -> Result<DeliveryTrace, TraceError> {
        let mut millis = Vec::new();
        for (index, at) in times.into_iter().enumerate() {
            check_next(&millis, at, index + 1)?;
            millis.push(at);
        }
        DeliveryTrace::checked(millis)
    }

    fn checked(millis: Vec<u64>) -> Result<DeliveryTrace, TraceError> {
        match millis.last() {
            None | Some(0) => Err(TraceError::NoLength),
            Some(_) => Ok(DeliveryTrace {
                millis: millis.into(),
            }),
        }
    }

    /// Returns the times of one repetition, in milliseconds.
    pub fn millis(&self) -> &[u64] {
        &self.millis
    }

    /// Returns the rate over a whole repetition, bit/s, rounded down.
    pub fn mean_rate(&self) -> u64 {
        self.millis.len() as u64 * OPPORTUNITY_BYTES * 8 * 1_000 / self.turn_millis()
    }

    fn turn_millis(&self) -> u64 {
        self.millis.last().copied().unwrap_or(1)
    }

    fn turn_nanos(&self) -> u64 {
        self.turn_millis().saturating_mul(NANOS_PER_MILLI)
    }
}

fn check_next(before: &[u64], at: u64, line: usize) -> Result<(), TraceError> {
    if before.last().is_some_and(|last| at < *last) {
        return Err(TraceError::GoesBack { line, millis: at });
    }
    // About 292 years: half the range of Time, so that one more repetition cannot overflow.
    if at > u64::MAX / 2 / NANOS_PER_MILLI {
        return Err(TraceError::TooLarge { line, millis: at });
    }
    Ok(())
}

/// The position of a link in its trace.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceCursor {
    turn: u64,
    index: usize,
    // Bytes left of the last opportunity, and the time of that opportunity.
    left: u64,
    left_at: Time,
}

impl TraceCursor {
    /// Returns the departure time of a frame of `bytes` that was offered at `offered`. A frame that
    /// was waiting already uses the rest of the last opportunity; otherwise it uses opportunities
    /// after `offered`, because mahimahi gives an opportunity only to frames that are there before
    /// it.
    pub(super) fn transmit(&mut self, trace: &DeliveryTrace, offered: Time, bytes: u64) -> Time {
        let mut needed = bytes;
        if offered < self.left_at {
            let used = needed.min(self.left);
            self.left -= used;
            needed -= used;
        } else {
            self.left = 0;
        }
        if needed == 0 {
            return offered.max(self.left_at);
        }
        self.skip_to(trace, offered);
        loop {
            let at = self.next_time(trace);
            self.step(trace);
            if needed <= OPPORTUNITY_BYTES || at == Time::MAX {
                self.left = OPPORTUNITY_BYTES.saturating_sub(needed);
                self.left_at = at;
                return at;
            }
            needed -= OPPORTUNITY_BYTES;
        }
    }

    fn next_time(&self, trace: &DeliveryTrace) -> Time {
        let millis = trace.millis.get(self.index).copied().unwrap_or(0);
        Time::from_nanos(
            self.turn
                .saturating_mul(trace.turn_nanos())
                .saturating_add(millis * NANOS_PER_MILLI),
        )
    }

    fn step(&mut self, trace: &DeliveryTrace) {
        self.index += 1;
        if self.index == trace.millis.len() {
            self.index = 0;
            self.turn += 1;
        }
    }

    /// Skips opportunities up to `time`; the used part of an opportunity stays used.
    fn skip_to(&mut self, trace: &DeliveryTrace, time: Time) {
        if self.next_time(trace) > time {
            return;
        }
        let turn = time.as_nanos() / trace.turn_nanos();
        let within = (time.as_nanos() % trace.turn_nanos()) / NANOS_PER_MILLI;
        // The remainder is below the length of the trace, so the index is within it.
        let index = trace.millis.partition_point(|millis| *millis <= within);
        if (turn, index) > (self.turn, self.index) {
            (self.turn, self.index) = (turn, index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_name_the_line() {
        let said = |text: &str| DeliveryTrace::parse(text).unwrap_err().to_string();
        assert!(said("1\n2\nx\n").starts_with("line 3: 'x'"));
        assert!(said("5\n\n4\n").starts_with("line 3: 4 ms is earlier"));
        assert!(said("0\n0\n").contains("some time"));
        assert!(said("").contains("some time"));
        assert!(said("99999999999999999\n").starts_with("line 1"));
        assert_eq!(DeliveryTrace::parse("1\r\n2\r\n").unwrap().millis(), [1, 2]);
    }

    #[test]
    fn twelve_megabits_is_one_line_each_millisecond() {
        assert_eq!(
            DeliveryTrace::parse("1\n2\n3\n4").unwrap().mean_rate(),
            12_000_000
        );
    }

    proptest! {
        /// The model is a list of all opportunities, searched one by one.
        #[test]
        fn frames_leave_when_a_walk_over_all_opportunities_says(
            mut times in prop::collection::vec(0u64..20, 1..8),
            frames in prop::collection::vec((0u64..15_000_000, 0u64..4000), 1..20),
        ) {
            times.sort_unstable();
            prop_assume!(*times.last().unwrap() > 0);
            let trace = DeliveryTrace::from_millis(times.clone()).unwrap();
            let turn = *times.last().unwrap();
            let mut walk = (0u64..).flat_map(|n| times.iter().map(move |t| (n * turn + t) * 1_000_000)).peekable();
            let mut cursor = TraceCursor::default();
            let (mut offered, mut free_at, mut left) = (0u64, 0u64, 0u64);
            for (gap, bytes) in frames {
                offered += gap;
                let ready = offered.max(free_at);
                let mut needed = bytes;
                if offered < free_at {
                    let used = needed.min(left);
                    left -= used;
                    needed -= used;
                } else {
                    left = 0;
                }
                let mut end = ready;
                while needed > 0 {
                    while walk.peek().is_some_and(|at| *at < ready || (*at <= ready && offered >= ready)) {
                        walk.next();
                    }
                    end = walk.next().unwrap();
                    left = 1500 - needed.min(1500);
                    needed -= needed.min(1500);
                }
                let got = cursor.transmit(&trace, Time::from_nanos(offered), bytes);
                prop_assert_eq!(got.as_nanos(), end);
                free_at = end;
            }
        }
    }
}
