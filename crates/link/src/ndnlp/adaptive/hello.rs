//! How two ends agree on the adaptive profile.
//!
//! An end announces itself by a header field that who does not know it ignores. Once the peer's
//! announcement has echoed its nonce, it knows that the peer understands compact frames and from
//! which number on. An end that starts anew has another nonce, which ends the agreement on the
//! other side too.

use core::time::Duration;

use whimbrel_core::{SeededRng, Time};

/// Octets of the announcement, the value of the header field AdaptiveHello.
pub(crate) const HELLO_LEN: usize = 15;
const VERSION: u8 = 1;

/// After an announcement without an answer, the next one waits twice as long, at most so long if
/// the peer has answered before ...
const SLOWEST_KNOWN: Duration = Duration::from_secs(1);
/// ... or so long if not.
const SLOWEST_UNKNOWN: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// An answer waits at least so long after the last one.
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
    /// A report never waits longer, in ms.
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

    /// `None` for another version, a wrong size or no nonce. Octets that a later version may append
    /// are ignored.
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

/// What an announcement changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// The peer began anew: its numbers start at the one it said, and what it acknowledged before
    /// means nothing.
    pub(crate) new_peer: bool,
    /// The peer knows this end's nonce now, and did not before.
    pub(crate) agreed: bool,
}

/// Where the agreement stands.
#[derive(Debug)]
pub(crate) struct Handshake {
    nonce: u32,
    peer: Option<Hello>,
    agreed: bool,
    // An answer is owed.
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

    /// The peer understands compact frames.
    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed
    }

    pub(crate) fn handle(&mut self, now: Time, hello: Hello) -> Change {
        let new_peer = self.peer.is_none_or(|peer| peer.nonce != hello.nonce);
        // A peer does not forget a nonce while it keeps its own: what says so is late.
        let echoed = hello.echo == self.nonce || (self.agreed && !new_peer);
        let agreed = echoed && (new_peer || !self.agreed);
        if new_peer || !echoed {
            self.next_announcement = self.next_announcement.min(now);
            self.wait = FIRST_WAIT;
        }
        // Without an echo of ours, the peer has begun anew or has not heard of us yet.
        self.agreed = echoed;
        self.peer = Some(hello);
        if hello.wants_answer || agreed {
            let earliest = self.last_sent.map_or(now, |sent| sent + ANSWER_GAP);
            self.answer_due.get_or_insert(now.max(earliest));
        }
        Change { new_peer, agreed }
    }

    /// A compact frame came without an agreement: the peer has not noticed that this end began
    /// anew, or what it answered was lost.
    pub(crate) fn handle_stranger(&mut self, now: Time) {
        let gap = if self.peer.is_some() {
            ANSWER_GAP * 2
        } else {
            FIRST_WAIT
        };
        let earliest = self.last_sent.map_or(now, |sent| sent + gap);
        self.answer_due.get_or_insert(now.max(earliest));
    }

    /// The peer is gone, or is somebody else now: the agreement has to be made anew.
    pub(crate) fn start_over(&mut self, now: Time, rng: &mut SeededRng) {
        self.nonce = fresh_nonce(rng);
        self.agreed = false;
        self.answer_due = None;
        self.next_announcement = now;
        self.wait = FIRST_WAIT;
    }

    /// When a frame has to go that carries nothing but the announcement.
    pub(crate) fn answer_due(&self) -> Option<Time> {
        self.answer_due
    }

    /// True if a frame that can should carry the announcement.
    pub(crate) fn wants_to_travel(&self, now: Time) -> bool {
        self.answer_due.is_some() || (!self.agreed && now >= self.next_announcement)
    }

    /// The announcement, which is sent now.
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
                SLOWEST_KNOWN
            } else {
                SLOWEST_UNKNOWN
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

/// Not 0, which stands for none.
fn fresh_nonce(rng: &mut SeededRng) -> u32 {
    rng.next_word() as u32 | 1
}
