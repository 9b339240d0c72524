//! The path MTU of a face, where a path may drop large frames silently: UDP.
//!
//! [`PathMtu`] decides; this part gives it evidence. An end asks the other one how many bytes have
//! arrived, in a small frame of its own (PathProbe), and probes a size with the same frame, padded.
//! Both fields are ignored by implementations that do not know them. Before a peer that does not
//! answer, [`Repeats`] are the evidence.
//!
//! Questions are sent only while large frames are unaccounted for: one a second, and one per round
//! trip while large frames seem to vanish.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{RttEstimator, SeededRng, Time};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{LpHeader, LpPacket, tlv, types};

use super::evidence::{Evidence, Mark};
use super::repeats::Repeats;
use super::stats::LinkStats;
use crate::path_mtu::{BASE, FLOOR, PathMtu};

/// Time from a large frame to the question about it, while nothing is suspicious.
const INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time to wait for an answer.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum time to wait for an answer before the next question.
const MAX_TIMEOUT: Duration = Duration::from_secs(8);
/// After this many questions in a row without an answer ...
const MAX_UNANSWERED: u32 = 6;
/// ... none is sent for this long.
const QUIET: Duration = Duration::from_secs(60);
/// Maximum of questions and probes whose answers are awaited, and of answers that are owed: a round
/// has at most 16 probes, and a question.
const MAX_PENDING: usize = 32;
/// Octets of a question's number, the first ones of the value of a PathProbe.
const NUMBER: usize = 4;
/// Octets of a PathAnswer: the number and the count of bytes.
const ANSWER: usize = NUMBER + 8;

/// A question or a probe that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u32,
    at: Time,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// How many bytes have arrived.
    Question(Mark),
    /// Whether a frame of this many bytes arrives.
    Probe(usize),
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct PathSearch {
    mtu: PathMtu,
    evidence: Evidence,
    /// The size that the owner knows.
    told: usize,
    rtt: RttEstimator,
    /// False until an inbound peer has shown that it understands more than plain packets.
    asks: bool,
    /// The peer has answered once.
    is_answered: bool,
    /// Large frames of the present size have arrived.
    is_proven: bool,
    repeats: Repeats,
    next_number: u32,
    pending: VecDeque<Asked>,
    /// The time of the next question.
    ask_at: Option<Time>,
    unanswered: u32,
    quiet_until: Time,
    /// A packet was cut because of the path since the last attempt to raise the size: an idle face
    /// does not probe.
    is_wanted: bool,
    /// Numbers of the peer's questions, and the bytes that had arrived before each.
    owed: VecDeque<(u32, u64)>,
    /// Received bytes of the peer's questions and probes, which do not count.
    probe_bytes: u64,
    // Empty between calls; kept for its memory.
    value: Vec<u8>,
}

impl PathSearch {
    /// Starts with frames of `limit` bytes.
    pub(crate) fn new(limit: usize, rng: &mut SeededRng) -> PathSearch {
        PathSearch {
            mtu: PathMtu::new(limit),
            evidence: Evidence::default(),
            told: limit,
            rtt: RttEstimator::new(Duration::from_millis(500), MIN_TIMEOUT, MAX_TIMEOUT),
            asks: true,
            is_answered: false,
            is_proven: false,
            repeats: Repeats::default(),
            // Unpredictable, so that no node off the path can answer.
            next_number: rng.next_word() as u32,
            pending: VecDeque::new(),
            ask_at: Some(Time::ZERO),
            unanswered: 0,
            quiet_until: Time::ZERO,
            is_wanted: false,
            owed: VecDeque::new(),
            probe_bytes: 0,
            value: Vec::new(),
        }
    }

    /// Returns the bytes of the largest frame that may be sent, except probes.
    pub(crate) fn size(&self) -> usize {
        match self.mtu.size() {
            size if self.repeats.is_hole() => size.min(BASE),
            size => size,
        }
    }

    /// Notes that `packet` is sent. Returns the bytes of the largest frame for it.
    pub(crate) fn size_for(&mut self, now: Time, packet: &[u8]) -> usize {
        let size = self.size();
        // Frames of the base size need no evidence, and a peer that answers gives better one.
        let is_free = self.is_answered || self.mtu.size() <= BASE;
        if !is_free && self.repeats.must_cut(now, packet) {
            return size.min(BASE);
        }
        self.size()
    }

