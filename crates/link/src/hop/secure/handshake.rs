//! The messages by which two hops prove who they are and agree on keys, as laid out in
//! `docs/protocols/hop.md`, section 9.
//!
//! The scheme is SIGMA-I with the signatures of TLS 1.3: ephemeral X25519, each end's Ed25519 key
//! signs the exchange, and the keys and signatures are encrypted. In a hybrid exchange the keys
//! follow from an ML-KEM secret as well.

use std::borrow::Cow;

use bytes::BufMut;
use core::net::{IpAddr, SocketAddr};
use curve25519_dalek::MontgomeryPoint;
use whimbrel_core::Guid;
use whimbrel_core::identity::{KeyPair, PublicKey, Signature};
use zeroize::Zeroizing;

use super::super::config::HopConfig;
use super::super::wire::{HANDSHAKE, TAG_LEN, u16_at, u32_at, u64_at};
use super::channel::{Key, Secret, Suite};
use super::kem::{CIPHERTEXT_LEN, KEM_KEY_LEN, key_hash};

/// The version of the handshake, in its third byte.
pub(in crate::hop) const HANDSHAKE_VERSION: u8 = 1;
/// Type nibbles.
pub(in crate::hop) const CALL: u8 = 0;
pub(in crate::hop) const ANSWER: u8 = 1;
pub(in crate::hop) const PROOF: u8 = 2;
pub(in crate::hop) const COOKIE: u8 = 3;
pub(in crate::hop) const LOST: u8 = 4;
pub(in crate::hop) const REFUSAL: u8 = 5;

/// Bytes of each: a CALL is padded, so that nothing that answers it is longer.
pub(in crate::hop) const CALL_LEN: usize = 240;
const ANSWER_HEAD: usize = 68;
pub(in crate::hop) const ANSWER_LEN: usize =
    ANSWER_HEAD + PublicKey::LEN + Signature::LEN + PARAMETERS_LEN + TAG_LEN;
const PROOF_HEAD: usize = 60;
pub(in crate::hop) const PROOF_LEN: usize =
    PROOF_HEAD + PublicKey::LEN + Signature::LEN + PARAMETERS_LEN + TAG_LEN;
pub(in crate::hop) const COOKIE_FRAME_LEN: usize = 24;
pub(in crate::hop) const NOTICE_LEN: usize = 12;
pub(super) const COOKIE_LEN: usize = 16;
pub(in crate::hop) const PARAMETERS_LEN: usize = 45;
const _: () = assert!(ANSWER_LEN <= CALL_LEN && COOKIE_FRAME_LEN <= CALL_LEN);

/// The same of a hybrid exchange.
pub(super) const HYBRID_CALL_LEN: usize = 1040;
const CALL_KEM_AT: usize = 56;
const HYBRID_ANSWER_HEAD: usize = ANSWER_HEAD + DEPOSIT_LEN + CIPHERTEXT_LEN;
const HYBRID_ANSWER_LEN: usize = ANSWER_LEN + DEPOSIT_LEN + CIPHERTEXT_LEN;
const HYBRID_PROOF_HEAD: usize = PROOF_HEAD + 32 + DEPOSIT_LEN;
pub(super) const HYBRID_PROOF_LEN: usize = PROOF_LEN + 32 + DEPOSIT_LEN;
const DEPOSIT_LEN: usize = 32;
const _: () = assert!(HYBRID_ANSWER_LEN <= HYBRID_CALL_LEN);
const _: () = assert!(CALL_KEM_AT + KEM_KEY_LEN <= HYBRID_CALL_LEN);

const TRANSCRIPT_CONTEXT: &str = "whimbrel 2026 hop handshake transcript";
const KEYS_CONTEXT: &str = "whimbrel 2026 hop handshake keys";
const TRAFFIC_CONTEXT: &str = "whimbrel 2026 hop traffic secrets";
const ANSWER_CONTEXT: &str = "whimbrel 2026 hop signature of who answers";
const PROOF_CONTEXT: &str = "whimbrel 2026 hop signature of who calls";

