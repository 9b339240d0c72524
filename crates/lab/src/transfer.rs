//! Measurements of one transfer over kernel TCP or Whimbrel.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Interval of the samples of a transfer's progress: fine enough for the 500 ms of [MFTP §5.1], Fig. 8
/// (b).
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// One transfer, measured by its receiver. All durations are in seconds from the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferRecord {
    /// Time of the request, in milliseconds since the Unix epoch.
    pub started_unix_ms: u64,
    /// Time of the last byte, or of the receiver's end.
    pub finished: f64,
    /// Bytes that arrived, without any header.
    pub bytes: u64,
    /// Bytes that had arrived at each multiple of [`SAMPLE_INTERVAL`] from 0, and at `finished`.
    pub samples: Vec<(f64, u64)>,
    /// The longest time in which nothing arrived, the wait for the first byte included.
    pub longest_stall: f64,
    /// The longest time in which nothing arrived after the first byte.
    #[serde(default)]
    pub longest_pause: f64,
    /// The longest of these times, [`MOST_PAUSES`] at most, in the order in which they ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// Segments (or packets of the protocol at hand) that were sent again; `None` if they were not
    /// counted.
    pub retransmitted_segments: Option<u64>,
    /// Bytes of these; `None` if they were not counted.
    pub retransmitted_bytes: Option<u64>,
    /// True if everything arrived.
    pub completed: bool,
    /// TCP's sender over the time, if it was watched and served one transfer only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sender: Vec<SenderSample>,
}

/// Pauses that a record has at most.
pub const MOST_PAUSES: usize = 32;

/// A time in which nothing arrived, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    /// Its end, from the request.
    pub end: f64,
    /// Its length.
    pub length: f64,
}

/// The sender of a TCP connection at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SenderSample {
    /// Seconds from the request.
    pub at: f64,
    /// In namespaces the kernel's congestion window (TCP_INFO), in the simulator what is in flight,
    /// in segments.
    pub window: f64,
    /// Its retransmission timeout in seconds.
    pub timeout: f64,
    /// Segments that it had sent again by then.
    pub retransmitted: u64,
}

impl TransferRecord {
    /// Returns the longest of the pauses that ended after `from`.
    pub fn longest_pause_after(&self, from: f64) -> f64 {
        let after = self.pauses.iter().filter(|pause| pause.end >= from);
        after.map(|pause| pause.length).fold(0.0, f64::max)
    }

    /// Returns the bits per second over the whole transfer; 0 if it took no time.
    pub fn goodput(&self) -> f64 {
        if self.finished > 0.0 {
            self.bytes as f64 * 8.0 / self.finished
        } else {
            0.0
        }
    }

    /// Returns the bits per second in each interval of `width` seconds (at least one sample long),
    /// as (end, rate). A remainder of at least half an interval has one of its own; a shorter one
    /// belongs to the interval before, because a chunk that arrives in the last milliseconds would
    /// look like a burst.
    pub fn goodput_series(&self, width: f64) -> Vec<(f64, f64)> {
        let mut series = Vec::new();
        let (mut before, mut from) = ((0.0, 0), (0.0, 0));
        for (index, &(at, bytes)) in self.samples.iter().enumerate() {
            let last = index + 1 == self.samples.len();
            // Half a sample of tolerance, so that rounding never makes an interval one sample too
            // long.
            let full = at - from.0 >= width - SAMPLE_INTERVAL.as_secs_f64() / 2.0;
            if last && at - from.0 < width / 2.0 && series.pop().is_some() {
                from = before;
            }
            if (full || last) && at > from.0 {
                series.push((at, (bytes - from.1) as f64 * 8.0 / (at - from.0)));
                (before, from) = (from, (at, bytes));
            }
        }
        series
    }
}

/// Follows a transfer while it runs, for schedules that begin with the request and for progress
/// bars.
pub trait TransferObserver {
    /// Called right before the request, from which all times of the record count.
    fn started(&mut self, _at: Instant) {}

    /// Called when `bytes` have arrived in all.
    fn progress(&mut self, elapsed: Duration, bytes: u64) {
        let _ = (elapsed, bytes);
    }

    /// Returns true if the transfer goes on; it is cut off otherwise.
    fn goes_on(&self) -> bool {
        true
    }
}

/// Ignores everything.
impl TransferObserver for () {}

