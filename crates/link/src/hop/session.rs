//! The session of a plain hop: the HELLO exchange, restarts, and frames of other sessions. Nothing in
//! it is proven but that the neighbour receives at its address.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use whimbrel_core::{Admission, Deadline, Guid, Limit, Meter, SeededRng, Time};

use super::config::{HopConfig, MAX_CHUNK, MAX_MTU, MIN_MTU};
use super::secure::Reception;
use super::secure::handshake::{
    Unwilling, decode_lost, encode_lost, encode_refusal, session_of_call,
};
use super::wire::{Frame, HANDSHAKE, Hello, VERSION, decode, encode_hello, session_tag};

/// Answers to unproven messages, ...
pub(super) const ANSWERS: Limit = Limit {
    at_once: 4,
    per_second: 100,
};
/// ... and, apart from them, notices about frames of no session: after a restart the frames of the
/// former session keep coming, and the call that ends that must find its answer.
pub(super) const NOTICES: Limit = ANSWERS;
/// For this long an absent neighbour is greeted at short intervals: ...
const GREETING_PATIENCE: Duration = Duration::from_secs(60);
/// ... a quarter of the time so far, at most this. Where an answer takes two seconds, 24 greetings
/// would otherwise be in flight before it comes, and would block a thin link.
const GREETING_INTERVAL: Duration = Duration::from_millis(250);
const GREETING_PART: u32 = 4;
/// Pause before the same HELLO is answered again; it doubles with each answer, up to 1.28 s.
const ANSWER_AGAIN: Duration = Duration::from_millis(40);
const MAX_ANSWER_DOUBLINGS: u32 = 5;

/// The neighbour's description of itself, in an authentic HELLO or proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) guid: Guid,
    pub(super) incarnation: u64,
    pub(super) mtu: usize,
    pub(super) chunk_limit: usize,
    pub(super) max_chunks: usize,
    pub(super) memory: u64,
    pub(super) reports_marks: bool,
}

impl Peer {
    /// What a neighbour says: its largest frame and chunk, and its maxima of chunks and of ids that
    /// it remembers.
    pub(super) fn new(
        guid: Guid,
        incarnation: u64,
        [mtu, chunk_limit]: [u32; 2],
        [max_chunks, memory]: [u16; 2],
        reports_marks: bool,
    ) -> Peer {
        Peer {
            guid,
            incarnation,
            mtu: (mtu as usize).clamp(MIN_MTU, MAX_MTU),
            chunk_limit: (chunk_limit as usize).clamp(1, MAX_CHUNK),
            max_chunks: usize::from(max_chunks),
            memory: u64::from(memory),
            reports_marks,
        }
    }
}

/// The effect of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// The HELLO is not authentic: it may be old, or forged by a sender that cannot see this end's
    /// frames.
    Unproven,
    /// The HELLO has nothing new.
    Known,
    /// The neighbour is new; `restarted` if another incarnation of it was known.
    New {
        restarted: bool,
        first_hop_id: u32,
        window: u32,
        /// This end's first id, if it has said so before it knew the session.
        own_first_id: Option<u32>,
    },
}

/// The session with one neighbour.
///
/// Each side has a random token. A HELLO is authentic if it echoes the nonce that was last sent to
/// the neighbour: an attacker that forges the neighbour's address cannot see it, and a HELLO from
/// before a restart echoes an older one.
#[derive(Debug)]
pub(super) struct Session {
    rng: SeededRng,
    token: u32,
    nonce: u32,
    peer_token: u32,
    peer: Option<Peer>,
    // It greets a neighbour that has not greeted it.
    calls: bool,
    reception: Arc<Reception>,
    address: Option<SocketAddr>,
    // What a frame of no session is answered with.
    lost: Option<[u8; 8]>,
    // The call that is to be refused.
    refusal_due: Option<[u8; 8]>,
    due: Option<Answer>,
    next_greeting: Time,
    since: Time,
    answers: Meter,
    notices: Meter,
    // The number of HELLOs with the current nonce, and the time of the first one.
    nonce_told: (u32, Time),
    rtt: Option<Duration>,
    // The neighbour's nonce and this end's in the newest answer, when it went, and how often.
    answered: Option<(u32, u32, Time, u32)>,
}

