//! Exchanges whose keys follow from ML-KEM as well.

use super::super::PostQuantum;
use super::super::channel::Suite;
use super::super::handshake::{
    Answer, Ephemeral, Exchange, HYBRID_CALL_LEN, HYBRID_PROOF_LEN, Parameters, decode_call,
};
use super::*;
use zeroize::Zeroizing;

fn wanting(end: usize, post_quantum: PostQuantum) -> HopConfig {
    HopConfig {
        post_quantum,
        ..config(end, 1)
    }
}

/// The first end calls.
fn wire(of_caller: PostQuantum, of_answerer: PostQuantum) -> Wire {
    Wire::of([
        wanting(0, of_caller),
        HopConfig {
            calls: false,
            ..wanting(1, of_answerer)
        },
    ])
}

fn are_hybrid(wire: &Wire) -> [bool; 2] {
    wire.ends.each_ref().map(|end| end.hop.stats().hybrid)
}

fn hybrid_caller(post_quantum: PostQuantum) -> (End, Vec<u8>) {
    let mut caller = End::new(wanting(0, post_quantum), Time::ZERO);
    let call = caller.frames(Time::ZERO).remove(0);
    (caller, call)
}

#[test]
fn a_session_is_hybrid_if_its_caller_asks_for_that() {
    use PostQuantum::{Off, Offer, Require};
    for (of_caller, of_answerer, expected) in [
        (Off, Off, false),
        (Off, Offer, false),
        (Offer, Off, true),
        (Offer, Require, true),
        (Require, Off, true),
    ] {
        let mut wire = wire(of_caller, of_answerer);
        wire.send(0, 1, 50_000);
        wire.send(1, 2, 50_000);
        wire.run(100);
        let about = format!("{of_caller:?}, {of_answerer:?}");
        assert_eq!(are_hybrid(&wire), [expected; 2], "{about}");
        assert_eq!(wire.ends[0].delivered, [1], "{about}");
        assert_eq!(wire.ends[1].delivered, [2], "{about}");
    }
}

#[test]
fn nothing_is_kept_of_a_hybrid_call_and_no_frame_is_too_long_for_any_path() {
    let mut site = Site::new(false);
    let (mut caller, call) = hybrid_caller(PostQuantum::Require);
    assert_eq!(call.len(), HYBRID_CALL_LEN);
    // `ask` asserts that the answer is no longer.
    let (_, answer) = site.ask(Time::ZERO, CALLER, &call);
    assert_eq!(site.ask(Time::ZERO, CALLER, &call).1.len(), answer.len());
    caller.handle(Time::ZERO, &answer);
    caller.hop.send(Time::ZERO, 1, chunk(1, 500), Bytes::new());
    let frames = caller.frames(Time::ZERO);
    let proof = &frames[0];
    assert_eq!(proof.len(), HYBRID_PROOF_LEN);
    // A new process has other secrets; another gate of this node has the same.
    let mut restarted = Site::new(false);
    restarted.hop = config(1, 2);
    restarted.gate = Gate::new(restarted.hop.clone(), 64);
    let (admission, _) = restarted.ask(Time::ZERO, CALLER, proof);
    assert_ne!(admission, Admission::Admitted);
    let mut same = Site::new(false);
    let (admission, _) = same.ask(Time::ZERO, CALLER, proof);
    assert_eq!(admission, Admission::Admitted);
    let mut end = same.admit(Time::ZERO, CALLER);
    for frame in &frames {
        end.handle(Time::ZERO, frame);
    }
    assert!(end.hop.stats().hybrid);
    assert_eq!(end.received.len(), 1);
}

#[test]
fn who_requires_it_refuses_calls_without_it_and_the_caller_is_told() {
    let mut wire = wire(PostQuantum::Off, PostQuantum::Require);
    wire.run(300);
    assert!(!wire.is_up());
    let told = wire.ends[0].events.clone();
    assert_eq!(told, [HopEvent::Unwilling(Unwilling::Classical)]);

    let mut site = Site::new(false);
    site.hop.post_quantum = PostQuantum::Require;
    site.gate = Gate::new(site.hop.clone(), 64);
    let (mut caller, call) = caller(false);
    let (admission, refusal) = site.ask(Time::ZERO, CALLER, &call);
    assert_eq!(admission, Admission::Answered);
    caller.handle(Time::ZERO, &refusal);
    assert_eq!(caller.hop.unwilling(), Some(Unwilling::Classical));
    assert_eq!(site.hop.reception.counters().classical, 1);

    // Who has asked for it does not believe that it has not.
    let (mut caller, _) = hybrid_caller(PostQuantum::Offer);
    caller.handle(Time::ZERO, &refusal);
    assert_eq!(caller.hop.unwilling(), None);
}

