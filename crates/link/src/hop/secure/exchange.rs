//! The messages by which two ends agree on keys: call, answer, proof, cookie, and the notice that a
//! session is lost.

use core::net::SocketAddr;

use whimbrel_core::Time;
use whimbrel_core::identity::PublicKey;
use zeroize::Zeroizing;

use super::channel::{Channel, Secret, Suite};
use super::handshake::{
    Answer, Call, Ephemeral, Exchange, HYBRID, KemAnswer, PLAIN, Parameters, Proven, Proving,
    decode_answer, decode_call, decode_cookie, decode_lost, decode_proof, decode_refusal,
    encode_refusal, session_of_call, session_of_proof,
};
use super::kem::{KEM_KEY_LEN, KemPair, encapsulate, key_hash};
use super::reception::Seat;
use super::{
    ANSWER_AGAIN, ANSWERS, Attempt, CALL_AGAIN, COOKIE_LEN, GIVE_WAY, Greeting, HopConfig,
    HopDrops, Live, MAX_ANSWER_DOUBLINGS, MAX_REFUSAL_DOUBLINGS, PROOF_AGAIN, Peer, PostQuantum,
    Proof, REFUSED_AGAIN, Reception, Session, Standing, Unwilling,
};

impl Session {
    pub(super) fn handle_call(
        &mut self,
        now: Time,
        frame: &[u8],
        (config, standing): (&HopConfig, Standing),
        drops: &mut HopDrops,
    ) {
        let Some((call, kem_key)) = decode_call(frame) else {
            drops.malformed += 1;
            return;
        };
        if let Some(why) = call.refused_by(self.plain) {
            drops.wrong_mode += 1;
            let about = session_of_call(frame);
            self.notice(now, |buffer| encode_refusal(why, about, buffer));
            return;
        }
        // Both call: one of the two calls is answered.
        let own = self.attempt.as_ref();
        if own.is_some_and(|own| own.call.rank() >= call.rank()) {
            return;
        }
        if config.post_quantum.refuses(&call) {
            let about = session_of_call(frame);
            self.notice(now, |buffer| {
                encode_refusal(Unwilling::Classical, about, buffer);
            });
            return;
        }
        if !self.is_answer_due(now, &call.ephemeral) {
            return;
        }
        let share = self.calls || self.reception.may_answer(now, self.address);
        if !share || !self.answers.admits(now, ANSWERS) {
            drops.hello_limited += 1;
            self.reception.count(|counters| counters.limited += 1);
            return;
        }
        let own_run = self.current.as_ref().map(|_| self.run);
        let parameters = Parameters {
            run: 0,
            knows: self.peer_run,
            ..Parameters::of(config, standing.window, 0)
        };
        let asked = (&call, kem_key);
        let Some(answer) = answer(&self.reception, now, self.address, asked, |run| {
            Parameters {
                run: own_run.unwrap_or(run),
                ..parameters
            }
        }) else {
            return;
        };
        self.reception.count(|counters| counters.answered += 1);
        let times = match self.answered {
            Some((to, _, times)) if to == call.ephemeral => times + 1,
            _ => 0,
        };
        self.answered = Some((call.ephemeral, now, times));
        self.reply(|buffer| buffer.extend_from_slice(&answer));
        if self.attempt.is_some() {
            self.call_due = false;
            self.next_call = self.next_call.max(now + GIVE_WAY);
        }
    }

    /// False if this end's answer to this call may still be under way.
    fn is_answer_due(&self, now: Time, ephemeral: &[u8; 32]) -> bool {
        self.answered.is_none_or(|(to, at, times)| {
            to != *ephemeral
                || now.since(at) >= ANSWER_AGAIN * (1 << times.min(MAX_ANSWER_DOUBLINGS))
        })
    }