/// The caller's processor has instructions for AES.
pub(super) const FAST_AES: u8 = 1;
/// The caller's ML-KEM key is in the CALL: it asks for a hybrid exchange.
pub(super) const HYBRID: u8 = 2;
/// The caller's link is plain: it asks for frames that are not encrypted, and takes no others.
pub(super) const PLAIN: u8 = 4;
/// In the second byte of an ANSWER, beside the suite: it is one of a hybrid exchange.
const HYBRID_ANSWER: u8 = 16;

pub(super) type Cookie = [u8; COOKIE_LEN];

/// What a CALL says, and a PROOF says again: who answered it has forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// [`FAST_AES`], [`HYBRID`] and [`PLAIN`]; other bits are for later versions.
    pub(super) flags: u8,
    /// The caller's index of the session.
    pub(super) index: u32,
    /// Its ephemeral key.
    pub(super) ephemeral: [u8; 32],
    /// Proof that it receives at its address, or 0.
    pub(super) cookie: Cookie,
    /// Hash of its ML-KEM key in a hybrid exchange, otherwise 0.
    pub(super) kem: [u8; 32],
}

impl Call {
    pub(super) fn is_hybrid(&self) -> bool {
        self.flags & HYBRID != 0
    }

    pub(super) fn is_plain(&self) -> bool {
        self.flags & PLAIN != 0
    }

    /// Returns what the caller is to know if one end is plain and the other one requires encryption;
    /// `plain` says which the called end is.
    pub(super) fn refused_by(&self, plain: bool) -> Option<Unwilling> {
        match (self.is_plain(), plain) {
            (true, false) => Some(Unwilling::Plain),
            (false, true) => Some(Unwilling::Sealed),
            _ => None,
        }
    }

    /// Of two calls that cross, the one with the higher rank is answered: a hybrid one before another.
    pub(super) fn rank(&self) -> (bool, [u8; 32]) {
        (self.is_hybrid(), self.ephemeral)
    }
}

fn open(kind: u8, flags: u8, buffer: &mut Vec<u8>) {
    buffer.extend_from_slice(&[HANDSHAKE << 4 | kind, flags, HANDSHAKE_VERSION, 0]);
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// `key` is the caller's ML-KEM key, if the exchange is hybrid.
pub(super) fn encode_call(call: &Call, key: Option<&[u8; KEM_KEY_LEN]>, buffer: &mut Vec<u8>) {
    let start = buffer.len();
    open(CALL, call.flags, buffer);
    buffer.put_u32(call.index);
    buffer.extend_from_slice(&call.ephemeral);
    buffer.extend_from_slice(&call.cookie);
    buffer.extend_from_slice(key.map_or(&[], |key| &key[..]));
    let len = key.map_or(CALL_LEN, |_| HYBRID_CALL_LEN);
    buffer.resize(start + len, 0);
}

/// Returns a call, and the ML-KEM key in it if the exchange is to be hybrid.
pub(super) fn decode_call(frame: &[u8]) -> Option<(Call, Option<&[u8; KEM_KEY_LEN]>)> {
    (frame.len() >= CALL_LEN && frame[2] == HANDSHAKE_VERSION).then_some(())?;
    let key = if frame[1] & HYBRID == 0 {
        None
    } else {
        (frame.len() >= HYBRID_CALL_LEN).then_some(())?;
        Some(frame[CALL_KEM_AT..].first_chunk()?)
    };
    let call = Call {
        flags: frame[1],
        index: u32_at(frame, 4),
        ephemeral: array(frame, 8)?,
        cookie: array(frame, 40)?,
        kem: key.map_or([0; 32], key_hash),
    };
    Some((call, key))
}

/// The clear part of a PROOF: what its receiver has to know again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proving {
    /// The call that it goes with.
    pub(super) call: Call,
    /// The answerer's index of the session.
    pub(super) index: u32,
    /// See [`KemAnswer::deposit`]; 0 where the exchange is not hybrid.
    pub(super) deposit: [u8; DEPOSIT_LEN],
}

