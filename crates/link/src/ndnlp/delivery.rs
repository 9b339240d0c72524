//! How fast a peer acknowledges what it is sent.

use core::time::Duration;

use whimbrel_core::{Time, WindowedMax};

/// A rate is measured over at least this time, and at least a round trip: acknowledgements come in
/// bursts.
const LEAST_SPAN: Duration = Duration::from_millis(100);
/// A span in which nothing came for so many times its length was not busy and measures nothing.
const LONGEST_SPAN: u32 = 4;
/// The highest rate of this time is the estimate.
const MEMORY: Duration = Duration::from_secs(10);

/// The highest rate at which bytes were acknowledged lately.
#[derive(Debug)]
pub(crate) struct DeliveryMeter {
    // Since when the present span lasts, and how many bytes had been acknowledged then.
    began: Option<(Time, u64)>,
    // Bytes per second.
    rates: WindowedMax<u64>,
}

impl Default for DeliveryMeter {
    fn default() -> DeliveryMeter {
        DeliveryMeter {
            began: None,
            rates: WindowedMax::new(MEMORY),
        }
    }
}

impl DeliveryMeter {
    /// `acknowledged` bytes have been acknowledged until now, some of them just now.
    pub(crate) fn observe(&mut self, now: Time, acknowledged: u64, rtt: Option<Duration>) {
        let (began, before) = *self.began.get_or_insert((now, acknowledged));
        let span = now.since(began);
        let least = LEAST_SPAN.max(rtt.unwrap_or_default());
        if span < least {
            return;
        }
        self.began = Some((now, acknowledged));
        if span <= least * LONGEST_SPAN {
            let bytes = u128::from(acknowledged.saturating_sub(before));
            let rate = bytes * 1_000_000_000 / span.as_nanos().max(1);
            self.rates
                .sample(now, u64::try_from(rate).unwrap_or(u64::MAX));
        }
    }

    /// Bytes per second; `None` until it was measured.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rates.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,000 bytes every millisecond from `from` on, for `millis`.
    fn busy(meter: &mut DeliveryMeter, acknowledged: &mut u64, from: u64, millis: u64) {
        for milli in from..from + millis {
            *acknowledged += 1000;
            meter.observe(Time::from_millis(milli), *acknowledged, None);
        }
    }

    #[test]
    fn the_rate_is_that_of_the_busiest_span() {
        let (mut meter, mut acknowledged) = (DeliveryMeter::default(), 0);
        busy(&mut meter, &mut acknowledged, 0, 100);
        assert_eq!(meter.rate(), None, "not long enough");
        busy(&mut meter, &mut acknowledged, 100, 400);
        assert_eq!(meter.rate(), Some(1_000_000));
        // A tenth of it does not take the estimate down before ten seconds have passed.
        for tenth in 0..120 {
            acknowledged += 10_000;
            meter.observe(Time::from_millis(600 + tenth * 100), acknowledged, None);
            let expected = if tenth < 90 { 1_000_000 } else { 100_000 };
            if !(90..=110).contains(&tenth) {
                assert_eq!(meter.rate(), Some(expected), "{tenth}");
            }
        }
    }

    #[test]
    fn a_pause_is_not_a_low_rate() {
        let (mut meter, mut acknowledged) = (DeliveryMeter::default(), 0);
        busy(&mut meter, &mut acknowledged, 0, 300);
        busy(&mut meter, &mut acknowledged, 60_000, 50);
        assert_eq!(meter.rate(), Some(1_000_000));
    }

    #[test]
    fn a_span_is_as_long_as_a_round_trip() {
        let mut meter = DeliveryMeter::default();
        let rtt = Some(Duration::from_millis(600));
        // Once in a round trip, all that it took comes at once.
        for trip in 0..5u64 {
            meter.observe(Time::from_millis(trip * 600), trip * 6_000, rtt);
            meter.observe(Time::from_millis(trip * 600 + 1), trip * 6_000, rtt);
        }
        assert_eq!(meter.rate(), Some(10_000));
    }
}