/// Makes a [`TransferRecord`] from arrivals.
#[derive(Clone, Debug)]
pub struct TransferMeter {
    started: Instant,
    started_unix_ms: u64,
    last_arrival: Duration,
    longest_stall: Duration,
    pauses: Vec<Pause>,
    bytes: u64,
    samples: Vec<(f64, u64)>,
}

impl TransferMeter {
    /// Returns a meter for a transfer whose request is made at `started`, which is about now.
    pub fn new(started: Instant) -> TransferMeter {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        TransferMeter {
            started,
            started_unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            last_arrival: Duration::ZERO,
            longest_stall: Duration::ZERO,
            pauses: Vec::new(),
            bytes: 0,
            samples: Vec::new(),
        }
    }

    /// Notes that `bytes` more arrived at `at`.
    pub fn arrived(&mut self, at: Instant, bytes: u64) {
        let elapsed = at.saturating_duration_since(self.started);
        self.sample_before(elapsed);
        self.end_stall(elapsed);
        self.last_arrival = elapsed;
        self.bytes += bytes;
    }

    /// Notes that `bytes` more had arrived when their receiver said so at `at`, and that it had waited for a
    /// part of them for `pause` at most.
    pub fn reported(&mut self, at: Instant, bytes: u64, pause: Duration) {
        let elapsed = at.saturating_duration_since(self.started);
        self.sample_before(elapsed);
        if self.bytes == 0 {
            self.end_stall(elapsed);
        } else {
            self.note_pause(elapsed, pause);
        }
        self.last_arrival = elapsed;
        self.bytes += bytes;
    }

    /// Returns the bytes that have arrived.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time since the request.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Returns the record. A transfer that `completed` ended with its last byte; any other one ends
    /// at `at`.
    pub fn finish(mut self, at: Instant, completed: bool) -> TransferRecord {
        let finished = if completed {
            self.last_arrival
        } else {
            self.elapsed(at)
        };
        self.sample_before(finished);
        self.end_stall(finished);
        self.samples.push((finished.as_secs_f64(), self.bytes));
        TransferRecord {
            started_unix_ms: self.started_unix_ms,
            finished: finished.as_secs_f64(),
            bytes: self.bytes,
            samples: self.samples,
            longest_stall: self.longest_stall.as_secs_f64(),
            longest_pause: self.pauses.iter().map(|it| it.length).fold(0.0, f64::max),
            pauses: self.pauses,
            retransmitted_segments: None,
            retransmitted_bytes: None,
            completed,
            sender: Vec::new(),
        }
    }

    /// Takes the samples that are due before an event at `elapsed`.
    fn sample_before(&mut self, elapsed: Duration) {
        loop {
            let due = SAMPLE_INTERVAL * u32::try_from(self.samples.len()).unwrap_or(u32::MAX);
            if due >= elapsed && !due.is_zero() || due > elapsed {
                return;
            }
            self.samples.push((due.as_secs_f64(), self.bytes));
        }
    }

    fn end_stall(&mut self, elapsed: Duration) {
        let rest = elapsed.saturating_sub(self.last_arrival);
        match self.bytes > 0 {
            true => self.note_pause(elapsed, rest),
            false => self.longest_stall = self.longest_stall.max(rest),
        }
    }

