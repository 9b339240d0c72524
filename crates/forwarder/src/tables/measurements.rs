//! Measurements of faces by adaptive strategies, by FIB prefix. What is measured is the strategy's
//! own type.

use core::time::Duration;
use std::collections::VecDeque;

use smallvec::SmallVec;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{Name, NameRef};

use crate::face::FaceId;
use crate::tables::name_key::NameHasher;
use crate::tables::prefix_map::PrefixMap;

/// What a strategy has measured of one face for one prefix.
#[derive(Clone, Debug)]
struct FaceMeasurement<T> {
    face: FaceId,
    measured: T,
    used: Time,
}

/// The measurements of one prefix.
#[derive(Clone, Debug)]
pub struct Measurement<T> {
    faces: SmallVec<[FaceMeasurement<T>; 4]>,
    /// When to try a face other than the best; `None` before the first Interest.
    pub next_probe: Option<Time>,
    used: Time,
}

impl<T> Measurement<T> {
    /// What was measured of a face.
    pub fn face(&self, face: FaceId) -> Option<&T> {
        let known = self.faces.iter().find(|known| known.face == face)?;
        Some(&known.measured)
    }

    /// All measured faces.
    pub fn faces_mut(&mut self) -> impl Iterator<Item = (FaceId, &mut T)> {
        let faces = self.faces.iter_mut();
        faces.map(|known| (known.face, &mut known.measured))
    }
}

/// Maximum of measured faces per prefix: with more next hops, only those in use are measured.
const MAX_FACES: usize = 64;

/// Measurements of one strategy's prefixes. Unused ones expire after their lifetime; beyond the
/// capacity, the oldest is evicted.
#[derive(Clone, Debug)]
pub struct Measurements<T> {
    prefixes: PrefixMap<Measurement<T>>,
    /// Prefixes in the order of insertion, with the time to check them again.
    queue: VecDeque<(Name, Time)>,
    lifetime: Duration,
    capacity: usize,
}

impl<T: Default> Measurements<T> {
    pub(crate) fn new(hasher: NameHasher, lifetime: Duration, capacity: usize) -> Measurements<T> {
        Measurements {
            prefixes: PrefixMap::new(hasher),
            queue: VecDeque::new(),
            lifetime,
            capacity: capacity.max(1),
        }
    }

    /// Returns true if nothing is measured.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of measured prefixes.
    pub const fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Returns the measurements of a prefix.
    pub fn get(&self, prefix: NameRef<'_>) -> Option<&Measurement<T>> {
        self.prefixes.get(prefix)
    }

    /// Returns the measurements of a prefix, new ones if it has none.
    pub fn get_or_insert(&mut self, now: Time, prefix: NameRef<'_>) -> Option<&mut Measurement<T>> {
        self.expire(now);
        if self.prefixes.get(prefix).is_none() {
            while self.prefixes.len() >= self.capacity {
                let (oldest, _) = self.queue.pop_front()?;
                self.prefixes.remove(oldest.as_ref());
            }
            self.queue
                .push_back((prefix.to_name(), now + self.lifetime));
        }
        let fresh = || Measurement {
            faces: SmallVec::new(),
            next_probe: None,
            used: now,
        };
        let measurement = self.prefixes.get_or_insert_with(prefix, fresh)?;
        measurement.used = now;
        Some(measurement)
    }

    /// Returns the measurements of a face for a prefix, new ones if it has none.
    pub fn face(&mut self, now: Time, prefix: NameRef<'_>, face: FaceId) -> Option<&mut T> {
        let lifetime = self.lifetime;
        let measurement = self.get_or_insert(now, prefix)?;
        measurement
            .faces
            .retain(|known| now.since(known.used) <= lifetime);
        let at = match measurement
            .faces
            .iter()
            .position(|known| known.face == face)
        {
            Some(at) => at,
            None if measurement.faces.len() >= MAX_FACES => return None,
            None => {
                measurement.faces.push(FaceMeasurement {
                    face,
                    measured: T::default(),
                    used: now,
                });
                measurement.faces.len() - 1
            }
        };
        let known = measurement.faces.get_mut(at)?;
        known.used = now;
        Some(&mut known.measured)
    }

    /// Checks the oldest prefixes: those used since are kept for another lifetime.
    fn expire(&mut self, now: Time) {
        while self.queue.front().is_some_and(|(_, at)| *at <= now) {
            let Some((prefix, _)) = self.queue.pop_front() else {
                return;
            };
            let Some(used) = self.prefixes.get(prefix.as_ref()).map(|known| known.used) else {
                continue;
            };
            if now.since(used) < self.lifetime {
                self.queue.push_back((prefix, used + self.lifetime));
            } else {
                self.prefixes.remove(prefix.as_ref());
            }
        }
    }

    /// Forgets a face that was removed.
    pub fn forget_face(&mut self, face: FaceId) {
        self.prefixes.retain(|measurement| {
            measurement.faces.retain(|known| known.face != face);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_core::SeededRng;

    use super::*;

    fn measurements(capacity: usize) -> Measurements<u32> {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        Measurements::new(hasher, Duration::from_secs(300), capacity)
    }

    fn prefix(number: u32) -> Name {
        Name::root().child_generic(&number.to_be_bytes())
    }

    #[test]
    fn they_are_bounded_and_what_is_not_used_is_forgotten() {
        let mut known = measurements(10);
        for number in 0..100 {
            known
                .face(Time::ZERO, prefix(number).as_ref(), FaceId(256))
                .unwrap();
            assert!(known.len() <= 10 && known.queue.len() <= 10);
        }
        let later = Time::from_secs(200);
        known.face(later, prefix(99).as_ref(), FaceId(257)).unwrap();
        known
            .face(Time::from_secs(301), prefix(99).as_ref(), FaceId(257))
            .unwrap();
        assert_eq!(known.len(), 1);
        let one = known.get(prefix(99).as_ref()).unwrap();
        assert!(one.face(FaceId(256)).is_none() && one.face(FaceId(257)).is_some());
        known.forget_face(FaceId(257));
        assert!(
            known
                .get(prefix(99).as_ref())
                .unwrap()
                .face(FaceId(257))
                .is_none()
        );
    }
}
