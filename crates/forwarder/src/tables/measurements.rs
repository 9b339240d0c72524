//! What adaptive strategies know of faces, by FIB prefix.

use core::time::Duration;
use std::collections::VecDeque;

use smallvec::SmallVec;
use whimbrel_core::{RttEstimator, Time};
use whimbrel_ndn_packet::{Name, NameRef};

use crate::face::FaceId;
use crate::tables::name_key::NameHasher;
use crate::tables::prefix_map::PrefixMap;

/// What is known of one face for one prefix.
#[derive(Clone, Debug)]
pub(crate) struct FaceMeasurement {
    pub(crate) face: FaceId,
    pub(crate) rtt: RttEstimator,
    /// Interests in a row that were not answered in time.
    pub(crate) timeouts: u32,
    /// So many of them that the face counts as not working.
    pub(crate) failed: bool,
    used: Time,
}

/// What is known of one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    faces: SmallVec<[FaceMeasurement; 4]>,
    /// When another face than the best is to be tried; `None` before the first Interest.
    pub(crate) next_probe: Option<Time>,
    used: Time,
}

impl Measurement {
    pub(crate) fn face(&self, face: FaceId) -> Option<&FaceMeasurement> {
        self.faces.iter().find(|known| known.face == face)
    }
}

/// Round-trip times before the first sample, and what time-outs lie between.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Most faces of one prefix: who has more next hops than that measures those it uses.
const MAX_FACES: usize = 64;

/// Measurements of one strategy's prefixes. What is not used for their lifetime is forgotten; of
/// too many, the one that was made first.
#[derive(Clone, Debug)]
pub(crate) struct Measurements {
    prefixes: PrefixMap<Measurement>,
    /// Prefixes in the order in which they came, with the time to look at them again.
    queue: VecDeque<(Name, Time)>,
    lifetime: Duration,
    capacity: usize,
}

impl Measurements {
    pub(crate) fn new(hasher: NameHasher, lifetime: Duration, capacity: usize) -> Measurements {
        Measurements {
            prefixes: PrefixMap::new(hasher),
            queue: VecDeque::new(),
            lifetime,
            capacity: capacity.max(1),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.prefixes.len()
    }

    pub(crate) fn get(&self, prefix: NameRef<'_>) -> Option<&Measurement> {
        self.prefixes.get(prefix)
    }

    /// The measurement of a prefix, a new one if there is none.
    pub(crate) fn get_or_insert(
        &mut self,
        now: Time,
        prefix: NameRef<'_>,
    ) -> Option<&mut Measurement> {
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

    /// The measurement of a face for a prefix, a new one if there is none.
    pub(crate) fn face(
        &mut self,
        now: Time,
        prefix: NameRef<'_>,
        face: FaceId,
    ) -> Option<&mut FaceMeasurement> {
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
                let rtt = RttEstimator::new(INITIAL_TIMEOUT, LEAST_TIMEOUT, LONGEST_TIMEOUT);
                measurement.faces.push(FaceMeasurement {
                    face,
                    rtt,
                    timeouts: 0,
                    failed: false,
                    used: now,
                });
                measurement.faces.len() - 1
            }
        };
        let known = measurement.faces.get_mut(at)?;
        known.used = now;
        Some(known)
    }

    /// Looks at the oldest prefixes: those that were used since stay for another lifetime.
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

    pub(crate) fn forget_face(&mut self, face: FaceId) {
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

    fn measurements(capacity: usize) -> Measurements {
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