    fn note_pause(&mut self, end: Duration, pause: Duration) {
        self.longest_stall = self.longest_stall.max(pause);
        if pause.is_zero() {
            return;
        }
        self.pauses.push(Pause {
            end: end.as_secs_f64(),
            length: pause.as_secs_f64(),
        });
        if self.pauses.len() > MOST_PAUSES {
            let lengths = self.pauses.iter().enumerate();
            let shortest = lengths.min_by(|a, b| a.1.length.total_cmp(&b.1.length));
            let shortest = shortest.map(|(at, _)| at);
            shortest.map(|at| self.pauses.remove(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(arrivals: &[(u64, u64)], end: Option<u64>) -> TransferRecord {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut meter = TransferMeter::new(start);
        arrivals
            .iter()
            .for_each(|(ms, bytes)| meter.arrived(at(*ms), *bytes));
        meter.finish(at(end.unwrap_or(0)), end.is_none())
    }

    #[test]
    fn samples_say_what_had_arrived_by_then() {
        let record = record(&[(50, 10), (150, 20), (420, 5)], None);
        assert_eq!(
            record.samples,
            [
                (0.0, 0),
                (0.1, 10),
                (0.2, 30),
                (0.3, 30),
                (0.4, 30),
                (0.42, 35)
            ]
        );
        assert_eq!(
            (record.bytes, record.finished, record.longest_stall),
            (35, 0.42, 0.27)
        );
        assert_eq!(record.longest_pause, 0.27);
        assert_eq!(record.goodput(), 35.0 * 8.0 / 0.42);
    }

    #[test]
    fn giving_up_counts_as_a_stall_and_as_time() {
        let record = record(&[(100, 1)], Some(1000));
        assert!(!record.completed);
        assert_eq!((record.finished, record.longest_stall), (1.0, 0.9));
        assert_eq!(record.samples.len(), 11);
    }

    #[test]
    fn the_wait_for_the_first_byte_is_a_stall_and_no_pause() {
        let record = record(&[(300, 1), (350, 1)], None);
        assert_eq!((record.longest_stall, record.longest_pause), (0.3, 0.05));
    }

    #[test]
    fn the_longest_pauses_are_kept_with_their_times() {
        let many: Vec<(u64, u64)> = (1..=100).map(|number| (number * 10, 1)).collect();
        let late = [(1_100, 1), (1_150, 1)];
        let got = record(&[many.as_slice(), &late].concat(), None);
        assert_eq!(got.pauses.len(), MOST_PAUSES);
        let close = |pause: f64, expected: f64| (pause - expected).abs() < 1e-9;
        assert!(close(got.longest_pause_after(0.0), 0.1), "{got:?}");
        assert!(close(got.longest_pause_after(1.12), 0.05), "{got:?}");
        assert_eq!(got.longest_pause_after(2.0), 0.0);
    }

    /// A receiver that says every 100 ms how much has come knows its pauses better.
    #[test]
    fn a_report_may_say_how_long_its_receiver_waited() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut meter = TransferMeter::new(start);
        meter.reported(at(50), 10, Duration::ZERO);
        meter.reported(at(150), 10, Duration::from_millis(20));
        meter.reported(at(250), 10, Duration::from_millis(90));
        let record = meter.finish(at(250), true);
        assert_eq!((record.longest_stall, record.longest_pause), (0.09, 0.09));
        assert_eq!(record.longest_pause_after(0.3), 0.0);
    }

    #[test]
    fn a_series_covers_all_bytes_in_the_width_asked_for() {
        let record = record(&[(50, 100), (450, 100), (750, 100)], None);
        let series = record.goodput_series(0.5);
        assert_eq!(series.len(), 2);
        assert!(
            (series[0].0 - 0.5).abs() < 1e-9 && (series[0].1 - 3200.0).abs() < 1e-6,
            "{series:?}"
        );
        assert!(
            (series[1].0 - 0.75).abs() < 1e-9 && (series[1].1 - 3200.0).abs() < 1e-6,
            "{series:?}"
        );
    }

    #[test]
    fn a_short_rest_is_no_burst() {
        let series = record(&[(50, 100), (450, 100), (510, 100)], None).goodput_series(0.5);
        assert_eq!(series.len(), 1);
        assert!(
            (series[0].0 - 0.51).abs() < 1e-9 && (series[0].1 - 2400.0 / 0.51).abs() < 1e-6,
            "{series:?}"
        );
        // A remainder without an interval before it is one.
        let series = record(&[(10, 100)], None).goodput_series(0.5);
        assert_eq!(series.len(), 1);
    }

    proptest! {
        #[test]
        fn samples_never_go_back_and_end_with_everything(
            gaps in prop::collection::vec((0u64..400, 0u64..1000), 0..50), left in prop::option::of(0u64..500),
        ) {
            let mut at = 0;
            let arrivals: Vec<_> = gaps.iter().map(|(gap, bytes)| { at += gap; (at, *bytes) }).collect();
            let record = record(&arrivals, left.map(|left| at + left));
            prop_assert!(record.samples.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 <= pair[1].1));
            prop_assert_eq!(record.samples.last().map(|last| last.1), Some(record.bytes));
            prop_assert_eq!(record.bytes, arrivals.iter().map(|(_, bytes)| bytes).sum::<u64>());
            // JSON numbers are read back to within one unit in the last place.
            let text = serde_json::to_string(&record).unwrap();
            let read: TransferRecord = serde_json::from_str(&text).unwrap();
            prop_assert_eq!((read.bytes, read.samples.len()), (record.bytes, record.samples.len()));
            prop_assert!((read.finished - record.finished).abs() < 1e-9);
        }
    }
}