pub(super) fn decode_proof(frame: &[u8]) -> Option<Proving> {
    let hybrid = frame.len() == HYBRID_PROOF_LEN;
    (hybrid || frame.len() == PROOF_LEN).then_some(())?;
    (frame[2] == HANDSHAKE_VERSION && hybrid == (frame[1] & HYBRID != 0)).then_some(())?;
    let (kem, deposit) = match hybrid {
        true => (array(frame, PROOF_HEAD)?, array(frame, PROOF_HEAD + 32)?),
        false => ([0; 32], [0; DEPOSIT_LEN]),
    };
    let call = Call {
        flags: frame[1],
        index: u32_at(frame, 8),
        ephemeral: array(frame, 12)?,
        cookie: array(frame, 44)?,
        kem,
    };
    Some(Proving {
        call,
        index: u32_at(frame, 4),
        deposit,
    })
}

/// What an ANSWER says in a hybrid exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KemAnswer {
    /// The ML-KEM secret, masked with a hash that only the answerer can compute: the PROOF brings it
    /// back to who has kept nothing.
    pub(super) deposit: [u8; DEPOSIT_LEN],
    /// The secret for the caller.
    pub(super) ciphertext: Box<[u8; CIPHERTEXT_LEN]>,
}

/// The clear part of an ANSWER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) suite: Suite,
    /// The caller's index.
    pub(super) to: u32,
    /// The answerer's index.
    pub(super) index: u32,
    pub(super) ephemeral: [u8; 32],
    /// What the caller repeats to prove its address.
    pub(super) cookie: Cookie,
    /// Makes the key of the rest another one each time: a repeated CALL gets the same ephemeral key.
    pub(super) salt: u64,
    pub(super) kem: Option<KemAnswer>,
}

impl Answer {
    /// Its second byte.
    fn code(&self) -> u8 {
        self.suite.code() | self.kem.as_ref().map_or(0, |_| HYBRID_ANSWER)
    }

    /// The octets before its encrypted part.
    fn head_len(&self) -> usize {
        self.kem
            .as_ref()
            .map_or(ANSWER_HEAD, |_| HYBRID_ANSWER_HEAD)
    }
}

fn encode_answer_head(answer: &Answer, buffer: &mut Vec<u8>) {
    open(ANSWER, answer.code(), buffer);
    buffer.put_u32(answer.to);
    buffer.put_u32(answer.index);
    buffer.extend_from_slice(&answer.ephemeral);
    buffer.extend_from_slice(&answer.cookie);
    buffer.put_u64(answer.salt);
    if let Some(kem) = &answer.kem {
        buffer.extend_from_slice(&kem.deposit);
        buffer.extend_from_slice(&kem.ciphertext[..]);
    }
}

pub(super) fn decode_answer(frame: &[u8]) -> Option<Answer> {
    let hybrid = frame.len() == HYBRID_ANSWER_LEN;
    (hybrid || frame.len() == ANSWER_LEN).then_some(())?;
    let is_said = frame[1] & HYBRID_ANSWER != 0;
    (frame[2] == HANDSHAKE_VERSION && hybrid == is_said).then_some(())?;
    let kem = match hybrid {
        true => Some(KemAnswer {
            deposit: array(frame, ANSWER_HEAD)?,
            ciphertext: Box::new(array(frame, ANSWER_HEAD + DEPOSIT_LEN)?),
        }),
        false => None,
    };
    Some(Answer {
        suite: Suite::of_code(frame[1] & !HYBRID_ANSWER)?,
        to: u32_at(frame, 4),
        index: u32_at(frame, 8),
        ephemeral: array(frame, 12)?,
        cookie: array(frame, 44)?,
        salt: u64_at(frame, 60),
        kem,
    })
}

pub(super) fn encode_cookie(to: u32, cookie: &Cookie, buffer: &mut Vec<u8>) {
    open(COOKIE, 0, buffer);
    buffer.put_u32(to);
    buffer.extend_from_slice(cookie);
}

