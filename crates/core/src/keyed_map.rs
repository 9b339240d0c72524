//! A hash map for keys that an attacker may choose.

use core::hash::{BuildHasher, Hasher};

use siphasher::sip::SipHasher13;

use crate::SeededRng;

/// A hash map keyed by a secret, so that an attacker cannot choose keys that collide.
///
/// Never iterate over it where order could show: two runs with the same seed agree, but another
/// seed gives another order.
pub type KeyedMap<K, V> = hashbrown::HashMap<K, V, KeyedState>;

/// Returns an empty [`KeyedMap`] with a fresh secret from `rng`.
pub fn keyed_map<K, V>(rng: &mut SeededRng) -> KeyedMap<K, V> {
    KeyedMap::with_hasher(KeyedState::new(rng))
}

/// The secret of one [`KeyedMap`].
#[derive(Clone, Copy)]
pub struct KeyedState {
    keys: (u64, u64),
}

impl KeyedState {
    /// Returns a fresh secret from `rng`, for hash tables other than [`KeyedMap`].
    pub fn new(rng: &mut SeededRng) -> KeyedState {
        KeyedState {
            keys: (rng.next_word(), rng.next_word()),
        }
    }
}

impl KeyedState {
    /// Returns a secret for another purpose, from which this one cannot be computed. Unlike
    /// [`KeyedState::new`], it leaves the generator as it is.
    pub fn derive(&self, purpose: &str) -> KeyedState {
        let part = |half: u8| {
            let mut hasher = self.build_hasher();
            hasher.write(&[half]);
            hasher.write(purpose.as_bytes());
            hasher.finish()
        };
        KeyedState {
            keys: (part(0), part(1)),
        }
    }
}

impl core::fmt::Debug for KeyedState {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedState(..)")
    }
}

impl BuildHasher for KeyedState {
    type Hasher = KeyedHasher;
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(SipHasher13::new_with_keys(self.keys.0, self.keys.1))
    }
}

/// SipHash-1-3 with a map's secret.
#[derive(Clone)]
pub struct KeyedHasher(SipHasher13);

impl Hasher for KeyedHasher {
    fn finish(&self) -> u64 {
        self.0.finish()
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_different_secrets_hash_differently() {
        let mut rng = SeededRng::new(1);
        let (a, b) = (
            keyed_map::<u64, ()>(&mut rng),
            keyed_map::<u64, ()>(&mut rng),
        );
        assert_ne!(a.hasher().hash_one(1u64), b.hasher().hash_one(1u64));
        assert_eq!(a.hasher().hash_one(1u64), a.hasher().hash_one(1u64));
    }

    #[test]
    fn a_derived_secret_depends_on_the_purpose_and_on_the_first_one() {
        let mut rng = SeededRng::new(1);
        let (a, b) = (KeyedState::new(&mut rng), KeyedState::new(&mut rng));
        let hashes =
            [a, a.derive("x"), a.derive("y"), b.derive("x")].map(|state| state.hash_one(1u64));
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash), "{hashes:?}");
        }
        assert_eq!(a.derive("x").hash_one(1u64), hashes[1]);
    }
}