    pub(super) fn handle_answer(
        &mut self,
        now: Time,
        frame: &[u8],
        (config, standing): (&HopConfig, Standing),
        drops: &mut HopDrops,
        unwilling: &mut Option<Unwilling>,
    ) -> Option<Greeting> {
        let Some(answer) = decode_answer(frame) else {
            drops.malformed += 1;
            return None;
        };
        let attempt = self.attempt.as_ref()?;
        if attempt.call.index != answer.to {
            return None;
        }
        let call = Call {
            cookie: answer.cookie,
            ..attempt.call
        };
        let kem_shared = match (&answer.kem, &attempt.kem) {
            (Some(kem), Some(pair)) => Some(pair.open(&kem.ciphertext)),
            (None, _) => None,
            // To a call that has not asked for it.
            (Some(_), None) => {
                drops.bad_handshake += 1;
                return None;
            }
        };
        let read = || {
            let exchange = Exchange::new(&call, &answer, &attempt.ephemeral, kem_shared)?;
            let proven = exchange.read_answer(&answer, frame)?;
            (proven.key.guid() != self.reception.guid()).then_some((exchange, proven))
        };
        let Some((exchange, Proven { key, parameters })) = read() else {
            drops.bad_handshake += 1;
            return None;
        };
        // The caller decides, and the answerer has signed what it was asked for.
        if call.is_plain() != (exchange.suite() == Suite::Plain) {
            drops.wrong_mode += 1;
            *unwilling = call.is_plain().then_some(Unwilling::Plain);
            return None;
        }
        // This end has proven nothing yet: whoever answers in the neighbour's place learns no name.
        if let Some(why) = self.refuses(key.guid()) {
            drops.bad_handshake += 1;
            *unwilling = Some(why);
            return None;
        }
        // The neighbour itself does not know hybrid exchanges: if somebody on the path had changed the
        // call, its answer could not be read here.
        if config.post_quantum == PostQuantum::Require && !exchange.is_hybrid() {
            *unwilling = Some(Unwilling::NotHybrid);
            return None;
        }
        let known = self.peer.filter(|peer| peer.guid == key.guid());
        let resumes = self.current.is_some()
            && known.is_some()
            && (parameters.run, parameters.knows) == (self.peer_run, self.run);
        let run = match resumes {
            true => self.run,
            false => self.reception.draw_word() | 1,
        };
        let own = Parameters {
            resumes,
            run,
            knows: parameters.run,
            ..Parameters::of(config, standing.window, standing.first_hop_id)
        };
        let deposit = answer.kem.as_ref().map(|kem| kem.deposit);
        let to = (answer.index, deposit);
        let keys = self.reception.keys();
        let frame = exchange.write_proof(&call, to, keys, &key, &own)?;
        let traffic = exchange.traffic(&keys.public(), &key, &own);
        let channel = Channel::new(
            now,
            (exchange.suite(), true),
            (call.index, answer.index),
            &traffic.of_caller,
            &traffic.of_answerer,
        )?;
        // Only an unambiguous exchange is a measurement.
        self.rtt = (attempt.sent.1 == 1).then(|| now.since(attempt.sent.0));
        self.attempt = None;
        self.call_due = false;
        let session = (channel, exchange.is_hybrid());
        self.next = Some(live(session, (&key, &parameters), own.run, resumes, None));
        self.proof = Some(Proof {
            frame,
            since: now,
            last: now,
            next_at: now + PROOF_AGAIN,
            times: 0,
            due: true,
        });
        if resumes {
            return None;
        }
        self.promote(now, false)
    }

    /// True if the proof is wrong.
    pub(super) fn handle_proof(
        &mut self,
        now: Time,
        frame: &[u8],
        drops: &mut HopDrops,
        unwilling: &mut Option<Unwilling>,
    ) -> bool {
        let Some(proving) = decode_proof(frame) else {
            drops.malformed += 1;
            return false;
        };
        let Proving { call, index, .. } = proving;
        // Another port of this node may have answered the call.
        if call.refused_by(self.plain).is_some() {
            drops.wrong_mode += 1;
            return false;
        }
        let is_of = |live: &Live| {
            (live.channel.local_index, live.channel.remote_index) == (index, call.index)
        };
        if self.next.as_ref().is_some_and(is_of) {
            self.tell_next = true;
            return false;
        }
        if self.current.as_ref().is_some_and(is_of) {
            self.tell = true;
            return false;
        }
        let Some(seat) = self.reception.seat_of_proven(now, self.address, &call) else {
            drops.bad_handshake += 1;
            self.reception.count(|counters| counters.bad_cookies += 1);
            return false;
        };
        // Of one source, whoever it is.
        if !self.answers.admits(now, ANSWERS) || !self.reception.may_answer(now, self.address) {
            drops.hello_limited += 1;
            return false;
        }
        let read = || {
            let keys = self.reception.keys();
            let (exchange, proven) = read_proof(&self.reception, &seat, &proving, frame)?;
            let traffic = exchange.traffic(&proven.key, &keys.public(), &proven.parameters);
            let channel = Channel::new(
                now,
                (exchange.suite(), false),
                (seat.index, call.index),
                &traffic.of_answerer,
                &traffic.of_caller,
            )?;
            Some(((channel, exchange.is_hybrid()), proven))
        };
        let Some((session, Proven { key, parameters })) = read() else {
            drops.bad_handshake += 1;
            self.reception.count(|counters| counters.bad_proofs += 1);
            return true;
        };
        if let Some(why) = self.refuses(key.guid()) {
            drops.bad_handshake += 1;
            *unwilling = Some(why);
            return false;
        }
        if !self.calls && !self.reception.admits(now, key.guid(), self.address) {
            let about = session_of_proof(frame).unwrap_or_default();
            self.notice(now, |buffer| {
                encode_refusal(Unwilling::NotAdmitted, about, buffer);
            });
            return false;
        }
        let knows_this = self.current.is_some() && parameters.knows == self.run;
        let goes_on = knows_this
            && parameters.run == self.peer_run
            && self.peer.is_some_and(|peer| peer.guid == key.guid());
        let is_consistent = match parameters.resumes {
            true => goes_on,
            false => knows_this || parameters.knows == seat.run,
        };
        if !is_consistent {
            // The two have agreed on something else meanwhile.
            drops.bad_handshake += 1;
            return false;
        }
        if !self.reception.accept(&call, self.address) {
            return false;
        }
        let (run, resumes) = (parameters.knows, parameters.resumes);
        let own_first_id = Some(seat.first_hop_id);
        let parts = (&key, &parameters);
        self.next = Some(live(session, parts, run, resumes, own_first_id));
        self.tell_next = true;
        false
    }

