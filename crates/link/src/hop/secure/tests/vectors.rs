//! Sessions are the same for the same seeds, and as their vectors say.

use super::super::super::wire::{Csyn, encode_csyn};
use super::super::channel::{Channel, Suite};
use super::super::handshake::{
    Answer, Call, Ephemeral, Exchange, FAST_AES, HYBRID, KemAnswer, PLAIN, Parameters, encode_call,
};
use super::super::kem::{KemPair, encapsulate, key_hash};
use super::*;
use zeroize::Zeroizing;

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let bytes = || {
        let mut wire = Wire::new();
        wire.send(0, 1, 10_000);
        wire.run(50);
        wire.seen
    };
    assert_eq!(bytes(), bytes());
    let other = Arc::new(Reception::new(keys(0), [9; 32], true));
    assert_ne!(*other.draw(), *config(0, 1).reception.draw());
}

/// Returns a whole exchange between fixed keys, as `docs/protocols/vectors/hop-session.txt` has it,
/// `hop-session-hybrid.txt`, or of a plain link `hop-session-plain.txt`.
fn session_vectors(suite: Suite, hybrid: bool) -> String {
    let (caller, answerer) = (keys(0), keys(1));
    let secrets = [[3; 32], [4; 32]];
    let [own, other] = secrets.map(|secret| Ephemeral::new(Zeroizing::new(secret)));
    let pair = hybrid.then(|| KemPair::new([[5; 32], [6; 32]].map(Zeroizing::new)));
    let key = pair.as_ref().map(KemPair::public);
    let secret = key.map(|key| encapsulate(key, &Zeroizing::new([7; 32])).unwrap());
    let call = Call {
        flags: FAST_AES | key.map_or(0, |_| HYBRID) | (u8::from(suite == Suite::Plain) * PLAIN),
        index: 0x0102_0304,
        ephemeral: own.public,
        cookie: [0; 16],
        kem: key.map_or([0; 32], key_hash),
    };
    let answer = Answer {
        suite,
        to: call.index,
        index: 0x0506_0708,
        ephemeral: other.public,
        cookie: [9; 16],
        salt: 0x0a0b_0c0d_0e0f_1011,
        kem: secret.as_ref().map(|(ciphertext, _)| KemAnswer {
            deposit: [8; 32],
            ciphertext: Box::new(*ciphertext),
        }),
    };
    let parameters = |run: u64, knows: u64| Parameters {
        reports_marks: true,
        resumes: false,
        run,
        knows,
        incarnation: 7,
        mtu: 1_472,
        chunk_limit: 4 << 20,
        window: 64,
        first_hop_id: 5,
        max_chunks: 256,
        memory: 1_024,
    };
    let secret = secret.map(|(_, secret)| secret);
    let exchange = Exchange::new(&call, &answer, &own, secret.clone()).unwrap();
    let mut first = Vec::new();
    encode_call(&call, key, &mut first);
    let second = exchange
        .write_answer(&answer, &answerer, &parameters(21, 0))
        .unwrap();
    let proof = parameters(22, 21);
    let repeated = Call {
        cookie: answer.cookie,
        ..call
    };
    let deposit = answer.kem.as_ref().map(|kem| kem.deposit);
    let to = (answer.index, deposit);
    let third = exchange
        .write_proof(&repeated, to, &caller, &answerer.public(), &proof)
        .unwrap();
    let traffic = exchange.traffic(&caller.public(), &answerer.public(), &proof);
    let indices = (call.index, answer.index);
    let (of_caller, of_answerer) = (&traffic.of_caller, &traffic.of_answerer);
    let lead = (answer.suite, true);
    let mut channel = Channel::new(Time::ZERO, lead, indices, of_caller, of_answerer).unwrap();
    let frames = probes(&mut channel);
    let kem = secret.map_or(String::new(), |secret| kem_lines(&secret));
    kem + &format!(
        "ed25519 seed of the caller: {}\ned25519 seed of the answerer: {}\n\
         ephemeral secret of the caller: {}\nephemeral secret of the answerer: {}\n\
         call: {}\nanswer: {}\nproof: {}\n\
         traffic secret of the caller: {}\ntraffic secret of the answerer: {}\n\
         probe with number 1, counter 0: {}\nthe same after 120 s, counter 1, epoch {}: {}\n",
        hex::encode([1; 32]),
        hex::encode([2; 32]),
        hex::encode(secrets[0]),
        hex::encode(secrets[1]),
        hex::encode(first),
        hex::encode(second),
        hex::encode(third),
        hex::encode(traffic.of_caller.as_ref()),
        hex::encode(traffic.of_answerer.as_ref()),
        frames[0],
        u8::from(suite != Suite::Plain),
        frames[1],
    )
}

/// Returns two probes, of which the second one goes under the next key.
fn probes(channel: &mut Channel) -> Vec<String> {
    let mut frames = Vec::new();
    for at in [Time::ZERO, Time::from_secs(120)] {
        let mut frame = Vec::new();
        let probe = Csyn {
            number: 1,
            about: None,
        };
        encode_csyn(channel.envelope(), &probe, &mut frame);
        channel.seal(at, &mut frame).unwrap();
        frames.push(hex::encode(frame));
    }
    frames
}

fn kem_lines(secret: &[u8; 32]) -> String {
    format!(
        "ml-kem seed of the caller (d, z): {}{}\nml-kem random of the answerer: {}\n\
         ml-kem secret: {}\ndeposit: {}\n",
        hex::encode([5; 32]),
        hex::encode([6; 32]),
        hex::encode([7; 32]),
        hex::encode(secret),
        hex::encode([8; 32]),
    )
}

#[test]
fn the_vectors_of_a_session_hold() {
    let classical = include_str!("../../../../../../docs/protocols/vectors/hop-session.txt");
    let hybrid = include_str!("../../../../../../docs/protocols/vectors/hop-session-hybrid.txt");
    let plain = include_str!("../../../../../../docs/protocols/vectors/hop-session-plain.txt");
    for (text, suite, is_hybrid) in [
        (classical, Suite::Aes128Gcm, false),
        (hybrid, Suite::Aes128Gcm, true),
        (plain, Suite::Plain, false),
    ] {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let written: String = lines.flat_map(|line| [line, "\n"]).collect();
        assert_eq!(session_vectors(suite, is_hybrid), written);
    }
}
