//! Conclusions about large frames from a peer's counts of bytes.
//!
//! A count tells how many bytes are missing, not of which frames; frames of a face vary in size,
//! and a path may take some of them. So missing bytes only raise a doubt, and probes of the largest
//! size decide it: one that arrives ends it. With every seventh frame lost in either direction,
//! none of [`HOLE_PROBES`] is answered by chance once in 10^8 doubts.

use whimbrel_core::Time;

/// Probes of the present size without an answer that make a black hole, ...
const HOLE_PROBES: u32 = 15;
/// ... while in this many rounds a later small frame was answered.
const HOLE_ROUNDS: u32 = 3;
/// Where some bytes always go missing, a doubt is raised once in this many large frames. If no large
/// frame arrives at all, it is raised at once.
const DOUBT_FRAMES: u64 = 32;

/// The totals of sent frames at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    bytes: u64,
    large_frames: u64,
    large_bytes: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    sent: Mark,
    /// The mark of the last answer, and the bytes that were missing then.
    last: Option<(Mark, i64)>,
    /// Large frames that the answers cover, and those at the last doubt.
    covered: u64,
    doubted_at: u64,
    /// Probes that must be sent now, and those sent in vain.
    checks: u32,
    in_vain: u32,
    /// The probes of this round, and how often they were sent.
    batch: u32,
    attempts: u32,
    /// Answers since the doubt, and the time of the last one.
    rounds: u32,
    round_from: Time,
}

impl Evidence {
    /// Notes that a frame was sent that is no question and no probe.
    pub(crate) fn frame_sent(&mut self, len: usize, is_large: bool) {
        self.sent.bytes += len as u64;
        if is_large {
            self.sent.large_frames += 1;
            self.sent.large_bytes += len as u64;
        }
    }

    /// Returns a mark to keep with a question that is sent now.
    pub(crate) fn mark(&self) -> Mark {
        self.sent
    }

    /// Returns true if answers cover all large frames.
    pub(crate) fn is_complete(&self) -> bool {
        self.sent.large_frames == self.covered && !self.is_doubting()
    }

    /// Returns true while it is open whether frames of the present size arrive.
    pub(crate) fn is_doubting(&self) -> bool {
        self.checks > 0 || self.in_vain > 0
    }

    /// Returns true if a probe of the present size must be sent.
    pub(crate) fn must_check(&self) -> bool {
        self.checks > 0
    }

    /// Notes that a probe of the present size is sent.
    pub(crate) fn check_sent(&mut self) {
        self.checks = self.checks.saturating_sub(1);
        self.in_vain += 1;
    }

    /// Sends the probes of this round again before question number `attempt` of the round: the
    /// question after them was lost too, so that they prove nothing.
    pub(crate) fn repeat_checks(&mut self, attempt: u32) {
        if self.is_doubting() && self.checks == 0 && attempt > self.attempts {
            self.attempts = attempt;
            self.checks = self.batch;
            self.in_vain = self.in_vain.saturating_sub(self.batch);
        }
    }

    fn check(&mut self, now: Time, probes: u32) {
        (self.batch, self.checks, self.attempts) = (probes, probes, 0);
        self.round_from = now;
    }

    /// Ends the doubt: a frame of the present size has arrived, or there is another size.
    pub(crate) fn clear_doubt(&mut self) {
        (self.checks, self.in_vain, self.rounds) = (0, 0, 0);
    }

    /// Handles the answer to a question that was sent at `sent_at` with this `mark`: `received`
    /// bytes had arrived then. Returns true if frames of the present size do not arrive.
    pub(crate) fn answered(&mut self, now: Time, sent_at: Time, mark: Mark, received: u64) -> bool {
        // The peer may claim anything.
        let missing = mark.bytes.wrapping_sub(received) as i64;
        let last = self.last.replace((mark, missing));
        if self.is_doubting() {
            // A question from before the probes says nothing about them.
            if sent_at >= self.round_from && self.checks == 0 {
                self.rounds += 1;
                if self.in_vain >= HOLE_PROBES && self.rounds >= HOLE_ROUNDS {
                    return true;
                }
                self.check(now, self.in_vain + 1);
            }
            return false;
        }
        if mark.large_frames <= self.covered {
            return false;
        }
        self.covered = mark.large_frames;
        let (is_missing, is_all) = match last {
            Some((before, known)) => {
                let lost = missing.saturating_sub(known);
                let large = mark.large_bytes.saturating_sub(before.large_bytes);
                (lost > 0, lost >= i64::try_from(large).unwrap_or(i64::MAX))
            }
            // The first count says nothing about the frames before it.
            None => (true, true),
        };
        if is_missing && (is_all || mark.large_frames - self.doubted_at >= DOUBT_FRAMES) {
            self.doubted_at = mark.large_frames;
            self.check(now, 1);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends the probes that must be sent. Returns their number.
    fn send_checks(evidence: &mut Evidence) -> u32 {
        let before = evidence.in_vain;
        while evidence.must_check() {
            evidence.check_sent();
        }
        evidence.in_vain - before
    }

    /// Returns the probes per round until frames of the present size are found not to arrive; each
    /// round's first `lost` questions are lost.
    fn rounds(lost: u32) -> Vec<u32> {
        let mut evidence = Evidence::default();
        evidence.answered(Time::ZERO, Time::ZERO, evidence.mark(), 0);
        evidence.frame_sent(1_400, true);
        let mut sent = Vec::new();
        for second in 1..100 {
            let now = Time::from_secs(second);
            if evidence.is_doubting() {
                sent.push(send_checks(&mut evidence));
                for attempt in 1..=lost {
                    evidence.repeat_checks(attempt);
                    assert!(evidence.must_check());
                    send_checks(&mut evidence);
                }
            }
            if evidence.answered(now, now, evidence.mark(), 0) {
                return sent;
            }
        }
        panic!("nothing is found");
    }

    #[test]
    fn a_black_hole_is_found_after_four_rounds_of_probes() {
        assert_eq!(rounds(0), [1, 2, 4, 8]);
    }

    #[test]
    fn probes_that_are_lost_with_their_question_are_repeated_and_prove_nothing() {
        assert_eq!(rounds(3), [1, 2, 4, 8]);
    }
}