    pub(super) fn handle_cookie(&mut self, now: Time, frame: &[u8]) {
        let Some((to, cookie)) = decode_cookie(frame) else {
            return;
        };
        let attempt = self.attempt.as_mut();
        if let Some(attempt) = attempt.filter(|it| it.call.index == to && it.call.cookie != cookie)
            // Whoever is on the path can make this end call more often, but not at each frame.
            && attempt.sent.1 > 0
        {
            attempt.call.cookie = cookie;
            self.next_call = self.next_call.min(now);
        }
    }

    /// Returns why the neighbour is unwilling, as far as a notice is to be believed: that it does not
    /// admit this end, if it names the session for which this end has just proven itself. That
    /// session is then forgotten.
    pub(super) fn handle_refusal(&mut self, now: Time, frame: &[u8]) -> Option<Unwilling> {
        let (why, about) = decode_refusal(frame)?;
        // Of a call, whoever has not seen it can tell nothing.
        let asked = self.attempt.as_ref().filter(|it| {
            let index = it.call.index.to_be_bytes();
            self.current.is_none() && about.starts_with(&index)
        });
        match why {
            // A corrupted call may have looked like one of the other kind.
            Unwilling::Plain | Unwilling::Sealed => {
                return asked
                    .filter(|it| it.call.is_plain() == (why == Unwilling::Plain))
                    .map(|_| why);
            }
            Unwilling::NotHybrid | Unwilling::OtherName { .. } => return None,
            Unwilling::Classical => {
                return asked.filter(|it| it.kem.is_none()).map(|_| why);
            }
            Unwilling::NotAdmitted => {}
        }
        let proof = self.proof.as_ref()?;
        if session_of_proof(&proof.frame) != Some(about) {
            return None;
        }
        (self.current, self.next, self.former) = (None, None, None);
        (self.attempt, self.proof) = (None, None);
        (self.call_due, self.renew_at) = (false, Time::MAX);
        self.calling_since = now;
        self.next_call = now + REFUSED_AGAIN * (1 << self.refusals.min(MAX_REFUSAL_DOUBLINGS));
        self.refusals += 1;
        Some(why)
    }

    pub(super) fn handle_lost(&mut self, now: Time, frame: &[u8]) {
        let (Some(echo), Some(live)) = (decode_lost(frame), &self.current) else {
            return;
        };
        let index = u32::from_be_bytes([echo[0], echo[1], echo[2], echo[3]]);
        let low = u32::from_be_bytes([echo[4], echo[5], echo[6], echo[7]]);
        if index != live.channel.remote_index || !live.channel.has_sent(low) {
            return;
        }
        let may_call = self.calls && self.attempt.is_none() && now >= self.call_again_at;
        match &mut self.proof {
            // It has come to nothing: its neighbour may have restarted in between.
            Some(proof) if !live.confirmed && now < proof.since + CALL_AGAIN => {
                proof.due |= now >= proof.last + ANSWER_AGAIN;
            }
            _ if may_call => self.call_anew(now),
            _ => {}
        }
    }

    pub(super) fn call_anew(&mut self, now: Time) {
        self.call_again_at = now + CALL_AGAIN;
        (self.calling_since, self.next_call) = (now, now);
        self.attempt = Some(self.new_attempt(now, true));
    }

