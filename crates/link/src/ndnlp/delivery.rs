//! The rate at which a peer acknowledges bytes.

use core::time::Duration;

use whimbrel_core::{Time, WindowedMax};

/// The minimum time over which a rate is measured, and at least a round trip: acknowledgements
/// arrive in bursts.
const MIN_SPAN: Duration = Duration::from_millis(100);
/// A pause of this many spans means that the link was idle: such a span is not measured.
const MAX_SPANS: u32 = 4;
/// The estimate is the highest rate within this time.
const MEMORY: Duration = Duration::from_secs(10);

/// The highest recent rate of acknowledged bytes.
#[derive(Debug)]
pub(crate) struct DeliveryMeter {
    // The start of the current span, and the bytes acknowledged by then.
    began: Option<(Time, u64)>,
    // Rates in bytes per second.
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
    /// Records that `acknowledged` bytes in total have been acknowledged, the last of them just
    /// now.
    pub(crate) fn observe(&mut self, now: Time, acknowledged: u64, rtt: Option<Duration>) {
        let (began, before) = *self.began.get_or_insert((now, acknowledged));
        let span = now.since(began);
        let least = MIN_SPAN.max(rtt.unwrap_or_default());
        if span < least {
            return;
        }
        self.began = Some((now, acknowledged));
        if span <= least * MAX_SPANS {
            let bytes = u128::from(acknowledged.saturating_sub(before));
            let rate = bytes * 1_000_000_000 / span.as_nanos().max(1);
            self.rates
                .sample(now, u64::try_from(rate).unwrap_or(u64::MAX));
        }
    }

    /// Returns the rate in bytes per second, or `None` until it is measured.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rates.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges 1,000 bytes every millisecond from `from` on, for `millis`.
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
        // A tenth of the rate does not lower the estimate before ten seconds have passed.
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
        // Once per round trip, all acknowledgements arrive at once.
        for trip in 0..5u64 {
            meter.observe(Time::from_millis(trip * 600), trip * 6_000, rtt);
            meter.observe(Time::from_millis(trip * 600 + 1), trip * 6_000, rtt);
        }
        assert_eq!(meter.rate(), Some(10_000));
    }
}