pub(super) fn decode_cookie(frame: &[u8]) -> Option<(u32, Cookie)> {
    (frame.len() == COOKIE_FRAME_LEN).then_some(())?;
    Some((u32_at(frame, 4), array(frame, 8)?))
}

/// A frame of a session that is not known here; `echo` is its bytes 1 to 8: nobody who has not seen
/// the frame can write it.
pub(in crate::hop) fn encode_lost(echo: [u8; 8], buffer: &mut Vec<u8>) {
    open(LOST, 0, buffer);
    buffer.extend_from_slice(&echo);
}

/// The index and the low half of the counter that a LOST repeats.
pub(in crate::hop) fn decode_lost(frame: &[u8]) -> Option<[u8; 8]> {
    (frame.len() == NOTICE_LEN).then_some(())?;
    array(frame, 4)
}

/// Why a neighbour does not talk with this end at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwilling {
    /// It requires encryption, and this end is plain.
    Plain,
    /// It is plain, and this end requires encryption.
    Sealed,
    /// It does not admit this end's name.
    NotAdmitted,
    /// It requires a hybrid exchange, and this end has not asked for one.
    Classical,
    /// It knows no hybrid exchange, and this end requires one.
    NotHybrid,
    /// It has proven another name than the one that is expected of it.
    OtherName {
        /// The name that it has proven.
        proven: Guid,
        /// The only one that this end accepts.
        expected: Guid,
    },
}

impl Unwilling {
    /// What an operator should know.
    pub fn text(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Unwilling::Plain => {
                "the neighbour requires encryption and this link is plain: remove plain here, or set it at both ends"
            }
            Unwilling::Sealed => {
                "the neighbour's link is plain and this one requires encryption: set plain at both ends or at neither"
            }
            Unwilling::NotAdmitted => {
                "the neighbour does not admit this node: there, `whimbrel router peers` (or `host peers`) shows its name, and `allow` lets it in"
            }
            Unwilling::Classical => {
                "the neighbour requires a hybrid key exchange: set post_quantum in [hop] here (or --post-quantum)"
            }
            Unwilling::NotHybrid => {
                "the neighbour knows no hybrid key exchange and this node requires one: use a newer version there, or post_quantum = \"offer\" here"
            }
            Unwilling::OtherName { proven, expected } => {
                return Cow::Owned(format!(
                    "{proven} answers there instead of {expected}: the neighbour has a new key, or somebody else has its address; \
                     to accept the new name, write name = \"{proven}\" in the [[link]], or {proven}@ before the address on the command line"
                ));
            }
        })
    }
}

/// What a REFUSAL can say, with its second byte. That a neighbour knows no hybrid exchange, or has
/// another name, is concluded from its ANSWER.
const REFUSALS: [(Unwilling, u8); 4] = [
    (Unwilling::Plain, 1),
    (Unwilling::Sealed, 2),
    (Unwilling::NotAdmitted, 3),
    (Unwilling::Classical, 4),
];

/// The session that a PROOF is about: both ends' indices.
pub(super) fn session_of_proof(frame: &[u8]) -> Option<[u8; 8]> {
    array(frame, 4)
}

/// The CALL that a refusal is about, in the place of a session: the caller's index.
pub(in crate::hop) fn session_of_call(frame: &[u8]) -> [u8; 8] {
    let mut about = [0; 8];
    about[..4].copy_from_slice(&array::<4>(frame, 4).unwrap_or_default());
    about
}

/// `about` is the session [of a PROOF](session_of_proof) or [of a CALL](session_of_call) that is
/// refused.
pub(in crate::hop) fn encode_refusal(why: Unwilling, about: [u8; 8], buffer: &mut Vec<u8>) {
    if let Some((_, code)) = REFUSALS.iter().find(|(of, _)| *of == why) {
        open(REFUSAL, *code, buffer);
        buffer.extend_from_slice(&about);
    }
}

