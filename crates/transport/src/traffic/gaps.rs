//! Distributions of the time between two packets.

use core::time::Duration;

use whimbrel_core::SeededRng;

/// The time between two Interests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// Always the same (ndnSIM: none).
    Constant,
    /// Uniform between zero and twice the mean.
    Uniform,
    /// Exponential, bounded at 50 times the mean: a Poisson process.
    Exponential,
}

impl Gaps {
    /// Draws one gap.
    pub fn draw(self, mean: Duration, rng: &mut SeededRng) -> Duration {
        match self {
            Gaps::Constant => mean,
            Gaps::Uniform => mean.mul_f64(2.0 * rng.unit()),
            Gaps::Exponential => loop {
                let means = -(1.0 - rng.unit()).ln();
                if means <= 50.0 {
                    return mean.mul_f64(means);
                }
            },
        }
    }
}