/// A HELLO to send, with its receiver and echo.
#[derive(Clone, Copy, Debug)]
struct Answer {
    receiver: u32,
    echo: u32,
}

impl Session {
    pub(super) fn new(config: &HopConfig, mut rng: SeededRng, now: Time) -> Session {
        let (token, nonce) = (nonzero(&mut rng), nonzero(&mut rng));
        Session {
            rng,
            token,
            nonce,
            peer_token: 0,
            peer: None,
            calls: config.calls,
            reception: config.reception.clone(),
            address: config.remote,
            lost: None,
            refusal_due: None,
            due: None,
            next_greeting: now,
            since: now,
            answers: Meter::default(),
            notices: Meter::default(),
            nonce_told: (0, now),
            rtt: None,
            answered: None,
        }
    }

    pub(super) fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Returns the tag of frames to the neighbour.
    pub(super) fn outgoing_tag(&self) -> Option<u32> {
        self.peer.map(|_| session_tag(self.peer_token, self.token))
    }

    /// Returns true if this end greets a neighbour that it does not know yet, with this token and
    /// nonce.
    pub(super) fn is_greeting_of(&self, about: &[u8; 8]) -> bool {
        let (token, nonce) = (self.token.to_be_bytes(), self.nonce.to_be_bytes());
        self.peer.is_none() && about.starts_with(&token) && about.ends_with(&nonce)
    }

    /// Returns true if a frame with this tag is of the current session.
    pub(super) fn is_current(&self, tag: u32) -> bool {
        self.peer
            .is_some_and(|_| session_tag(self.token, self.peer_token) == tag)
    }

    /// Returns the round trip of the HELLO exchange once, if it was measured.
    pub(super) fn take_rtt(&mut self) -> Option<Duration> {
        self.rtt.take()
    }

    /// Handles a frame of another session: one end has restarted. Schedules a HELLO, to a caller a
    /// notice that is shorter than the frame; or returns false if that has happened too often.
    pub(super) fn handle_stranger(&mut self, now: Time, frame: &[u8]) -> bool {
        let allowed = self.notices.admits(now, NOTICES);
        if allowed && !self.calls {
            self.lost = frame.get(1..9).and_then(|echo| echo.try_into().ok());
        } else if allowed && self.due.is_none() {
            self.due = Some(Answer {
                receiver: self.peer_token,
                echo: 0,
            });
        }
        allowed
    }

    /// Handles a notice that the neighbour does not know the session of a frame.
    pub(super) fn handle_lost(&mut self, now: Time, frame: &[u8]) {
        let tag =
            decode_lost(frame).map(|echo| u32::from_be_bytes([echo[3], echo[4], echo[5], echo[6]]));
        if tag.is_some()
            && tag == self.outgoing_tag()
            && self.due.is_none()
            && self.notices.admits(now, NOTICES)
        {
            // What the neighbour told this token once, its gate tells it again: under another one, it
            // is another session.
            self.token = nonzero(&mut self.rng);
            self.due = Some(Answer {
                receiver: 0,
                echo: 0,
            });
        }
    }

    /// Handles a call of a neighbour that requires encryption.
    pub(super) fn handle_sealed(&mut self, now: Time, frame: &[u8]) {
        if self.notices.admits(now, NOTICES) {
            self.refusal_due = Some(session_of_call(frame));
        }
    }

    /// Writes a due notice.
    pub(super) fn poll_notice(&mut self, buffer: &mut Vec<u8>) -> bool {
        if let Some(about) = self.refusal_due.take() {
            encode_refusal(Unwilling::Sealed, about, buffer);
            return true;
        }
        match self.lost.take() {
            Some(echo) => encode_lost(echo, buffer),
            None => return false,
        }
        true
    }

    /// Who answers takes the token and the nonce that follow from the caller's: its gate may have
    /// told them already.
    fn take_seat(&mut self, now: Time, hello: &Hello) {
        if !self.is_vacant() {
            return;
        }
        let seat = |past| {
            self.reception
                .plain_seat(now, self.address, hello.token, past)
        };
        let told = [1, 0].map(seat);
        let [_, present] = told;
        let it = told.into_iter().find(|(_, nonce)| *nonce == hello.echo);
        (self.token, self.nonce) = it.unwrap_or(present);
    }