/// Returns why a neighbour is unwilling, and the session that it refuses, or 0.
pub(in crate::hop) fn decode_refusal(frame: &[u8]) -> Option<(Unwilling, [u8; 8])> {
    (frame.len() == NOTICE_LEN).then_some(())?;
    let (why, _) = REFUSALS.iter().find(|(_, code)| *code == frame[1])?;
    Some((*why, array(frame, 4)?))
}

/// An end's description of itself, which goes encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// It reports marks, and understands reports of them.
    pub(super) reports_marks: bool,
    /// Transfers go on as they were under the former keys.
    pub(super) resumes: bool,
    /// Identifies its transfer state.
    pub(super) run: u64,
    /// The other end's `run` as it knows it, or 0.
    pub(super) knows: u64,
    /// Identifies the run of its process.
    pub(super) incarnation: u64,
    pub(super) mtu: u32,
    pub(super) chunk_limit: u32,
    pub(super) window: u32,
    pub(super) first_hop_id: u32,
    pub(super) max_chunks: u16,
    pub(super) memory: u16,
}

impl Parameters {
    pub(super) fn of(config: &HopConfig, window: u32, first_hop_id: u32) -> Parameters {
        Parameters {
            reports_marks: config.ecn,
            resumes: false,
            run: 0,
            knows: 0,
            incarnation: config.incarnation,
            mtu: config.mtu as u32,
            chunk_limit: config.chunk_limit as u32,
            window,
            first_hop_id,
            max_chunks: config.max_chunks_in_flight,
            memory: config.finished_memory,
        }
    }

    pub(super) fn encode(&self) -> [u8; PARAMETERS_LEN] {
        let mut bytes = [0; PARAMETERS_LEN];
        let mut rest = &mut bytes[..];
        rest.put_u8(u8::from(self.resumes) | u8::from(self.reports_marks) << 1);
        rest.put_u64(self.run);
        rest.put_u64(self.knows);
        rest.put_u64(self.incarnation);
        rest.put_u32(self.mtu);
        rest.put_u32(self.chunk_limit);
        rest.put_u32(self.window);
        rest.put_u32(self.first_hop_id);
        rest.put_u16(self.max_chunks);
        rest.put_u16(self.memory);
        bytes
    }

    /// Longer ones are of later versions.
    pub(super) fn decode(bytes: &[u8]) -> Option<Parameters> {
        let bytes = bytes.get(..PARAMETERS_LEN)?;
        let parameters = Parameters {
            resumes: bytes[0] & 1 != 0,
            reports_marks: bytes[0] & 2 != 0,
            run: u64_at(bytes, 1),
            knows: u64_at(bytes, 9),
            incarnation: u64_at(bytes, 17),
            mtu: u32_at(bytes, 25),
            chunk_limit: u32_at(bytes, 29),
            window: u32_at(bytes, 33),
            first_hop_id: u32_at(bytes, 37),
            max_chunks: u16_at(bytes, 41),
            memory: u16_at(bytes, 43),
        };
        (parameters.max_chunks > 0 && parameters.memory > 0).then_some(parameters)
    }
}

/// An ephemeral key.
pub(super) struct Ephemeral {
    secret: Secret,
    pub(super) public: [u8; 32],
}

impl Ephemeral {
    pub(super) fn new(secret: Secret) -> Ephemeral {
        let public = MontgomeryPoint::mul_base_clamped(*secret).to_bytes();
        Ephemeral { secret, public }
    }

    /// Returns the secret that only the two know; `None` if the other end's key is of small order.
    fn agree(&self, public: &[u8; 32]) -> Option<Secret> {
        let shared = MontgomeryPoint(*public)
            .mul_clamped(*self.secret)
            .to_bytes();
        (shared != [0; 32]).then(|| Zeroizing::new(shared))
    }
}

/// What follows from the exchange of ephemeral keys.
pub(super) struct Exchange {
    suite: Suite,
    transcript: [u8; 32],
    shared: Secret,
    // In a hybrid exchange.
    kem_shared: Option<Secret>,
}

