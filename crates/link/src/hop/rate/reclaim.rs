//! Taking back a share of the path from a flow that does not answer to losses.

/// Rounds, at most, in which a hop sends more and more.
const ROUNDS: u32 = 12;
/// It stops once more than this share is lost. By then it sends about a third of what the path carries,
/// because a loss is seen a round or two late.
const MOST_LOSS: f64 = 0.1;
/// It also stops after so many rounds in a row in which the estimate has grown by less than this factor:
/// the other flow may have left, and there is no more to get.
const IN_VAIN: (u32, f64) = (3, 1.1);

/// How far a hop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reclaim {
    rounds: u32,
    // The estimate when it last grew, in bytes per second, and the rounds since then.
    grown: u64,
    in_vain: u32,
}

impl Reclaim {
    /// Pace, as a multiple of the estimate.
    pub(super) const GAIN: f64 = 1.5;
    /// Bytes in flight, as a multiple of the bandwidth-delay product.
    pub(super) const FLIGHT: f64 = 4.0;

    /// Begins at an estimate of `bandwidth` bytes per second.
    pub(super) fn new(bandwidth: f64) -> Reclaim {
        Reclaim {
            rounds: 0,
            grown: bandwidth as u64,
            in_vain: 0,
        }
    }

    /// Ends a round which lost this share. Returns true if it was the last one.
    pub(super) fn ends(&mut self, bandwidth: f64, loss: f64) -> bool {
        self.rounds += 1;
        self.in_vain += 1;
        if bandwidth >= self.grown as f64 * IN_VAIN.1 {
            (self.grown, self.in_vain) = (bandwidth as u64, 0);
        }
        loss > MOST_LOSS || self.rounds >= ROUNDS || self.in_vain >= IN_VAIN.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns after how many rounds it ends, of which each grows by this factor and loses this share.
    fn rounds(growth: f64, loss: impl Fn(u32) -> f64) -> u32 {
        let mut bandwidth = 1e5;
        let mut reclaim = Reclaim::new(bandwidth);
        (1..)
            .find(|round| {
                bandwidth *= growth;
                reclaim.ends(bandwidth, loss(*round))
            })
            .unwrap()
    }

    #[test]
    fn it_ends_with_losses_without_growth_and_in_time() {
        assert_eq!(rounds(1.5, |round| f64::from(round) * 0.03), 4);
        assert_eq!(rounds(1.0, |_| 0.0), IN_VAIN.0);
        assert_eq!(rounds(1.2, |_| 0.05), ROUNDS);
        assert_eq!(rounds(f64::INFINITY, |_| 0.0), ROUNDS);
    }
}
