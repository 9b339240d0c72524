//! Which segment a face asks for next: lost ones first, then the next in order.

use whimbrel_core::{SeededRng, Time};

use super::Pipeline;
use crate::application::{FaceNumber, Outgoing};
use crate::fetch::event::SegmentFailure;
use crate::ledger::{Sent, Status};
use crate::path::{Path, PathId};

impl Pipeline {
    /// The next Interest to send on `face`.
    pub(in crate::fetch) fn poll_interest(
        &mut self,
        now: Time,
        rng: &mut SeededRng,
        paused: bool,
        face: FaceNumber,
    ) -> Option<Outgoing> {
        if self.failure.is_some() {
            return None;
        }
        // While no route leads there, one Interest at a time finds out whether one is back.
        let in_flight = self.pending.in_flight() > 0;
        if self.no_route.is_waiting() && (in_flight || now < self.paused_until) {
            return None;
        }
        self.paths.release(now);
        let sends =
            |path: &Path| path.face() == face && self.paths.has_room(path) && !path.is_probing();
        let best = match self.due_probe(now, face) {
            Some(probe) if self.may_send_next() && !paused => Some(probe),
            _ => self.paths.best(sends).map(Path::id),
        };
        let best = best?;
        let nonce = rng.next_word() as u32;
        self.rescue_last();
        let probes = self.paths.get(best).is_some_and(Path::is_probing);
        while now >= self.paused_until
            && !probes
            && let Some((path, number)) = self.next_lost(face)
        {
            let (status, retries) = self
                .pending
                .get(&number)
                .map_or((Status::InFlight, 0), |entry| {
                    (entry.status, entry.sent.retries)
                });
            let counted = status != Status::Lost { counted: false };
            if counted && self.retries.is_some_and(|limit| retries >= limit) {
                let silence = SegmentFailure::NoAnswer(retries);
                let failure = self.refusal.map_or(silence, SegmentFailure::Nack);
                self.give_up(number, failure);
                if self.failure.is_some() {
                    return None;
                }
                self.pending.take(&number);
                continue;
            }
            self.pending.send_again(&number, now, path, nonce, None);
            self.stats.retransmissions += 1;
            return Some(self.interest(number, nonce, path, false));
        }
        if paused || !self.may_send_next() {
            return None;
        }
        if self.stats.interests == 0 {
            (self.started_at, self.last_data_at) = (now, now);
        }
        if probes {
            self.probed(now);
        }
        let number = self.segments.ask_next();
        self.pending
            .send(number, Sent::first(now, best, nonce, None), ());
        Some(self.interest(number, nonce, best, true))
    }

    /// Returns a segment to retransmit on a path of `face`, and that path.
    fn next_lost(&self, face: FaceNumber) -> Option<(PathId, u64)> {
        if self.pending.len() == self.pending.in_flight() {
            return None;
        }
        let sends = |path: &Path| {
            path.face() == face && self.paths.has_room(path) && self.first_lost_for(path).is_some()
        };
        let path = self.paths.best(sends)?;
        Some((path.id(), self.first_lost_for(path)?))
    }

    /// Lost segments are retransmitted on their own path ([PTP §5.C.1]), unless it is down or
    /// failing.
    fn first_lost_for(&self, path: &Path) -> Option<u64> {
        let gone =
            |path: &Path| !path.is_up() || path.is_probing() || self.paths.is_abandoned(path);
        let others = self.paths.iter().filter(|other| other.id() != path.id());
        if gone(path) {
            return None;
        }
        core::iter::once(path)
            .chain(others.filter(|other| gone(other)))
            .find_map(|path| self.pending.first_lost(path.id()))
            .map(|(number, _)| *number)
    }

    /// When there are no new segments, Interests that probe an abandoned path move to another one.
    fn rescue_last(&mut self) {
        let next = self.segments.next();
        if self.paths.len() == 1 || self.last.is_none_or(|last| next <= last.number) {
            return;
        }
        for id in self.paths.ids() {
            while self
                .paths
                .get(id)
                .is_some_and(|path| self.paths.is_abandoned(path))
                && let Some(number) = self.pending.oldest(id).map(|(number, _)| *number)
            {
                self.lose(number, false);
            }
        }
    }

    fn interest(&mut self, number: u64, nonce: u32, path: PathId, first: bool) -> Outgoing {
        self.stats.interests += 1;
        self.paths.on_sent(path, number, first);
        let header = self.paths.get(path).and_then(Path::header).cloned();
        (self.template.interest(number, nonce), header.map(Box::new))
    }

    pub(super) fn may_send_next(&self) -> bool {
        let next = self.segments.next();
        let bytes = self.segments.buffered_bytes()
            + (self.pending.len() + 1).saturating_mul(self.typical_size);
        self.missing.is_none()
            && self.last.is_none_or(|last| next <= last.number)
            && next < u64::MAX
            && self.segments.len() < self.max_segments
            && (bytes <= self.max_bytes || self.segments.len() == 0)
    }
}
