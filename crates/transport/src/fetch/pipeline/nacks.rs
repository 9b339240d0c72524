//! Nacks: which of them may pass, and when to ask again.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;
use whimbrel_ndn_packet::{InterestRef, NackReason};

use super::Pipeline;
use crate::congestion::Congestion;
use crate::fetch::event::{FetchEvent, SegmentFailure};
use crate::ledger::Status;
use crate::path::Path;

/// An Interest that is refused for congestion so often is not repeated at the pace of the round trips
/// any more, for which shrinking the window is no answer: the retries would be used up within
/// milliseconds.
const PATIENT_RETRIES: u32 = 4;
/// Maximum pause of retransmissions after Nacks for congestion with a fixed window, or Nacks while no
/// path leads to the content.
const MAX_PAUSE: Duration = Duration::from_secs(10);

impl Pipeline {
    /// Returns the reason of the last Nack, unless a Data or a timeout came after it.
    pub(in crate::fetch) const fn refusal(&self) -> Option<NackReason> {
        self.refusal
    }

    pub(in crate::fetch) fn handle_nack(
        &mut self,
        now: Time,
        reason: NackReason,
        interest: &InterestRef<'_>,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let number = self.template.segment_in(interest.name);
        // The nonce distinguishes a Nack for the last transmission from one for an earlier one.
        let current = number
            .and_then(|number| self.pending.get(&number))
            .filter(|entry| {
                entry.status == Status::InFlight
                    && interest.nonce == Some(entry.sent.nonce.to_be_bytes())
            })
            .map(|entry| entry.sent);
        let Some((number, sent)) = number.zip(current) else {
            self.stats.unexpected += 1;
            return;
        };
        let path = sent.path;
        self.stats.nacks += 1;
        self.refusal = Some(reason);
        match reason {
            // The other copy is in flight; if it is not, the timeout detects it.
            NackReason::Duplicate => {}
            NackReason::Congestion => {
                self.lose(number, true);
                if self.paths.get(path).is_some_and(Path::is_fixed) {
                    self.pause(now);
                } else if sent.retries >= PATIENT_RETRIES {
                    self.pause_for(now, sent.retries);
                }
                self.record_loss(now, path, number, Congestion::Loss, events);
                self.paths.with(path, |path, _| path.on_congested());
            }
            // Another path may lead to the content.
            _ if self.paths.has_other(path) || self.is_chosen(path) => {
                self.lose(number, true);
                self.paths.with(path, |path, _| path.on_refused());
            }
            // All paths are gone, and there was one: it may come back.
            _ if self.has_used_paths() && self.stats.segments > 0 => {
                self.lose(number, true);
                self.pause(now);
            }
            NackReason::NoRoute => match self.no_route.refused(now) {
                Some(next) => {
                    self.lose(number, false);
                    self.paused_until = self.paused_until.max(next);
                }
                None => self.give_up(number, SegmentFailure::Nack(reason)),
            },
            reason => self.give_up(number, SegmentFailure::Nack(reason)),
        }
        self.review_paths(now, events);
    }

    /// Pauses retransmissions, each time for longer until a Data arrives.
    fn pause(&mut self, now: Time) {
        self.pause_for(now, self.congestion_nacks);
        self.congestion_nacks += 1;
    }

    /// Pauses retransmissions for 1, 2, 4 ... ms, by the number of earlier refusals.
    fn pause_for(&mut self, now: Time, refusals: u32) {
        let pause = Duration::from_millis(1 << refusals.min(14)).min(MAX_PAUSE);
        self.paused_until = now + pause;
    }
}
