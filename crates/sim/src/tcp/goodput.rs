//! Application bytes per interval.

use core::time::Duration;

use whimbrel_core::Time;

/// Counts arriving bytes in intervals of equal length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoodputMeter {
    start: Time,
    interval: Duration,
    bytes: Vec<u64>,
    total: u64,
    first: Option<Time>,
    last: Option<Time>,
}

/// Bound of the intervals. Later arrivals count to the last one.
const MAX_INTERVALS: usize = 10_000_000;

impl GoodputMeter {
    /// Starts intervals of `interval` (at least 1 ns) at `start`. [MFTP §5.1], Fig. 8 (b), uses 500
    /// ms.
    pub fn new(start: Time, interval: Duration) -> GoodputMeter {
        let interval = interval.max(Duration::from_nanos(1));
        GoodputMeter {
            start,
            interval,
            bytes: Vec::new(),
            total: 0,
            first: None,
            last: None,
        }
    }

    /// Counts `bytes` that arrived at `now`.
    pub fn record(&mut self, now: Time, bytes: u64) {
        let index = now.since(self.start).as_nanos() / self.interval.as_nanos();
        let index = usize::try_from(index)
            .unwrap_or(usize::MAX)
            .min(MAX_INTERVALS - 1);
        if index >= self.bytes.len() {
            self.bytes.resize(index + 1, 0);
        }
        self.bytes[index] += bytes;
        self.total += bytes;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }

    /// Returns the bytes of each interval up to the last arrival.
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Returns (start of the interval, bit/s within it), up to the last arrival.
    pub fn samples(&self) -> impl Iterator<Item = (Time, f64)> {
        let seconds = self.interval.as_secs_f64();
        self.bytes.iter().enumerate().map(move |(index, bytes)| {
            let offset = self.interval.as_nanos() as u64 * index as u64;
            (
                self.start + Duration::from_nanos(offset),
                *bytes as f64 * 8.0 / seconds,
            )
        })
    }

    /// Returns the total of all bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the time of the first arrival.
    pub fn first_arrival(&self) -> Option<Time> {
        self.first
    }

    /// Returns the time of the last arrival.
    pub fn last_arrival(&self) -> Option<Time> {
        self.last
    }

    /// Returns the mean rate from the start to the last arrival, bit/s; 0 without arrivals.
    pub fn mean_rate(&self) -> f64 {
        match self.last {
            Some(last) if last > self.start => {
                self.total as f64 * 8.0 / last.since(self.start).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}