    /// Takes note of [`PathSearch::size`]; returns true if it has changed since the last call.
    pub(crate) fn take_change(&mut self) -> bool {
        let size = self.size();
        core::mem::replace(&mut self.told, size) != size
    }

    /// Sets the limit of the driver.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        // A search that begins is due at once.
        self.mtu.set_limit(Time::ZERO, limit);
        self.evidence.clear_doubt();
        self.told = self.size();
    }

    /// Asks nothing until the peer asks, or [`PathSearch::allow_asking`] is called.
    pub(crate) fn wait_for_peer(&mut self) {
        self.asks = self.is_answered;
    }

    pub(crate) fn allow_asking(&mut self) {
        self.asks = true;
    }

    /// Notes that a packet was cut because of the frame size.
    pub(crate) fn want_more(&mut self) {
        self.is_wanted = true;
    }

    /// Notes that a frame of `len` bytes was sent that is no question and no probe.
    pub(crate) fn frame_sent(&mut self, now: Time, len: usize) {
        let is_large = self.mtu.is_large(len);
        self.evidence.frame_sent(len, is_large);
        if is_large && self.ask_at.is_none() && self.finds_more() && now >= self.quiet_until {
            self.ask_at = Some(now + self.interval());
        }
    }

    /// Returns the time from a large frame to the question about it.
    fn interval(&self) -> Duration {
        if self.is_proven {
            INTERVAL
        } else {
            Duration::ZERO
        }
    }

    /// Returns true if there is a smaller size to fall back to.
    fn finds_more(&self) -> bool {
        self.asks && self.mtu.limit() > FLOOR
    }

    /// Handles the fields of a received frame of `size` bytes; before it, `received` bytes had
    /// arrived. Returns false if it is no frame of this part.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        lp: &LpPacket<'_>,
        size: usize,
        received: u64,
    ) -> bool {
        if let Some(number) = lp.link.path_probe.and_then(|value| value.first_chunk()) {
            let arrived = received - self.probe_bytes;
            self.probe_bytes += size as u64;
            self.asks = true;
            if self.owed.len() < MAX_PENDING {
                self.owed.push_back((u32::from_be_bytes(*number), arrived));
            }
            return true;
        }
        let answer = lp.link.path_answer;
        if let Some((number, count)) = answer.and_then(|value| value.split_first_chunk())
            && let Some(count) = count.first_chunk()
        {
            let number = u32::from_be_bytes(*number);
            self.answered(now, number, u64::from_be_bytes(*count));
        }
        answer.is_some()
    }

    fn answered(&mut self, now: Time, number: u32, received: u64) {
        let found = self.pending.iter().position(|asked| asked.number == number);
        let Some(asked) = found.and_then(|place| self.pending.remove(place)) else {
            return;
        };
        let is_first = !core::mem::replace(&mut self.is_answered, true);
        if is_first {
            self.repeats = Repeats::default();
        }
        self.unanswered = 0;
        self.rtt.sample(now.since(asked.at));
        let mark = match asked.what {
            What::Probe(len) => {
                if len >= self.mtu.size() {
                    self.evidence.clear_doubt();
                    self.is_proven = true;
                }
                self.mtu.probe_arrived(now, len);
                return;
            }
            What::Question(mark) => mark,
        };
        // The first count is the base of the others.
        let doubted = !is_first && !self.evidence.is_complete();
        if self.evidence.answered(now, asked.at, mark, received) {
            self.evidence.clear_doubt();
            self.mtu.leave_size(now);
            self.is_proven = false;
        } else if doubted && !self.evidence.is_doubting() {
            self.is_proven = true;
        }
        self.ask_at = match self.evidence.is_complete() {
            true => None,
            false if self.evidence.is_doubting() => Some(now),
            false => Some(now + self.interval()),
        };
    }

    /// Appends an answer, a question or a probe if one is due. `packets_wait`: a frame follows.
    pub(crate) fn write(
        &mut self,
        now: Time,
        packets_wait: bool,
        stats: &mut LinkStats,
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some((number, count)) = self.owed.pop_front() {
            self.write_answer(number, count, out);
            return true;
        }
        if !self.finds_more() {
            return false;
        }
        let due = self.question_due(packets_wait);
        let asks = due.is_some_and(|at| at <= now);
        if asks && self.unanswered > 0 {
            self.evidence.repeat_checks(self.unanswered);
        }
        if let Some(len) = self.poll_probe(now) {
            stats.mtu_probes += 1;
            let written = self.write_probe(len, out);
            self.expect(now, What::Probe(written));
            return true;
        }
        // After the probes of a round, so that its answer accounts for them.
        asks && self.write_question(now, out)
    }

    /// Returns the size of a probe that must be sent now.
    fn poll_probe(&mut self, now: Time) -> Option<usize> {
        if self.evidence.must_check() {
            self.evidence.check_sent();
            return Some(self.mtu.size());
        }
        self.probe_due().filter(|at| *at <= now)?;
        let len = self.mtu.poll_probe(now, self.rtt.timeout())?;
        self.is_wanted = false;
        Some(len)
    }

    fn write_question(&mut self, now: Time, out: &mut Vec<u8>) -> bool {
        if self.unanswered >= MAX_UNANSWERED {
            (self.unanswered, self.ask_at) = (0, None);
            self.quiet_until = now + QUIET;
            self.evidence.clear_doubt();
            return false;
        }
        if self.unanswered > 0 && self.evidence.is_complete() {
            // There is no need to know until a large frame is sent.
            self.ask_at = None;
            return false;
        }
        let wait = self.rtt.timeout() * (1 << self.unanswered);
        self.ask_at = Some(now + wait.min(MAX_TIMEOUT));
        self.unanswered += 1;
        let mark = self.evidence.mark();
        self.write_probe(0, out);
        self.expect(now, What::Question(mark));
        true
    }

    /// Remembers the question that was written.
    fn expect(&mut self, now: Time, what: What) {
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.pending.push_back(Asked {
            number,
            at: now,
            what,
        });
    }

    /// Appends a PathProbe in a frame of about `len` bytes, not more unless it would be too short
    /// for its number. Returns its bytes.
    fn write_probe(&mut self, len: usize, out: &mut Vec<u8>) -> usize {
        let fits = |value: &usize| {
            let field = tlv::element_len(types::LP_PATH_PROBE, *value);
            tlv::element_len(types::LP_PACKET, field) <= len
        };
        // Types and lengths take at most ten octets.
        let room = (len.saturating_sub(10)..len).rev().find(fits);
        self.value.clear();
        self.value
            .extend_from_slice(&self.next_number.to_be_bytes());
        self.value.resize(room.unwrap_or(0).max(NUMBER), 0);
        let start = out.len();
        let link = LinkFields {
            path_probe: Some(&self.value),
            ..LinkFields::default()
        };
        lp::encode(out, &link, &LpHeader::default(), None);
        out.len() - start
    }

    fn write_answer(&mut self, number: u32, count: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let mut value = [0; ANSWER];
        let (first, rest) = value.split_at_mut(NUMBER);
        first.copy_from_slice(&number.to_be_bytes());
        rest.copy_from_slice(&count.to_be_bytes());
        let link = LinkFields {
            path_answer: Some(&value),
            ..LinkFields::default()
        };
        lp::encode(out, &link, &LpHeader::default(), None);
        // The peer counts it, unlike questions.
        self.evidence.frame_sent(out.len() - start, false);
    }

    /// Returns the time of the next probe.
    fn probe_due(&self) -> Option<Time> {
        if self.evidence.must_check() {
            return Some(Time::ZERO);
        }
        if self.mtu.is_resting() && !self.is_wanted {
            return None;
        }
        self.mtu.poll_timeout().map(|deadline| deadline.at)
    }

    /// Returns the time of the next call to [`PathSearch::write`].
    pub(crate) fn due(&self, packets_wait: bool) -> Option<Time> {
        if !self.owed.is_empty() {
            return Some(Time::ZERO);
        }
        if !self.finds_more() {
            return None;
        }
        let due = [self.question_due(packets_wait), self.probe_due()];
        due.into_iter().flatten().min()
    }

    /// Returns the time of the next question. The first one goes before the first packet.
    fn question_due(&self, packets_wait: bool) -> Option<Time> {
        let introduces = !self.is_answered && self.unanswered == 0;
        self.ask_at.filter(|_| packets_wait || !introduces)
    }
}
