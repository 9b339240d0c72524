//! The session with a neighbour: its proven name, and the protection of the frames: shared keys, or a
//! checksum on a plain link.
//!
//! One end calls, the other one answers. The answerer keeps no state for a call until the caller has
//! shown that it receives at its address: [`Reception`] recomputes from a PROOF what it sent in its
//! ANSWER. A [`Gate`] answers callers without a port.
//!
//! Keys and transfers are separate: new keys are negotiated while chunks continue under the old ones, if
//! both ends still have their transfer state (their *runs*).

mod callers;
mod channel;
mod exchange;
mod gate;
pub(super) mod handshake;
mod kem;
mod peer;
mod post_quantum;
mod reception;
#[cfg(test)]
mod tests;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use whimbrel_core::{Deadline, Guid, Limit, Meter, Time};

use super::config::HopConfig;
use super::liveness::probe_interval;
use super::stats::HopDrops;
use super::wire::{Envelope, HANDSHAKE, encode_parameters, is_data, session_index};
pub use callers::{CallerLists, CallerPolicy, Callers, Keeping, MAX_LISTED, RefusedCaller};
use channel::{Channel, Refusal};
pub use gate::Gate;
pub use handshake::Unwilling;
use handshake::{
    ANSWER, CALL, COOKIE, COOKIE_LEN, Call, Ephemeral, LOST, PROOF, Parameters, REFUSAL,
    encode_call, encode_lost,
};
use kem::KemPair;
pub(super) use peer::{Greeting, Peer};
pub use post_quantum::PostQuantum;
pub use reception::{Reception, ReceptionCounters};

/// Answers to unproven messages, ...
const ANSWERS: Limit = Limit {
    at_once: 4,
    per_second: 100,
};
/// ... and, apart from them, notices about frames of no session: after a restart the frames of the
/// former session keep coming, and the call that ends that must find its answer.
const NOTICES: Limit = ANSWERS;
/// Bound of the answers that wait to be sent.
const MAX_REPLIES: usize = 4;
/// The same call is answered again after this time, then at growing intervals.
const ANSWER_AGAIN: Duration = Duration::from_millis(40);
const MAX_ANSWER_DOUBLINGS: u32 = 5;
/// Calls go at the interval of probes, growing with the time so far up to this one: on a link of 10
/// kbit/s, one of them takes a fifth of a second.
const CALL_INTERVAL: Duration = Duration::from_secs(1);
const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// A call has another ephemeral key after this time.
const FRESH_CALL: Duration = Duration::from_secs(14);
/// How long this end's call waits for the outcome of the neighbour's.
const GIVE_WAY: Duration = Duration::from_millis(250);
/// A proof is repeated, at doubled intervals from this one on, until the neighbour uses the keys.
const PROOF_AGAIN: Duration = Duration::from_millis(80);
const PROOF_PATIENCE: Duration = Duration::from_secs(12);
/// Shortest time between two calls because the neighbour says that it has lost the session: anybody
/// on the path can say so.
const CALL_AGAIN: Duration = Duration::from_secs(1);
/// A caller that is not admitted calls again after this time, then at growing intervals.
const REFUSED_AGAIN: Duration = Duration::from_secs(5);
const MAX_REFUSAL_DOUBLINGS: u32 = 4;
/// How long replaced keys are accepted for frames in flight.
const FORMER_KEYS: Duration = Duration::from_secs(10);
/// New keys from new ephemeral ones after this time and up to an eighth more, by who called.
const RENEWAL: Duration = Duration::from_secs(600);
/// Attempts of that in the silence of an outage go at this interval.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// What this end has to say of itself, beside its configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// W_ad, in packets.
    pub(super) window: u32,
    /// The first hop id of a session that begins now.
    pub(super) first_hop_id: u32,
}

/// What a frame was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Received<'a> {
    /// It changed the session.
    pub(super) greeting: Option<Greeting>,
    /// It was of the session, which says this.
    pub(super) opened: Option<&'a [u8]>,
    /// Why the neighbour does not talk with this end, as somebody says.
    pub(super) unwilling: Option<Unwilling>,
    /// A caller's proof is wrong.
    pub(super) impostor: bool,
}

/// Keys, and what their exchange said of the neighbour.
struct Live {
    channel: Channel,
    hybrid: bool,
    peer: Peer,
    // The neighbour's run, and this end's.
    runs: (u64, u64),
    resumes: bool,
    greeting: Greeting,
    called: bool,
    // The neighbour has used them.
    confirmed: bool,
}

/// A call that waits for its answer.
struct Attempt {
    ephemeral: Ephemeral,
    kem: Option<KemPair>,
    call: Call,
    since: Time,
    // When it went for the first time, and how often.
    sent: (Time, u32),
}