/// A verified part of an end.
pub(super) struct Proven {
    pub(super) key: PublicKey,
    pub(super) parameters: Parameters,
}

/// The secrets of both directions.
pub(super) struct Traffic {
    pub(super) of_caller: Secret,
    pub(super) of_answerer: Secret,
}

impl Exchange {
    /// `own` is one of the two ephemeral keys; `kem_shared` is the ML-KEM secret of a hybrid exchange.
    /// The call's hash of the ML-KEM key and the secret are enough for the transcript: the secret
    /// depends on the key, and a ciphertext that carries it is made from both.
    pub(super) fn new(
        call: &Call,
        answer: &Answer,
        own: &Ephemeral,
        kem_shared: Option<Secret>,
    ) -> Option<Exchange> {
        let theirs = if own.public == call.ephemeral {
            &answer.ephemeral
        } else {
            &call.ephemeral
        };
        let hybrid = u8::from(kem_shared.is_some()) * HYBRID_ANSWER;
        let mut hasher = blake3::Hasher::new_derive_key(TRANSCRIPT_CONTEXT);
        let code = answer.suite.code() | hybrid;
        hasher.update(&[HANDSHAKE_VERSION, call.flags, code]);
        hasher.update(&call.index.to_be_bytes());
        hasher.update(&answer.index.to_be_bytes());
        hasher.update(&call.ephemeral);
        hasher.update(&answer.ephemeral);
        if kem_shared.is_some() {
            hasher.update(&call.kem);
        }
        Some(Exchange {
            suite: answer.suite,
            transcript: *hasher.finalize().as_bytes(),
            shared: own.agree(theirs)?,
            kem_shared,
        })
    }

    fn derive<const N: usize>(&self, context: &str, parts: &[&[u8]]) -> Zeroizing<[u8; N]> {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        hasher.update(self.shared.as_ref());
        if let Some(secret) = &self.kem_shared {
            hasher.update(secret.as_ref());
        }
        hasher.update(&self.transcript);
        for part in parts {
            hasher.update(part);
        }
        let mut bytes = Zeroizing::new([0; N]);
        hasher.finalize_xof().fill(bytes.as_mut());
        bytes
    }

    /// Returns the key for the encrypted part of a message of this kind.
    fn message_key(&self, kind: u8, salt: u64) -> Option<Key> {
        let secret = self.derive::<32>(KEYS_CONTEXT, &[&[kind], &salt.to_be_bytes()]);
        Key::new(self.suite, &secret)
    }

    /// What is signed: the exchange, whom it is for if that is known, and the description.
    fn statement(&self, to: Option<&PublicKey>, parameters: &[u8; PARAMETERS_LEN]) -> Vec<u8> {
        let to = to.map_or(&[][..], |key| key.as_bytes());
        [&self.transcript[..], to, parameters].concat()
    }

    fn seal_part(
        &self,
        (kind, salt): (u8, u64),
        (keys, signature): (&KeyPair, Signature),
        parameters: &[u8; PARAMETERS_LEN],
        frame: &mut Vec<u8>,
    ) -> Option<()> {
        let head = frame.len();
        frame.extend_from_slice(keys.public().as_bytes());
        frame.extend_from_slice(&signature.0);
        frame.extend_from_slice(parameters);
        frame.resize(frame.len() + TAG_LEN, 0);
        self.message_key(kind, salt)?.seal(0, head, frame)
    }

    fn open_part(
        &self,
        (kind, salt): (u8, u64),
        (frame, head): (&[u8], usize),
        statement: impl FnOnce(&[u8; PARAMETERS_LEN]) -> Vec<u8>,
        context: &str,
    ) -> Option<Proven> {
        let mut plain = Vec::with_capacity(frame.len());
        self.message_key(kind, salt)?
            .open(0, head, frame, &mut plain)?;
        let key = PublicKey(array(&plain, 0)?);
        let signature = Signature(array(&plain, 32)?);
        let bytes: [u8; PARAMETERS_LEN] = array(&plain, 96)?;
        let parameters = Parameters::decode(&bytes)?;
        key.verify(context, &statement(&bytes), &signature).ok()?;
        Some(Proven { key, parameters })
    }

