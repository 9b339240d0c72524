//! ndnSIM's retransmission timeout (see the parent module for the sources).

use core::time::Duration;

use whimbrel_core::{Gains, RttOptions};

/// As in ndnSIM: at most 64 times `max(MinRTO, SRTT + 4 RTTVAR)`.
pub const NDNSIM: RttOptions = RttOptions {
    initial: Duration::from_secs(1),
    min: Duration::from_millis(200),
    max: Duration::from_secs(200),
    gains: Gains::Fractional {
        alpha: 0.125,
        beta: 0.25,
    },
    k: 4.0,
    granularity: Duration::ZERO,
    backoff: 2.0,
    max_backoff: 64.0,
};

/// As in the paper, as far as it is known: factor 8, the predecessor's 20 ms.
pub const BELRP: RttOptions = RttOptions {
    initial: Duration::from_millis(20),
    min: Duration::from_millis(20),
    k: 8.0,
    ..NDNSIM
};

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_core::RttEstimator;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_time_out_is_ndnsims() {
        let mut timeout = RttEstimator::with_options(NDNSIM);
        assert_eq!(timeout.timeout(), 1000 * MS);
        timeout.sample(100 * MS);
        // 100 + 4 x 50.
        assert_eq!(timeout.timeout(), 300 * MS);
        (0..3).for_each(|_| timeout.back_off());
        assert_eq!(timeout.timeout(), 2400 * MS);
        (0..9).for_each(|_| timeout.back_off());
        assert_eq!(timeout.timeout(), 64 * 300 * MS);
        timeout.sample(100 * MS);
        assert_eq!(timeout.timeout(), 250 * MS);
        (0..60).for_each(|_| timeout.sample(MS));
        assert_eq!(timeout.timeout(), 200 * MS, "MinRTO");
    }

    #[test]
    fn the_papers_counts_the_variation_eight_times() {
        let mut timeout = RttEstimator::with_options(BELRP);
        assert_eq!(timeout.timeout(), 20 * MS);
        timeout.sample(56 * MS);
        assert_eq!(timeout.timeout(), 56 * MS + 8 * 28 * MS);
    }
}
