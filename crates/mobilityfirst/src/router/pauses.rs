//! The pauses between look-ups of absent destinations: doubled with each look-up in vain, so that
//! destinations that stay away cost the name service little, and longer the more of them there are, so
//! that their number does not matter.

use core::time::Duration;

use whimbrel_core::{Guid, Recent, SeededRng, Time};

/// Bound of a pause. A destination that the name service pushes is not delayed by it.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Of all destinations together, one is looked up in this time on average. Those that come back are
/// pushed, ask, or attach; they do not wait for it.
const SPACING: Duration = Duration::from_millis(4);
/// Part of a pause that is drawn at random: destinations that went away together are not looked up
/// together for ever.
const JITTER: f64 = 0.25;
/// Maximum of destinations in memory. One that is forgotten too early begins with the first pause.
const MAX_DESTINATIONS: usize = 65_536;

/// The look-ups of one destination since it was last found.
#[derive(Clone, Copy, Debug)]
struct InVain {
    tries: u32,
    last: Time,
}

/// How often each destination of chunks was looked up in vain. Kept a while after the last chunk
/// for it has left the storage, because it may return there at once.
#[derive(Debug)]
pub(super) struct Pauses {
    first: Duration,
    in_vain: Recent<Guid, InVain>,
    rng: SeededRng,
}

impl Pauses {
    /// The first pause of a destination is `first`, which may be above [`MAX_PAUSE`].
    pub(super) fn new(first: Duration, rng: SeededRng) -> Pauses {
        Pauses {
            first,
            in_vain: Recent::new(MAX_DESTINATIONS),
            rng,
        }
    }

    /// Returns the pause before the next look-up of one of `all` destinations.
    pub(super) fn current(&self, now: Time, destination: &Guid, all: usize) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1 << self.tries(now, destination).min(31));
        let share = SPACING.saturating_mul(u32::try_from(all).unwrap_or(u32::MAX));
        doubled.min(self.max()).max(share)
    }

    fn max(&self) -> Duration {
        MAX_PAUSE.max(self.first)
    }

    fn tries(&self, now: Time, destination: &Guid) -> u32 {
        let lately = |known: &&InVain| now.since(known.last) <= self.max() * 2;
        self.in_vain
            .get(destination)
            .filter(lately)
            .map_or(0, |known| known.tries)
    }

    /// The pause after a look-up of one of `all` destinations that begins now. The pauses after it are
    /// longer, unless [`Pauses::forget`] follows.
    pub(super) fn begin(&mut self, now: Time, destination: Guid, all: usize) -> Duration {
        let pause = self.current(now, &destination, all);
        let tries = self.tries(now, &destination).saturating_add(1);
        self.in_vain
            .insert(destination, InVain { tries, last: now });
        pause.mul_f64(1.0 - JITTER * self.rng.unit())
    }

    /// The destination has been found.
    pub(super) fn forget(&mut self, destination: &Guid) {
        self.in_vain.remove(destination);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares with a model that counts how often each was begun since it was forgotten.
        #[test]
        fn a_pause_doubles_up_to_its_bound_for_each_destination_alone(
            first_ms in 1u64..200_000,
            steps in prop::collection::vec((0u8..3, 0u8..5, 0u64..200), 0..120),
            all in prop_oneof![Just(1usize), 0usize..200_000],
        ) {
            let first = Duration::from_millis(first_ms);
            let mut pauses = Pauses::new(first, SeededRng::new(first_ms));
            let mut model: BTreeMap<Guid, (u128, u64)> = BTreeMap::new();
            let (mut now, max) = (0, 60_000.max(first_ms));
            for (destination, step, seconds) in steps {
                now += seconds * 1000;
                let destination = Guid([destination + 1; 32]);
                if step == 0 {
                    pauses.forget(&destination);
                    model.remove(&destination);
                    continue;
                }
                let (begun, last) = model.entry(destination).or_insert((0, now));
                if now - *last > 2 * max {
                    *begun = 0;
                }
                let doubled = (u128::from(first_ms) << (*begun).min(40)).min(max.into());
                let most = doubled.max(all as u128 * 4);
                let at = Time::from_millis(now);
                prop_assert_eq!(pauses.current(at, &destination, all).as_millis(), most);
                let pause = pauses.begin(at, destination, all).as_micros();
                prop_assert!(pause <= most * 1000 && pause >= most * 749, "{} of {}", pause, most);
                (*begun, *last) = (*begun + 1, now);
            }
        }
    }

    #[test]
    fn the_number_of_destinations_is_bounded() {
        let mut pauses = Pauses::new(Duration::from_secs(1), SeededRng::new(1));
        for number in 0..3 * MAX_DESTINATIONS as u64 {
            let mut name = [1; 32];
            name[..8].copy_from_slice(&number.to_be_bytes());
            pauses.begin(Time::ZERO, Guid(name), 1);
            assert!(pauses.in_vain.len() <= MAX_DESTINATIONS);
        }
    }
}