/// The proof that the neighbour may not have.
struct Proof {
    frame: Vec<u8>,
    since: Time,
    last: Time,
    next_at: Time,
    times: u32,
    due: bool,
}

/// See the module.
pub(super) struct Session {
    reception: Arc<Reception>,
    address: Option<SocketAddr>,
    calls: bool,
    plain: bool,
    post_quantum: PostQuantum,
    // The only name that the neighbour may prove.
    expected: Option<Guid>,
    run: u64,
    peer: Option<Peer>,
    peer_run: u64,
    current: Option<Live>,
    next: Option<Live>,
    former: Option<(Channel, Time)>,
    attempt: Option<Attempt>,
    call_due: bool,
    next_call: Time,
    // When the neighbour began to be called, and from when on a LOST may cause it.
    calling_since: Time,
    call_again_at: Time,
    renew_at: Time,
    // Chunks have crossed under the present keys.
    used: bool,
    // A round trip and its variation, as far as known: what may still be answered is not repeated.
    patience: Duration,
    proof: Option<Proof>,
    replies: VecDeque<Vec<u8>>,
    // Parameters are to be told under the present keys, and under the next ones.
    tell: bool,
    tell_next: bool,
    // Only the newest: the ones before it say the same.
    notice: Option<Vec<u8>>,
    answers: Meter,
    notices: Meter,
    answered: Option<([u8; 32], Time, u32)>,
    // How often in a row the neighbour did not admit this end.
    refusals: u32,
    rtt: Option<Duration>,
}

impl Session {
    pub(super) fn new(config: &HopConfig, now: Time) -> Session {
        let reception = config.reception.clone();
        let run = reception.draw_word() | 1;
        Session {
            reception,
            address: config.remote,
            calls: config.calls,
            plain: config.plain,
            post_quantum: config.post_quantum,
            expected: config.neighbour,
            run,
            peer: None,
            peer_run: 0,
            current: None,
            next: None,
            former: None,
            attempt: None,
            call_due: false,
            next_call: now,
            calling_since: now,
            call_again_at: now,
            renew_at: Time::MAX,
            used: false,
            patience: Duration::ZERO,
            proof: None,
            replies: VecDeque::new(),
            tell: false,
            tell_next: false,
            notice: None,
            answers: Meter::default(),
            notices: Meter::default(),
            answered: None,
            refusals: 0,
            rtt: None,
        }
    }

    pub(super) fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Returns true if the present keys come from a hybrid exchange.
    pub(super) fn is_hybrid(&self) -> bool {
        (self.current.as_ref()).is_some_and(|live| live.hybrid)
    }

    /// Returns the envelope of the next frames; `None` if none can be sent.
    pub(super) fn envelope(&self) -> Option<Envelope> {
        let channel = &self.current.as_ref()?.channel;
        channel.may_send().then(|| channel.envelope())
    }

    pub(super) fn take_rtt(&mut self) -> Option<Duration> {
        self.rtt.take()
    }

    pub(super) fn announce(&mut self) {
        self.tell = self.current.is_some();
    }

    /// From now on the neighbour may prove this name only.
    pub(super) fn expect(&mut self, neighbour: Guid) {
        self.expected = Some(neighbour);
    }

    /// Returns why a neighbour that has proven this name gets no session; `None` if it may have one.
    fn refuses(&self, proven: Guid) -> Option<Unwilling> {
        let expected = self.expected.filter(|expected| *expected != proven)?;
        Some(Unwilling::OtherName { proven, expected })
    }

    /// Calls a neighbour that is not known yet at once, and as often as at first.
    pub(super) fn call_now(&mut self, now: Time) {
        (self.calling_since, self.next_call) = (now, now);
    }

    /// Sets the time within which the neighbour answers, if it is known.
    pub(super) fn set_patience(&mut self, patience: Option<Duration>) {
        self.patience = patience.unwrap_or_default().min(CALL_INTERVAL * 5);
    }

    /// Seals frames of `segment` bytes each, the last one possibly shorter. False if that is not
    /// possible.
    pub(super) fn seal(&mut self, now: Time, frames: &mut [u8], segment: usize) -> bool {
        let Some(live) = &mut self.current else {
            return false;
        };
        self.used |= frames.first().is_some_and(|first| is_data(*first));
        let mut each = frames.chunks_mut(segment.max(1));
        each.all(|frame| live.channel.seal(now, frame).is_some())
    }

