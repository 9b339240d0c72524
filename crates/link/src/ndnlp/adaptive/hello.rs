//! The agreement of two ends on the adaptive profile.
//!
//! An end announces itself in a header field that other implementations ignore. Once the peer's
//! announcement has echoed its nonce, it knows that the peer supports compact frames and from which
//! number on. An end that restarts has a new nonce, which ends the agreement on the other side too.

use core::time::Duration;

use whimbrel_core::{SeededRng, Time};

/// Octets of the announcement, the value of the header field AdaptiveHello.
pub(crate) const HELLO_LEN: usize = 15;
const VERSION: u8 = 1;

/// The interval of unanswered announcements doubles, up to this if the peer has answered before ...
const MAX_INTERVAL_KNOWN: Duration = Duration::from_secs(1);
/// ... or up to this if not.
const MAX_INTERVAL_UNKNOWN: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Minimum interval between answers.
const ANSWER_GAP: Duration = Duration::from_millis(5);

/// The value of the announcement.
///
/// ```text
/// version (1) | flags (1) | longest delay of a report, ms (1) | nonce (4) | echoed nonce or 0 (4) | first number (4)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The sender has not seen its own nonce echoed (bit 0 of the flags).
    pub(crate) wants_answer: bool,
    /// Maximum delay of a report, in ms.
    pub(crate) report_delay_ms: u8,
    pub(crate) nonce: u32,
    pub(crate) echo: u32,
    /// The low 32 bits of the number of the sender's next frame.
    pub(crate) first_number: u32,
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO_LEN] {
        let [n0, n1, n2, n3] = self.nonce.to_be_bytes();
        let [e0, e1, e2, e3] = self.echo.to_be_bytes();
        let [f0, f1, f2, f3] = self.first_number.to_be_bytes();
        let flags = u8::from(self.wants_answer);
        [
            VERSION,
            flags,
            self.report_delay_ms,
            n0,
            n1,
            n2,
            n3,
            e0,
            e1,
            e2,
            e3,
            f0,
            f1,
            f2,
            f3,
        ]
    }

    /// Decodes an announcement. Returns `None` for another version, a wrong size or a zero nonce.
    /// Octets that a later version may append are ignored.
    pub(crate) fn decode(value: &[u8]) -> Option<Hello> {
        let (&[VERSION, flags, report_delay_ms], rest) = value.split_first_chunk::<3>()? else {
            return None;
        };
        let (nonce, rest) = rest.split_first_chunk::<4>()?;
        let (echo, rest) = rest.split_first_chunk::<4>()?;
        let first_number = rest.first_chunk::<4>()?;
        let nonce = u32::from_be_bytes(*nonce);
        (nonce != 0).then_some(Hello {
            wants_answer: flags & 1 == 1,
            report_delay_ms,
            nonce,
            echo: u32::from_be_bytes(*echo),
            first_number: u32::from_be_bytes(*first_number),
        })
    }
}

/// The effect of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// The peer restarted: its numbers start at the announced one, and its earlier acknowledgements
    /// are void.
    pub(crate) new_peer: bool,
    /// The peer has learnt this end's nonce just now.
    pub(crate) agreed: bool,
}

/// The state of the agreement.
#[derive(Debug)]
pub(crate) struct Handshake {
    nonce: u32,
    peer: Option<Hello>,
    agreed: bool,
    // The time at which an answer must be sent.
    answer_due: Option<Time>,
    next_announcement: Time,
    wait: Duration,
    last_sent: Option<Time>,
}

impl Handshake {
    pub(crate) fn new(rng: &mut SeededRng) -> Handshake {
        Handshake {
            nonce: fresh_nonce(rng),
            peer: None,
            agreed: false,
            answer_due: None,
            next_announcement: Time::ZERO,
            wait: FIRST_WAIT,
            last_sent: None,
        }
    }

    /// Returns true if the peer supports compact frames.
    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed
    }

    pub(crate) fn handle(&mut self, now: Time, hello: Hello) -> Change {
        let new_peer = self.peer.is_none_or(|peer| peer.nonce != hello.nonce);
        // A peer keeps our nonce as long as its own, so an announcement without our nonce is late.
        let echoed = hello.echo == self.nonce || (self.agreed && !new_peer);
        let agreed = echoed && (new_peer || !self.agreed);
        if new_peer || !echoed {
            self.next_announcement = self.next_announcement.min(now);
            self.wait = FIRST_WAIT;
        }
        // Without our echo, the peer has restarted or has not received our announcement yet.
        self.agreed = echoed;
        self.peer = Some(hello);
        if hello.wants_answer || agreed {
            let earliest = self.last_sent.map_or(now, |sent| sent + ANSWER_GAP);
            self.answer_due.get_or_insert(now.max(earliest));
        }
        Change { new_peer, agreed }
    }

    /// Handles a compact frame without an agreement: the peer has not noticed that this end
    /// restarted, or its answer was lost.
    pub(crate) fn handle_stranger(&mut self, now: Time) {
        let gap = if self.peer.is_some() {
            ANSWER_GAP * 2
        } else {
            FIRST_WAIT
        };
        let earliest = self.last_sent.map_or(now, |sent| sent + gap);
        self.answer_due.get_or_insert(now.max(earliest));
    }

    /// Starts the agreement anew, because the peer is gone or was replaced.
    pub(crate) fn start_over(&mut self, now: Time, rng: &mut SeededRng) {
        self.nonce = fresh_nonce(rng);
        self.agreed = false;
        self.answer_due = None;
        self.next_announcement = now;
        self.wait = FIRST_WAIT;
    }

    /// Returns the time for a frame that carries only the announcement.
    pub(crate) fn answer_due(&self) -> Option<Time> {
        self.answer_due
    }

    /// Returns true if the next frame with room should carry the announcement.
    pub(crate) fn wants_to_travel(&self, now: Time) -> bool {
        self.answer_due.is_some() || (!self.agreed && now >= self.next_announcement)
    }

    /// Returns the announcement to be sent now.
    pub(crate) fn announce(
        &mut self,
        now: Time,
        report_delay: Duration,
        first_number: u32,
    ) -> Hello {
        self.answer_due = None;
        self.last_sent = Some(now);
        if !self.agreed {
            self.next_announcement = now + self.wait;
            let slowest = if self.peer.is_some() {
                MAX_INTERVAL_KNOWN
            } else {
                MAX_INTERVAL_UNKNOWN
            };
            self.wait = (self.wait * 2).min(slowest);
        }
        Hello {
            wants_answer: !self.agreed,
            report_delay_ms: u8::try_from(report_delay.as_millis()).unwrap_or(u8::MAX),
            nonce: self.nonce,
            echo: self.peer.map_or(0, |peer| peer.nonce),
            first_number,
        }
    }
}

/// Returns a random nonce other than 0, which means "none".
fn fresh_nonce(rng: &mut SeededRng) -> u32 {
    rng.next_word() as u32 | 1
}