    /// Returns the whole ANSWER.
    pub(super) fn write_answer(
        &self,
        answer: &Answer,
        keys: &KeyPair,
        parameters: &Parameters,
    ) -> Option<Vec<u8>> {
        let mut frame = Vec::with_capacity(HYBRID_ANSWER_LEN);
        encode_answer_head(answer, &mut frame);
        let parameters = parameters.encode();
        let signature = keys.sign(ANSWER_CONTEXT, &self.statement(None, &parameters));
        let seal = (ANSWER, answer.salt);
        self.seal_part(seal, (keys, signature), &parameters, &mut frame)?;
        Some(frame)
    }

    pub(super) fn read_answer(&self, answer: &Answer, frame: &[u8]) -> Option<Proven> {
        let statement = |parameters: &[u8; PARAMETERS_LEN]| self.statement(None, parameters);
        let at = (frame, answer.head_len());
        self.open_part((ANSWER, answer.salt), at, statement, ANSWER_CONTEXT)
    }

    /// Returns the whole PROOF, for the answerer with the key `to`.
    pub(super) fn write_proof(
        &self,
        call: &Call,
        (index, deposit): (u32, Option<[u8; DEPOSIT_LEN]>),
        keys: &KeyPair,
        to: &PublicKey,
        parameters: &Parameters,
    ) -> Option<Vec<u8>> {
        let mut frame = Vec::with_capacity(HYBRID_PROOF_LEN);
        open(PROOF, call.flags, &mut frame);
        frame.put_u32(index);
        frame.put_u32(call.index);
        frame.extend_from_slice(&call.ephemeral);
        frame.extend_from_slice(&call.cookie);
        if let Some(deposit) = deposit {
            frame.extend_from_slice(&call.kem);
            frame.extend_from_slice(&deposit);
        }
        let parameters = parameters.encode();
        let signature = keys.sign(PROOF_CONTEXT, &self.statement(Some(to), &parameters));
        self.seal_part((PROOF, 0), (keys, signature), &parameters, &mut frame)?;
        Some(frame)
    }

    /// `own` is the key of the end that answered.
    pub(super) fn read_proof(&self, frame: &[u8], own: &PublicKey) -> Option<Proven> {
        let statement = |parameters: &[u8; PARAMETERS_LEN]| self.statement(Some(own), parameters);
        let head = match self.kem_shared {
            Some(_) => HYBRID_PROOF_HEAD,
            None => PROOF_HEAD,
        };
        self.open_part((PROOF, 0), (frame, head), statement, PROOF_CONTEXT)
    }

    /// Returns the secrets of the session between these two, with what the caller's PROOF says.
    pub(super) fn traffic(
        &self,
        caller: &PublicKey,
        answerer: &PublicKey,
        proof: &Parameters,
    ) -> Traffic {
        let proof = proof.encode();
        let parts: [&[u8]; 3] = [caller.as_bytes(), answerer.as_bytes(), &proof];
        let bytes = self.derive::<64>(TRAFFIC_CONTEXT, &parts);
        let half = |at: usize| {
            let mut secret = Zeroizing::new([0; 32]);
            secret.copy_from_slice(&bytes[at..at + 32]);
            secret
        };
        Traffic {
            of_caller: half(0),
            of_answerer: half(32),
        }
    }

    pub(super) fn suite(&self) -> Suite {
        self.suite
    }

    pub(super) fn is_hybrid(&self) -> bool {
        self.kem_shared.is_some()
    }
}

/// Returns an address as it goes into a cookie; none of a carrier without addresses.
pub(super) fn address_bytes(address: Option<SocketAddr>) -> [u8; 18] {
    let mut bytes = [0; 18];
    if let Some(address) = address {
        let ip = match address.ip().to_canonical() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes[..16].copy_from_slice(&ip.octets());
        bytes[16..].copy_from_slice(&address.port().to_be_bytes());
    }
    bytes
}
