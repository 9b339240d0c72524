//! Means, spreads and percentiles.

use super::result::mean;

/// Student's t at 95 % for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
    1.703, 1.701, 1.699, 1.697,
];
/// The same for a normal distribution.
pub(super) const Z95: f64 = 1.645;

/// A mean, and the spread of single values about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) mean: f64,
    /// Half of what [BELRP] calls "90 % confidence interval": t(0.95, n - 1) times the standard deviation
    /// of the runs. That is an interval for one further run and not for the mean: its script
    /// (`graphs/ci.m`) does not divide by the root of n.
    pub(super) half: f64,
    /// Standard error of the mean.
    pub(super) error: f64,
    /// The number of values.
    pub(super) count: usize,
}

impl Spread {
    pub(super) fn of(values: &[f64]) -> Spread {
        let count = values.len();
        let mean = mean(values.iter().copied());
        let deviation = deviation(values, mean);
        let t = T95.get(count.wrapping_sub(2)).copied().unwrap_or(Z95);
        Spread {
            mean,
            half: t * deviation,
            error: deviation / (count as f64).sqrt(),
            count,
        }
    }

    /// Returns the value above which the mean lies with a confidence of 95 %, by Student's t. Of a single
    /// value it says nothing, and is that value.
    pub(super) fn lower_bound(&self) -> f64 {
        self.mean - self.half / (self.count as f64).sqrt()
    }
}

/// Returns the sample standard deviation; zero for a single value.
fn deviation(values: &[f64], mean: f64) -> f64 {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

/// A large number of values, which are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    pub(super) fn join(self, other: Moments) -> Moments {
        Moments {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    /// Returns the moments of the same values in another unit.
    pub(super) fn scaled(self, factor: f64) -> Moments {
        Moments {
            count: self.count,
            sum: self.sum * factor,
            squares: self.squares * factor.powi(2),
        }
    }

    /// Returns the mean; `NaN` without values.
    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// Returns the standard deviation.
    pub(super) fn deviation(&self) -> f64 {
        (self.squares / self.count - self.mean().powi(2))
            .max(0.0)
            .sqrt()
    }
}

/// Returns the value within which this share of sorted values lies; `NaN` without values.
pub(super) fn percentile(sorted: &[f32], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.max(1) - 1)
        .map_or(f64::NAN, |value| f64::from(*value))
}

/// Returns the share of sorted values up to this one, in per cent.
pub(super) fn share_within(sorted: &[f32], max: f64) -> f64 {
    100.0 * sorted.partition_point(|value| f64::from(*value) <= max) as f64 / sorted.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_the_papers_interval() {
        // Its Fig. 2 (a) at 0.5 % with at most 3 retransmissions, all 20 runs.
        let runs: Vec<f64> = [
            234, 221, 195, 194, 205, 210, 216, 187, 232, 233, 210, 195, 217, 229, 210, 233, 227,
            233, 211, 230,
        ]
        .map(f64::from)
        .into();
        let spread = Spread::of(&runs);
        assert!((spread.mean - 216.1).abs() < 1e-9);
        // 1.729: 95 % of Student t with 19 degrees of freedom; 15.252: the standard deviation of
        // these runs.
        assert!((spread.half - 1.729 * 15.252).abs() < 0.05, "{spread:?}");
        assert_eq!(Spread::of(&[3.0]).half, 0.0);
    }

    #[test]
    fn moments_are_those_of_all_values() {
        let mut moments = [Moments::default(); 2];
        [1.0, 2.0].iter().for_each(|value| moments[0].add(*value));
        [3.0, 6.0].iter().for_each(|value| moments[1].add(*value));
        let all = moments[0].join(moments[1]);
        assert_eq!(all.mean(), 3.0);
        assert!((all.deviation() - 3.5f64.sqrt()).abs() < 1e-12);
        let scaled = all.scaled(2.0);
        assert_eq!(scaled.mean(), 6.0);
        assert!((scaled.deviation() - 14f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let sorted: Vec<f32> = (1u8..=100).map(f32::from).collect();
        assert_eq!(percentile(&sorted, 5.0), 5.0);
        assert_eq!(percentile(&sorted, 95.0), 95.0);
        assert_eq!(share_within(&sorted, 53.2), 53.0);
        assert!(percentile(&[], 50.0).is_nan());
    }
}