    /// `hybrid` asks for that as far as the configuration wants it.
    pub(super) fn new_attempt(&self, now: Time, hybrid: bool) -> Attempt {
        let ephemeral = Ephemeral::new(self.reception.draw());
        let wanted = match self.post_quantum {
            PostQuantum::Off => false,
            PostQuantum::Offer => hybrid,
            PostQuantum::Require => true,
        };
        let kem = wanted.then(|| KemPair::new([self.reception.draw(), self.reception.draw()]));
        let plain = u8::from(self.plain) * PLAIN;
        let flags = kem.as_ref().map_or(0, |_| HYBRID) | plain;
        Attempt {
            call: Call {
                flags: self.reception.flags() | flags,
                index: self.reception.draw_word() as u32,
                ephemeral: ephemeral.public,
                cookie: [0; COOKIE_LEN],
                kem: kem.as_ref().map_or([0; 32], |kem| key_hash(kem.public())),
            },
            ephemeral,
            kem,
            since: now,
            sent: (now, 0),
        }
    }
}

/// Returns the whole answer to a call (and the ML-KEM key in it), of which nothing is kept. `describe`
/// gives this end's parameters, of a run if it has none.
pub(super) fn answer(
    reception: &Reception,
    now: Time,
    address: Option<SocketAddr>,
    (call, kem_key): (&Call, Option<&[u8; KEM_KEY_LEN]>),
    describe: impl FnOnce(u64) -> Parameters,
) -> Option<Vec<u8>> {
    let keys = reception.keys();
    let seat = reception.seat(now, address, call);
    let ephemeral = Ephemeral::new(seat.ephemeral);
    let (kem, kem_shared) = match kem_key.zip(seat.kem) {
        None => (None, None),
        Some((key, seat)) => {
            let (ciphertext, secret) = encapsulate(key, &seat.random)?;
            let kem = KemAnswer {
                deposit: *masked(&secret, &seat.mask),
                ciphertext: Box::new(ciphertext),
            };
            (Some(kem), Some(secret))
        }
    };
    let answer = Answer {
        suite: reception.suite(call),
        to: call.index,
        index: seat.index,
        ephemeral: ephemeral.public,
        cookie: seat.cookie,
        salt: reception.draw_word(),
        kem,
    };
    let parameters = Parameters {
        first_hop_id: seat.first_hop_id,
        ..describe(seat.run)
    };
    let exchange = Exchange::new(call, &answer, &ephemeral, kem_shared)?;
    exchange.write_answer(&answer, keys, &parameters)
}

fn masked(secret: &[u8; 32], mask: &[u8; 32]) -> Secret {
    let mut bytes = Zeroizing::new(*secret);
    for (byte, mask) in bytes.iter_mut().zip(mask) {
        *byte ^= mask;
    }
    bytes
}

/// Returns what a PROOF proves, and the exchange of which it is; `None` if it is wrong, or this node's
/// own.
pub(super) fn read_proof(
    reception: &Reception,
    seat: &Seat,
    proving: &Proving,
    frame: &[u8],
) -> Option<(Exchange, Proven)> {
    let (call, index) = (&proving.call, proving.index);
    let keys = reception.keys();
    let ephemeral = Ephemeral::new(seat.ephemeral.clone());
    let answer = Answer {
        suite: reception.suite(call),
        to: call.index,
        index: seat.index,
        ephemeral: ephemeral.public,
        cookie: call.cookie,
        salt: 0,
        // Of it, a PROOF depends on the secret alone.
        kem: None,
    };
    let kem_shared = (seat.kem.as_ref()).map(|kem| masked(&proving.deposit, &kem.mask));
    let exchange = Exchange::new(call, &answer, &ephemeral, kem_shared)?;
    let proven = exchange.read_proof(frame, &keys.public())?;
    let is_own = proven.key.guid() == reception.guid() || seat.index != index;
    (!is_own).then_some((exchange, proven))
}

/// Keys of a neighbour that has proven `key`, from a hybrid exchange or not, for the run `own_run` of
/// this end. `own_first_id` is this end's first hop id, if it has answered.
fn live(
    (channel, hybrid): (Channel, bool),
    (key, parameters): (&PublicKey, &Parameters),
    own_run: u64,
    resumes: bool,
    own_first_id: Option<u32>,
) -> Live {
    Live {
        channel,
        hybrid,
        peer: Peer::of(key.guid(), parameters),
        runs: (parameters.run, own_run),
        resumes,
        greeting: Greeting::New {
            restarted: false,
            first_hop_id: parameters.first_hop_id,
            window: parameters.window,
            own_first_id,
        },
        called: own_first_id.is_none(),
        confirmed: false,
    }
}
