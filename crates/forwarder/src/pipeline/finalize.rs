//! The end of a PIT entry, eviction, timers, removal of a face.

use whimbrel_core::Time;

use super::Engine;
use crate::counters::DropReason;
use crate::face::FaceId;
use crate::forwarder::Forwarder;
use crate::strategy::Context;

/// The number of entries among which the one to evict is chosen.
const SAMPLE: usize = 8;

impl Forwarder {
    pub(crate) fn entries_due(&mut self, now: Time) {
        while let Some(slot) = self.engine.pit.pop_due(now) {
            self.engine.forget_gone_faces(slot);
            let Some(entry) = self.engine.pit.get_mut(slot) else {
                continue;
            };
            let ends = entry.expiry <= now;
            if !ends {
                entry.timer = Time::MAX;
            }
            let calls = !ends || !entry.satisfied;
            let strategy = self.strategies.effective(&mut self.engine, slot, None);
            if let Some(strategy) = self.strategies.get_mut(strategy).filter(|_| calls) {
                let mut context = Context::of_entry(&mut self.engine, now, slot);
                if ends {
                    strategy.before_expire(&mut context)
                } else {
                    strategy.on_timer(&mut context)
                }
            }
            if ends {
                self.engine.finalize(now, slot)
            } else {
                self.engine.end_or_arm(now, slot)
            }
        }
        self.engine.dead_nonces.look(now);
    }
}

impl Engine {
    /// After each change of an entry: ends it, or schedules its next deadline.
    #[inline]
    pub(crate) fn end_or_arm(&mut self, now: Time, slot: u32) {
        match self.pit.get(slot) {
            Some(entry) if entry.expiry <= now => self.finalize(now, slot),
            Some(_) => self.pit.arm(slot),
            None => {}
        }
    }

    /// Ends an entry, and remembers the nonces that may still loop.
    pub(crate) fn finalize(&mut self, now: Time, slot: u32) {
        let Some(entry) = self.pit.get(slot) else {
            return;
        };
        for record in &entry.out_records {
            if !entry.loop_is_answered {
                self.dead_nonces.add(now, entry.hash, record.nonce);
            }
            if let Some(face) = self.faces.get_mut(record.face) {
                face.counters.unsatisfied_interests += u64::from(!entry.satisfied);
            }
        }
        for record in &entry.in_records {
            if let Some(face) = self.faces.get_mut(record.face) {
                face.forget_in_record();
            }
        }
        if entry.satisfied {
            self.counters.satisfied += 1;
        } else {
            self.counters.unsatisfied += 1;
        }
        self.pit.remove(slot);
    }

    /// Makes room for one entry. Of a sample, evicts the one without downstreams, else one of the
    /// face with most pending Interests (a flood harms its sender), else the one that expires
    /// first.
    pub(crate) fn evict_one(&mut self, now: Time) {
        let sample = self.pit.sample(SAMPLE, &mut self.rng);
        let worth = |slot: u32| {
            let entry = self.pit.get(slot);
            let downstream = entry
                .into_iter()
                .flat_map(|entry| &entry.in_records)
                .find_map(|record| self.faces.get(record.face));
            let load = downstream.map_or(0, |face| face.pit_in_records);
            let expiry = entry.map_or(Time::ZERO, |entry| entry.expiry);
            (downstream.is_some(), core::cmp::Reverse(load), expiry)
        };
        if let Some(slot) = sample.iter().copied().min_by_key(|slot| worth(*slot)) {
            self.counters.drop(DropReason::PitEvicted);
            self.finalize(now, slot);
        }
    }

    /// Makes room for octets: of a sample, evicts the largest Interest.
    pub(crate) fn evict_largest(&mut self, now: Time) {
        let sample = self.pit.sample(SAMPLE, &mut self.rng);
        let largest = sample
            .iter()
            .copied()
            .max_by_key(|slot| self.pit.octets_of(*slot));
        if let Some(slot) = largest.filter(|slot| self.pit.octets_of(*slot) > 0) {
            self.counters.drop(DropReason::PitEvicted);
            self.finalize(now, slot);
        }
    }

    /// Removes the records of removed faces from an entry. Removing a face leaves them, because the
    /// PIT is too large to scan; face numbers are not reused. Call it before using an entry's
    /// records.
    #[inline]
    pub(crate) fn forget_gone_faces(&mut self, slot: u32) {
        let removals = self.faces.removals();
        if let Some(entry) = self.pit.get_mut(slot)
            && entry.removals != removals
        {
            let faces = &self.faces;
            let exists = |face: FaceId| faces.get(face).is_some();
            entry.removals = removals;
            entry.in_records.retain(|record| exists(record.face));
            entry.out_records.retain(|record| exists(record.face));
        }
    }
}