/// An answerer of a version before hybrid exchanges takes no notice of the key in a CALL.
#[test]
fn a_neighbour_that_knows_no_hybrid_exchange_is_taken_only_where_it_may_be() {
    for post_quantum in [PostQuantum::Offer, PostQuantum::Require] {
        let (mut caller, frame) = hybrid_caller(post_quantum);
        let (call, _) = decode_call(&frame).unwrap();
        let own = Ephemeral::new(Zeroizing::new([4; 32]));
        let answer = Answer {
            suite: Suite::Aes128Gcm,
            to: call.index,
            index: 7,
            ephemeral: own.public,
            cookie: [9; 16],
            salt: 1,
            kem: None,
        };
        let exchange = Exchange::new(&call, &answer, &own, None).unwrap();
        let parameters = Parameters::of(&config(1, 1), 64, 5);
        let answer = exchange
            .write_answer(&answer, &keys(1), &parameters)
            .unwrap();
        caller.handle(Time::ZERO, &answer);
        let may = post_quantum == PostQuantum::Offer;
        assert_eq!(caller.hop.is_up(), may);
        assert!(!caller.hop.stats().hybrid);
        let unwilling = (!may).then_some(Unwilling::NotHybrid);
        assert_eq!(caller.hop.unwilling(), unwilling);
    }
}

#[test]
fn of_two_calls_that_cross_the_hybrid_one_is_answered() {
    for run in 1..9 {
        let mut wire = Wire::of([
            HopConfig {
                post_quantum: PostQuantum::Require,
                ..config(0, run)
            },
            config(1, 1),
        ]);
        wire.run(100);
        assert_eq!(are_hybrid(&wire), [true; 2], "{run}");
    }
}

#[test]
fn keys_are_renewed_by_hybrid_exchanges() {
    let mut wire = wire(PostQuantum::Offer, PostQuantum::Off);
    wire.send(0, 1, 50_000);
    wire.run(100);
    let calls = |wire: &Wire| {
        let calls = wire.seen[1].iter();
        calls
            .filter(|frame| frame.len() == HYBRID_CALL_LEN && frame[0] == 0x30)
            .count()
    };
    assert_eq!(calls(&wire), 1);
    for _ in 0..800 {
        wire.run(1);
        wire.pass(999);
    }
    assert!(calls(&wire) > 1);
    assert_eq!(are_hybrid(&wire), [true; 2]);
    assert_eq!(wire.ends[0].hop.stats().sessions, 1, "transfers go on");
}

/// A path that loses frames of more than 1,000 octets.
#[test]
fn a_path_too_narrow_for_it_is_used_without_it_where_it_is_only_offered() {
    for post_quantum in [PostQuantum::Offer, PostQuantum::Require] {
        let mut wire = wire(post_quantum, PostQuantum::Off);
        for _ in 0..40 {
            for _ in 0..10 {
                wire.collect();
                for frames in &mut wire.on_the_way {
                    frames.retain(|frame| frame.len() <= 1_000);
                }
                wire.run(1);
            }
            wire.pass(990);
        }
        assert_eq!(wire.ends[0].hop.is_up(), post_quantum == PostQuantum::Offer);
        assert_eq!(are_hybrid(&wire), [false; 2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whoever changes an octet of a message prevents the session, and brings about no other one. What
    /// is behind the key in a CALL is padding, and the cookie there proves an address at most.
    #[test]
    fn a_hybrid_exchange_cannot_be_changed_on_the_way(
        message in 0..3usize, at: prop::sample::Index, flip in 1u8..,
    ) {
        let mut site = Site::new(false);
        let (mut caller, mut call) = hybrid_caller(PostQuantum::Require);
        let change = |frame: &mut Vec<u8>, len: usize| {
            let at = at.index(len);
            frame[at] ^= flip;
        };
        if message == 0 {
            change(&mut call, 856);
        }
        let (_, mut answer) = site.ask(Time::ZERO, CALLER, &call);
        if message == 1 {
            let len = answer.len();
            change(&mut answer, len);
        }
        caller.handle(Time::ZERO, &answer);
        // The octet behind the version is not used, and a call with a wrong cookie is one without.
        let is_ignored = at.index(856) == 3 || (40..56).contains(&at.index(856));
        if message == 2 {
            prop_assert!(caller.hop.is_up());
            let mut proof = caller.frames(Time::ZERO).swap_remove(0);
            let len = proof.len();
            change(&mut proof, len);
            let (admission, _) = site.ask(Time::ZERO, CALLER, &proof);
            prop_assert!(at.index(len) == 3 || admission != Admission::Admitted);
        } else if message == 0 && !is_ignored {
            prop_assert!(!caller.hop.is_up());
        } else if message == 1 && at.index(answer.len()) != 3 {
            prop_assert!(!caller.hop.is_up());
        }
    }
}