    /// Handles a HELLO. `limited` counts answers that the rate limit suppressed.
    pub(super) fn handle_hello(&mut self, now: Time, hello: &Hello, limited: &mut u64) -> Greeting {
        self.take_seat(now, hello);
        let answer = Answer {
            receiver: hello.token,
            echo: hello.nonce,
        };
        let known = self.peer.is_some() && self.peer_token == hello.token;
        if known && hello.receiver == self.token {
            if hello.wanted
                && self.is_answer_due(now, hello.nonce)
                && self.answers.admits(now, ANSWERS)
            {
                self.due = Some(answer);
            }
            self.peer = Some(describe(hello));
            return Greeting::Known;
        }
        if hello.echo != self.nonce {
            if !self.is_answer_due(now, hello.nonce) {
                // An answer to it is in flight.
            } else if !self.answers.admits(now, ANSWERS) {
                *limited += 1;
            } else if !known || hello.wanted {
                self.due = Some(answer);
            }
            return Greeting::Unproven;
        }
        if known {
            return Greeting::Known;
        }
        let restarted = self.peer.is_some();
        let own_first_id = self.is_vacant().then_some(self.nonce);
        // Only an unambiguous exchange is a measurement.
        self.rtt = (self.nonce_told.0 == 1).then(|| now.since(self.nonce_told.1));
        self.peer = Some(describe(hello));
        self.peer_token = hello.token;
        self.nonce = nonzero(&mut self.rng);
        self.nonce_told = (0, now);
        // A neighbour that already knows this end is answered only if it asks, or if what it was told
        // at the gate may not hold on this port.
        self.due = (hello.wanted || !self.calls).then_some(answer);
        Greeting::New {
            restarted,
            first_hop_id: hello.first_hop_id,
            window: hello.window,
            own_first_id,
        }
    }

    /// Whether this end has a token and a nonce as the gate tells them. The gate also tells a first
    /// id and keeps none, so that it is the nonce.
    fn is_vacant(&self) -> bool {
        !self.calls && self.peer.is_none()
    }

    /// Tells the neighbour about changed parameters.
    pub(super) fn announce(&mut self) {
        if self.peer.is_some() {
            self.due.get_or_insert(Answer {
                receiver: self.peer_token,
                echo: 0,
            });
        }
    }

    /// Greets a neighbour that is not known yet at once, and as often as at first.
    pub(super) fn call_now(&mut self, now: Time) {
        (self.since, self.next_greeting) = (now, now);
    }

