//! The search for more bandwidth: how far a probe reaches, by what the probes before have found.

/// Pace in a probe for more bandwidth; a round of it queues 15 % of a round's bytes.
const PROBE_GAIN: f64 = 1.15;
/// The pace after 0, 1, 2, and 3 or more probes in a row that found more: a path that is much faster
/// than the estimate is not approached in steps of 15 %.
const GAINS: [f64; 4] = [PROBE_GAIN, PROBE_GAIN, 1.5, 2.0];
/// A probe has overflowed a queue if more was lost than this factor of the random loss and this
/// share.
const OVERFLOW: (f64, f64) = (1.5, 0.01);
/// Only a rate of at least this share of the largest so far is new. What a sender had before may
/// belong to others now.
const NEW_GROUND: f64 = 0.9;

/// A probe whose packets have not been answered.
#[derive(Clone, Copy, Debug)]
struct Probe {
    // The estimate before it, in bytes per second.
    bandwidth: f64,
    // Packets answered since, and those that were lost.
    packets: f64,
    lost: f64,
}

/// Probes one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    probe: Option<Probe>,
    // Probes in a row that found more.
    found: usize,
}

impl Search {
    /// Returns the pace of the next probe as a multiple of the estimate.
    pub(super) fn gain(&self) -> f64 {
        GAINS[self.found.min(GAINS.len() - 1)]
    }

    /// Begins a probe; the estimate is `bandwidth`.
    pub(super) fn begin(&mut self, bandwidth: f64) {
        self.probe = Some(Probe {
            bandwidth,
            packets: 0.0,
            lost: 0.0,
        });
    }

    /// Notes the answered packets of a round, and how many were lost.
    pub(super) fn round(&mut self, packets: f64, lost: f64) {
        if let Some(probe) = &mut self.probe {
            probe.packets += packets;
            probe.lost += lost;
        }
    }

    /// Judges the last probe when its packets have been answered: it found more if the estimate rose
    /// by half of what it reached for, to new ground, and no queue overflowed. `most` is the largest
    /// rate so far, `by_chance` the share of random losses. Returns true if the next probe should
    /// follow at once.
    pub(super) fn judge(&mut self, bandwidth: f64, most: f64, by_chance: f64) -> bool {
        let Some(probe) = self.probe.take() else {
            self.found = 0;
            return false;
        };
        let enough = 1.0 + (self.gain() - 1.0) / 2.0;
        let has_risen = bandwidth >= enough * probe.bandwidth && bandwidth >= NEW_GROUND * most;
        let overflowed = probe.lost > probe.packets * (OVERFLOW.0 * by_chance + OVERFLOW.1);
        self.found = match has_risen && !overflowed {
            true => self.found + 1,
            false => 0,
        };
        self.gain() > PROBE_GAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_that_find_more_reach_further_until_one_does_not() {
        let (mut search, mut rate) = (Search::default(), 1e6);
        let mut follow = Vec::new();
        for _ in 0..5 {
            search.begin(rate);
            rate *= search.gain();
            search.round(100.0, 0.0);
            follow.push(search.judge(rate, rate, 0.0));
        }
        assert_eq!(follow, [false, true, true, true, true]);
        assert!(rate > 7e6, "{rate}");
        search.begin(rate);
        assert!(!search.judge(1.2 * rate, 1.2 * rate, 0.0));
        assert_eq!(search.gain(), PROBE_GAIN);
    }

    #[test]
    fn neither_losses_nor_what_was_had_before_count() {
        for (most, by_chance, lost, gain) in [
            (2.4e6, 0.0, 0.0, 1.5),
            (2.4e6, 0.0, 8.0, PROBE_GAIN),
            (2.4e6, 0.05, 8.0, 1.5),
            (4e6, 0.0, 0.0, PROBE_GAIN),
        ] {
            let mut search = Search::default();
            for rate in [2e6, 2.2e6] {
                search.begin(rate);
                search.round(100.0, lost);
                search.judge(1.1 * rate, most, by_chance);
            }
            assert_eq!(search.gain(), gain, "{most} {by_chance} {lost}");
        }
    }
}
