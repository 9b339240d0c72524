//! Seeded randomness: the only kind that a machine may use.

use core::convert::Infallible;

use rand::{SeedableRng, TryRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A deterministic generator. Fast and well distributed; **not** for keys: the program around the
/// machines draws those from the operating system.
#[derive(Clone, Debug)]
pub struct SeededRng(Xoshiro256PlusPlus);

impl SeededRng {
    /// Returns the generator of `seed`.
    pub fn new(seed: u64) -> SeededRng {
        SeededRng(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns the generator for one purpose in a run: streams with different labels are
    /// independent, so that an additional draw in one part of a scenario leaves every other part
    /// unchanged.
    pub fn stream(seed: u64, label: &str) -> SeededRng {
        use core::hash::Hasher;
        let mut hasher = siphasher::sip::SipHasher13::new_with_keys(seed, 0x5748_494d_4252_454c);
        hasher.write(label.as_bytes());
        SeededRng::new(hasher.finish())
    }

    /// True with `probability` (0 to 1; never for anything below, always for anything above).
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0. The bias is below 2^-32 for the small bounds in
    /// use.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_word()) * u128::from(bound)) >> 64) as u64
    }

    /// 64 random bits.
    pub fn next_word(&mut self) -> u64 {
        match self.0.try_next_u64() {
            Ok(word) => word,
            Err(never) => match never {},
        }
    }
}

impl TryRng for SeededRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, destination: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_label_give_the_same_stream() {
        let draw = |seed, label| {
            let mut rng = SeededRng::stream(seed, label);
            [rng.next_word(), rng.next_word()]
        };
        assert_eq!(draw(1, "loss"), draw(1, "loss"));
        assert_ne!(draw(1, "loss"), draw(2, "loss"));
        assert_ne!(draw(1, "loss"), draw(1, "jitter"));
    }

    #[test]
    fn chance_is_about_right_and_exact_at_the_ends() {
        let mut rng = SeededRng::new(7);
        let hits = (0..100_000).filter(|_| rng.chance(0.01)).count();
        assert!((850..1150).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| rng.chance(0.0)));
        assert!((0..1000).all(|_| rng.chance(1.0)));
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert_eq!(rng.below(0), 0);
    }
}
