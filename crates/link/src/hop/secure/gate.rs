//! Who has no port yet: calls are answered, and nothing is kept of them.

use core::net::SocketAddr;
use std::sync::Arc;

use whimbrel_core::{Admission, CallerGate, FrameShape, Time};

use super::super::config::HopConfig;
use super::super::shapes::shapes;
use super::super::wire::{HANDSHAKE, session_index};
use super::exchange::{answer, read_proof};
use super::handshake::{
    CALL, PROOF, Parameters, Proven, Unwilling, decode_call, decode_proof, encode_cookie,
    encode_lost, encode_refusal, session_of_call, session_of_proof,
};
use super::reception::{Reception, ReceptionCounters};

/// The gate of one listener. What it answers is never longer than the question, and what it keeps
/// does not grow.
#[derive(Debug)]
pub struct Gate {
    config: HopConfig,
    window: u32,
}

impl Gate {
    /// For callers whose hops will have this configuration. `window` is told to those who call for
    /// the first time: packets that they may send before they are told the true one.
    pub fn new(config: HopConfig, window: u32) -> Gate {
        Gate {
            config: config.bounded(),
            window,
        }
    }

    fn count(&self, count: impl FnOnce(&mut ReceptionCounters)) -> Admission {
        self.config.reception.count(count);
        Admission::Refused
    }

    fn reception(&self) -> &Arc<Reception> {
        &self.config.reception
    }

    /// Answers with a notice or a cookie, if the sender's share has room for it.
    fn tell(
        &self,
        now: Time,
        to: SocketAddr,
        reply: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Admission {
        if !self.reception().may_tell(now, to) {
            return self.count(|counters| counters.limited += 1);
        }
        write(reply);
        Admission::Answered
    }

    fn consider_call(
        &mut self,
        now: Time,
        from: SocketAddr,
        frame: &[u8],
        reply: &mut Vec<u8>,
    ) -> Admission {
        let Some((call, kem_key)) = decode_call(frame) else {
            return self.count(|counters| counters.strangers += 1);
        };
        if let Some(why) = call.refused_by(self.config.plain) {
            self.count(|counters| counters.wrong_mode += 1);
            return self.tell(now, from, reply, |reply| {
                encode_refusal(why, session_of_call(frame), reply);
            });
        }
        if self.config.post_quantum.refuses(&call) {
            self.count(|counters| counters.classical += 1);
            return self.tell(now, from, reply, |reply| {
                encode_refusal(Unwilling::Classical, session_of_call(frame), reply);
            });
        }
        let reception = self.reception().clone();
        let proven =
            call.cookie != [0; 16] && reception.seat_of_proven(now, Some(from), &call).is_some();
        if proven && !reception.may_answer(now, Some(from)) {
            return self.count(|counters| counters.limited += 1);
        }
        if !proven && !reception.may_answer_unproven(now) {
            return self.tell(now, from, reply, |reply| {
                let cookie = reception.cookie(now, Some(from), &call);
                encode_cookie(call.index, &cookie, reply);
                reception.count(|counters| counters.cookies += 1);
            });
        }
        let parameters = Parameters::of(&self.config, self.window, 0);
        let answer = answer(&reception, now, Some(from), (&call, kem_key), |run| {
            Parameters { run, ..parameters }
        });
        let Some(answer) = answer else {
            return Admission::Refused;
        };
        self.count(|counters| counters.answered += 1);
        reply.extend_from_slice(&answer);
        Admission::Answered
    }

    fn consider_proof(
        &mut self,
        now: Time,
        from: SocketAddr,
        frame: &[u8],
        reply: &mut Vec<u8>,
    ) -> Admission {
        let seat = decode_proof(frame).and_then(|proving| {
            let call = &proving.call;
            let seat = self.reception().seat_of_proven(now, Some(from), call)?;
            Some((seat, proving))
        });
        let Some((seat, proving)) = seat else {
            return self.count(|counters| counters.bad_cookies += 1);
        };
        // The call may have been answered by another listener of this node.
        if proving.call.refused_by(self.config.plain).is_some() {
            return self.count(|counters| counters.wrong_mode += 1);
        }
        // A caller with one address has 65,535 ports.
        let reception = self.reception();
        if !reception.may_accept(from) || !reception.may_answer(now, Some(from)) {
            return self.count(|counters| counters.limited += 1);
        }
        // The hop reads it once more. To open a port is more work, and the port stays.
        let proof = read_proof(self.reception(), &seat, &proving, frame);
        let Some((_, Proven { key, .. })) = proof else {
            return self.count(|counters| counters.bad_proofs += 1);
        };
        if !self.reception().admits(now, key.guid(), Some(from)) {
            let about = session_of_proof(frame).unwrap_or_default();
            encode_refusal(Unwilling::NotAdmitted, about, reply);
            return Admission::Answered;
        }
        self.count(|counters| counters.admitted += 1);
        Admission::Admitted
    }
}

impl CallerGate for Gate {
    fn consider(
        &mut self,
        now: Time,
        from: SocketAddr,
        frame: &[u8],
        reply: &mut Vec<u8>,
    ) -> Admission {
        if session_index(frame).is_some() {
            self.count(|counters| counters.unknown_sessions += 1);
            return match frame.get(1..9).and_then(|echo| echo.try_into().ok()) {
                Some(echo) => self.tell(now, from, reply, |reply| encode_lost(echo, reply)),
                None => Admission::Refused,
            };
        }
        match frame {
            [first, _, _, _, ..] if *first == HANDSHAKE << 4 | CALL => {
                self.consider_call(now, from, frame, reply)
            }
            [first, _, _, _, ..] if *first == HANDSHAKE << 4 | PROOF => {
                self.consider_proof(now, from, frame, reply)
            }
            _ => self.count(|counters| counters.strangers += 1),
        }
    }

    /// Those of plain and of encrypted links, whatever this gate's is: a link that shares its socket
    /// may be of the other kind.
    fn shapes(&self) -> Vec<FrameShape> {
        shapes()
    }
}