    /// Handles a frame. `plain` is room for what was encrypted of it.
    pub(super) fn receive<'a>(
        &mut self,
        now: Time,
        frame: &'a [u8],
        plain: &'a mut Vec<u8>,
        (config, standing): (&HopConfig, Standing),
        drops: &mut HopDrops,
    ) -> Received<'a> {
        if let Some(index) = session_index(frame) {
            return self.open(now, index, frame, plain, drops);
        }
        let mut received = Received::default();
        match frame {
            [first, _, _, _, ..] if first >> 4 == HANDSHAKE => match first & 15 {
                CALL => self.handle_call(now, frame, (config, standing), drops),
                ANSWER => {
                    let about = (config, standing);
                    let unwilling = &mut received.unwilling;
                    received.greeting = self.handle_answer(now, frame, about, drops, unwilling);
                }
                PROOF => {
                    let unwilling = &mut received.unwilling;
                    received.impostor = self.handle_proof(now, frame, drops, unwilling);
                }
                COOKIE => self.handle_cookie(now, frame),
                LOST => self.handle_lost(now, frame),
                REFUSAL => received.unwilling = self.handle_refusal(now, frame),
                _ => drops.malformed += 1,
            },
            _ => drops.malformed += 1,
        }
        received
    }

    fn open<'a>(
        &mut self,
        now: Time,
        index: u32,
        frame: &'a [u8],
        plain: &'a mut Vec<u8>,
        drops: &mut HopDrops,
    ) -> Received<'a> {
        let mut received = Received::default();
        let of_index = |live: &&mut Live| live.channel.local_index == index;
        let opened = if let Some(live) = self.current.as_mut().filter(of_index) {
            let opened = live.channel.open(now, frame, plain);
            if opened.is_ok() && !live.confirmed {
                live.confirmed = true;
                self.refusals = 0;
                self.proof = None;
            }
            opened
        } else if let Some(live) = self.next.as_mut().filter(of_index) {
            let opened = live.channel.open(now, frame, plain);
            if opened.is_ok() {
                received.greeting = self.promote(now, true);
                self.proof = None;
            }
            opened
        } else if let Some((channel, _)) = (self.former.as_mut())
            .filter(|(channel, until)| channel.local_index == index && now < *until)
        {
            channel.open(now, frame, plain)
        } else {
            drops.wrong_session += 1;
            if let Some(echo) = frame.get(1..9).and_then(|echo| echo.try_into().ok()) {
                self.notice(now, |buffer| encode_lost(echo, buffer));
            }
            return received;
        };
        match opened {
            Ok(content) => {
                received.opened = Some(content);
                self.used |= is_data(frame[0]);
            }
            Err(Refusal::Damaged) => drops.corrupt += 1,
            Err(Refusal::Forged) => drops.forged += 1,
            Err(Refusal::Replayed) => drops.replayed += 1,
        }
        received
    }

    /// The next keys become the present ones.
    fn promote(&mut self, now: Time, confirmed: bool) -> Option<Greeting> {
        let mut live = self.next.take()?;
        live.confirmed = confirmed;
        let known = self.peer.is_some();
        (self.peer_run, self.run) = live.runs;
        self.peer = Some(live.peer);
        // Both ends go by the same clock, more or less: one of them renews. A plain session has no keys.
        let spread = RENEWAL / 8 * (live.channel.remote_index >> 24) / 256;
        self.renew_at = if live.called && !self.plain {
            now + RENEWAL + spread
        } else {
            Time::MAX
        };
        self.used = false;
        self.attempt = None;
        self.tell |= self.tell_next;
        self.tell_next = false;
        let greeting = match live.greeting {
            Greeting::New {
                first_hop_id,
                window,
                own_first_id,
                ..
            } if !live.resumes => Greeting::New {
                restarted: known,
                first_hop_id,
                window,
                own_first_id,
            },
            _ => Greeting::Known,
        };
        let resumes = live.resumes;
        let former = self.current.replace(live);
        // What is under way from before a new start counts its transfers otherwise: it would be
        // taken for what it is not.
        self.former = former
            .filter(|_| resumes)
            .map(|former| (former.channel, now + FORMER_KEYS));
        Some(greeting)
    }

    /// `waiting` is true if a chunk waits for the neighbour; `silent` if it does not answer.
    pub(super) fn handle_timeout(&mut self, now: Time, config: &HopConfig, waiting: bool) {
        if let Some(proof) = &mut self.proof
            && now >= proof.next_at
        {
            proof.due = true;
            if now >= proof.since + PROOF_PATIENCE {
                self.proof = None;
                let confirmed = self.current.as_ref().is_some_and(|live| live.confirmed);
                if !confirmed && self.calls {
                    self.call_anew(now);
                }
            }
        }
        if now >= self.renew_at {
            self.renew_at = now + RENEWAL;
            // Keys that have carried nothing but probes protect nothing, and their renewal would be
            // most of the cost of a link that is quiet.
            if self.used {
                self.call_anew(now);
            }
        }
        if (self.former.as_ref()).is_some_and(|(_, until)| now >= *until) {
            self.former = None;
        }
        let wanted = self.calls && (self.current.is_none() || self.attempt.is_some());
        if !wanted || now < self.next_call || self.call_due {
            return;
        }
        match &self.attempt {
            None => self.attempt = Some(self.new_attempt(now, true)),
            Some(former) if now.since(former.since) >= FRESH_CALL => {
                // A path may lose frames as long as a hybrid call. Where that is only offered, every
                // other attempt goes without, except to renew the keys of a hybrid session.
                let hybrid = former.kem.is_none() || self.is_hybrid();
                self.attempt = Some(self.new_attempt(now, hybrid));
            }
            Some(_) => {}
        }
        self.call_due = true;
        let so_far = now.since(self.calling_since);
        let interval = probe_interval(config, so_far, CALL_PATIENCE, waiting);
        let grown = so_far.min(CALL_INTERVAL);
        self.next_call = now + interval.max(grown);
        if self.current.is_some() {
            self.next_call += RENEWAL_INTERVAL.min(so_far);
            self.next_call = self.next_call.max(now + self.patience);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        let calling = self.calls && (self.current.is_none() || self.attempt.is_some());
        let mut next = calling.then(|| Deadline::new(self.next_call, "call the neighbour"));
        if let Some(proof) = &self.proof {
            let at = Deadline::new(proof.next_at, "repeat the proof");
            next = Deadline::earlier(next, Some(at));
        }
        if self.renew_at < Time::MAX {
            let at = Deadline::new(self.renew_at, "agree on new keys");
            next = Deadline::earlier(next, Some(at));
        }
        next
    }

    /// Writes the message that is due, if any.
    pub(super) fn poll_message(
        &mut self,
        now: Time,
        (config, standing): (&HopConfig, Standing),
        waiting: bool,
        buffer: &mut Vec<u8>,
    ) -> bool {
        self.handle_timeout(now, config, waiting);
        let reply = self.replies.pop_front().or_else(|| self.notice.take());
        if let Some(reply) = reply {
            buffer.extend_from_slice(&reply);
            return true;
        }
        if let Some(proof) = self.proof.as_mut().filter(|proof| proof.due) {
            (proof.due, proof.last) = (false, now);
            let again = PROOF_AGAIN * (1 << proof.times.min(4));
            proof.next_at = now + again.max(self.patience);
            proof.times += 1;
            buffer.extend_from_slice(&proof.frame);
            return true;
        }
        if core::mem::take(&mut self.call_due)
            && let Some(attempt) = &mut self.attempt
        {
            if attempt.sent.1 == 0 {
                attempt.sent.0 = now;
            }
            attempt.sent.1 += 1;
            let key = attempt.kem.as_ref().map(KemPair::public);
            encode_call(&attempt.call, key, buffer);
            return true;
        }
        let own = Parameters {
            run: self.run,
            knows: self.peer_run,
            ..Parameters::of(config, standing.window, 0)
        };
        let live = if core::mem::take(&mut self.tell_next) {
            self.next.as_mut()
        } else if core::mem::take(&mut self.tell) {
            self.current.as_mut()
        } else {
            None
        };
        let Some(live) = live else { return false };
        let start = buffer.len();
        encode_parameters(live.channel.envelope(), &own.encode(), buffer);
        if live.channel.seal(now, &mut buffer[start..]).is_none() {
            buffer.truncate(start);
            return false;
        }
        true
    }

    /// The neighbour has told its parameters under the session's keys. False if they make no sense.
    pub(super) fn note_parameters(&mut self, bytes: &[u8]) -> bool {
        let (Some(parameters), Some(peer)) = (Parameters::decode(bytes), &mut self.peer) else {
            return false;
        };
        *peer = Peer {
            incarnation: peer.incarnation,
            ..Peer::of(peer.guid, &parameters)
        };
        true
    }

    fn reply(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.replies.len() < MAX_REPLIES {
            let mut reply = Vec::new();
            write(&mut reply);
            self.replies.push_back(reply);
        }
    }

    /// Schedules a notice about a frame that can have no other answer.
    fn notice(&mut self, now: Time, write: impl FnOnce(&mut Vec<u8>)) {
        if self.notices.admits(now, NOTICES) {
            let mut notice = Vec::new();
            write(&mut notice);
            self.notice = Some(notice);
        }
    }
}