    /// Handles a deadline. `waiting` is true if a chunk waits for the neighbour.
    pub(super) fn handle_timeout(&mut self, now: Time, config: &HopConfig, waiting: bool) {
        let calling = self.calls && self.peer.is_none();
        if calling && now >= self.next_greeting && self.due.is_none() {
            self.due = Some(Answer {
                receiver: 0,
                echo: 0,
            });
            let so_far = now.since(self.since);
            let interval = probe_interval(config, so_far, GREETING_PATIENCE, waiting);
            let grown = (so_far / GREETING_PART).min(GREETING_INTERVAL);
            self.next_greeting = now + interval.max(grown);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        (self.calls && self.peer.is_none())
            .then_some(Deadline::new(self.next_greeting, "greet the neighbour"))
    }

    /// Returns the HELLO that is due. `ids` are the first id of the session with the known
    /// neighbour, and the first id of a session with another incarnation.
    pub(super) fn poll_hello(
        &mut self,
        now: Time,
        config: &HopConfig,
        window: u32,
        ids: (u32, u32),
        waiting: bool,
    ) -> Option<Hello> {
        self.handle_timeout(now, config, waiting);
        let answer = self.due.take()?;
        self.nonce_told = (
            self.nonce_told.0.saturating_add(1),
            if self.nonce_told.0 == 0 {
                now
            } else {
                self.nonce_told.1
            },
        );
        self.note_answer(now, answer.echo);
        let known = self.peer.is_some() && self.peer_token == answer.receiver;
        Some(Hello {
            wanted: !known,
            reports_marks: config.ecn,
            receiver: answer.receiver,
            token: self.token,
            nonce: self.nonce,
            echo: answer.echo,
            incarnation: config.incarnation,
            guid: config.local,
            mtu: config.mtu as u32,
            chunk_limit: config.chunk_limit as u32,
            window,
            first_hop_id: match known {
                true => ids.0,
                false if self.is_vacant() => self.nonce,
                false => ids.1,
            },
            max_chunks: config.max_chunks_in_flight,
            memory: config.finished_memory,
        })
    }

    /// Returns false if this end's answer to a HELLO with `nonce` may still be in flight: on a long
    /// path the neighbour repeats the HELLO until the first answer has come.
    fn is_answer_due(&self, now: Time, nonce: u32) -> bool {
        self.answered.is_none_or(|(to, own, at, times)| {
            let again = ANSWER_AGAIN * (1 << times.min(MAX_ANSWER_DOUBLINGS));
            to != nonce || own != self.nonce || now.since(at) >= again
        })
    }

    /// Notes that a HELLO is sent which answers the one with `nonce`, or answers none if that is 0.
    fn note_answer(&mut self, now: Time, nonce: u32) {
        if nonce == 0 {
            return;
        }
        let times = match self.answered {
            Some((to, own, _, times)) if to == nonce && own == self.nonce => times + 1,
            _ => 0,
        };
        self.answered = Some((nonce, self.nonce, now, times));
    }
}

/// Returns the interval of probes to a neighbour that has been silent for `silence`: the shortest
/// interval for `patience`, then longer by a hundredth of the time beyond it. If nothing waits, it
/// may grow up to half of the interval of idle probes.
pub(super) fn probe_interval(
    config: &HopConfig,
    silence: Duration,
    patience: Duration,
    waiting: bool,
) -> Duration {
    let growth = silence.saturating_sub(patience) / 100;
    let quiet = config.idle_probe_interval / 2;
    let slowest = match waiting {
        true => config.slowest_probe_interval,
        false => config.slowest_probe_interval.max(quiet),
    };
    (config.outage_probe_interval + growth).min(slowest)
}

fn describe(hello: &Hello) -> Peer {
    Peer::new(
        hello.guid,
        hello.incarnation,
        [hello.mtu, hello.chunk_limit],
        [hello.max_chunks, hello.memory],
        hello.reports_marks,
    )
}

/// What a plain listener does with a frame of who has no port.
pub(super) fn greet_stranger(
    config: &HopConfig,
    window: u32,
    now: Time,
    from: SocketAddr,
    frame: &[u8],
    reply: &mut Vec<u8>,
) -> Admission {
    let hello = match frame {
        [first, ..] if *first >> 4 == HANDSHAKE && frame.len() > 12 => {
            encode_refusal(Unwilling::Sealed, session_of_call(frame), reply);
            return Admission::Answered;
        }
        [first, ..] if *first >> 4 == VERSION => match decode(frame) {
            Ok(Frame::Hello(hello)) => hello,
            Ok(_) => {
                if let Some(echo) = frame.get(1..9).and_then(|echo| echo.try_into().ok()) {
                    encode_lost(echo, reply);
                }
                return Admission::Answered;
            }
            Err(_) => return Admission::Refused,
        },
        _ => return Admission::Refused,
    };
    let seat = |past| {
        let reception = &config.reception;
        reception.plain_seat(now, Some(from), hello.token, past)
    };
    let is_proven = |past| seat(past) == (hello.receiver, hello.echo);
    if is_proven(0) || is_proven(1) {
        return Admission::Admitted;
    }
    let (token, nonce) = seat(0);
    let answer = Hello {
        wanted: true,
        reports_marks: config.ecn,
        receiver: hello.token,
        token,
        nonce,
        echo: hello.nonce,
        incarnation: config.incarnation,
        guid: config.local,
        mtu: config.mtu as u32,
        chunk_limit: config.chunk_limit as u32,
        window,
        first_hop_id: nonce,
        max_chunks: config.max_chunks_in_flight,
        memory: config.finished_memory,
    };
    encode_hello(&answer, reply);
    Admission::Answered
}

fn nonzero(rng: &mut SeededRng) -> u32 {
    (rng.next_word() >> 32) as u32 | 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_core::identity::KeyPair;

    fn config(name: u8) -> HopConfig {
        HopConfig::plain(&KeyPair::from_secret(&[name; 32]), [name; 32], 1400)
    }

    fn greet(session: &mut Session, now: Time, name: u8) -> Option<Hello> {
        session.poll_hello(now, &config(name), 10, (1, 1), false)
    }

    fn establish(now: Time, a: &mut Session, b: &mut Session) -> usize {
        let mut frames = 0;
        for _ in 0..6 {
            let (from_a, from_b) = (greet(a, now, 1), greet(b, now, 2));
            for (hello, to) in [(from_a, &mut *b), (from_b, &mut *a)] {
                if let Some(hello) = hello {
                    frames += 1;
                    to.handle_hello(now, &hello, &mut 0);
                }
            }
        }
        frames
    }

    #[test]
    fn two_neighbours_agree_on_tags_and_then_fall_silent() {
        let now = Time::ZERO;
        let (mut a, mut b) = (
            Session::new(&config(1), SeededRng::new(1), now),
            Session::new(&config(1), SeededRng::new(2), now),
        );
        assert!(establish(now, &mut a, &mut b) <= 6);
        assert!(b.is_current(a.outgoing_tag().unwrap()) && a.is_current(b.outgoing_tag().unwrap()));
        assert!(
            !a.is_current(a.outgoing_tag().unwrap()),
            "a reflected frame is not the neighbour's"
        );
        assert_eq!((greet(&mut a, now, 1), greet(&mut b, now, 2)), (None, None));
    }

    #[test]
    fn a_restart_is_proven_by_the_echo_and_an_old_hello_changes_nothing() {
        let now = Time::ZERO;
        let (mut a, mut b) = (
            Session::new(&config(1), SeededRng::new(1), now),
            Session::new(&config(1), SeededRng::new(2), now),
        );
        a.poll_hello(now, &config(1), 0, (1, 1), false);
        let first_of_b = greet(&mut b, now, 2).unwrap();
        assert_eq!(a.handle_hello(now, &first_of_b, &mut 0), Greeting::Unproven);
        let answer = greet(&mut a, now, 1).unwrap();
        assert!(matches!(
            b.handle_hello(now, &answer, &mut 0),
            Greeting::New {
                restarted: false,
                ..
            }
        ));
        let proven = greet(&mut b, now, 2).unwrap();
        assert!(matches!(
            a.handle_hello(now, &proven, &mut 0),
            Greeting::New {
                restarted: false,
                ..
            }
        ));

        let mut reborn = Session::new(&config(1), SeededRng::new(3), now);
        assert_eq!(
            a.handle_hello(now, &greet(&mut reborn, now, 2).unwrap(), &mut 0),
            Greeting::Unproven
        );
        assert!(
            a.is_current(b.outgoing_tag().unwrap()),
            "nothing changes before the proof"
        );
        let challenge = greet(&mut a, now, 1).unwrap();
        assert!(matches!(
            reborn.handle_hello(now, &challenge, &mut 0),
            Greeting::New { .. }
        ));
        let proof = greet(&mut reborn, now, 2).unwrap();
        assert!(matches!(
            a.handle_hello(now, &proof, &mut 0),
            Greeting::New {
                restarted: true,
                ..
            }
        ));
        assert_eq!(
            a.handle_hello(now, &proven, &mut 0),
            Greeting::Unproven,
            "the former incarnation's HELLO, late"
        );
        assert!(a.is_current(reborn.outgoing_tag().unwrap()));
    }

    #[test]
    fn a_flood_of_forged_hellos_is_answered_at_a_limited_rate() {
        let mut a = Session::new(&config(1), SeededRng::new(1), Time::ZERO);
        let mut forger = Session::new(&config(1), SeededRng::new(9), Time::ZERO);
        greet(&mut a, Time::ZERO, 1);
        let forged = greet(&mut forger, Time::ZERO, 7).unwrap();
        let (mut answers, mut limited) = (0, 0);
        for micros in 0..40_000u64 {
            let now = Time::from_nanos(micros * 1_000);
            a.handle_hello(
                now,
                &Hello {
                    token: micros as u32 | 1,
                    nonce: micros as u32 | 1,
                    ..forged
                },
                &mut limited,
            );
            answers += u32::from(greet(&mut a, now, 1).is_some());
        }
        assert!(answers <= 2 * ANSWERS.at_once + 1, "{answers}");
        assert!(limited > 39_000);
        assert_eq!(a.peer(), None);
    }
}
