//! Both sides, and a network between them that loses, repeats and reorders.

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use whimbrel_core::Guid;

use crate::message::Body;
use crate::{Code, Given, Giver, MAX_WRONG, Message, Refusal, Taker, TakerError};

const SENDER: Guid = Guid([1; 32]);
const SECRET: &[u8] = b"whimbrel1 and where to ask";

fn code(word: u8) -> Code {
    Code::new(7, [word, 2, 3]).unwrap()
}

fn giver() -> Giver {
    Giver::new(code(1), SECRET.to_vec()).unwrap()
}

/// Completes an exchange over a network without faults.
fn take(
    giver: &mut Giver,
    code: &Code,
    session: u8,
    rng: &mut ChaCha20Rng,
) -> (Result<Vec<u8>, TakerError>, Vec<Given>) {
    let mut taker = Taker::new(code, [session; 16], rng);
    let mut given = Vec::new();
    for _ in 0..2 {
        let (answer, said) = giver.handle(SENDER, &taker.message().encode(), rng);
        given.extend(said);
        if let Some(end) = taker.handle(&answer.unwrap().encode()) {
            return (end, given);
        }
    }
    panic!("two round trips are enough");
}

#[test]
fn only_a_taker_with_the_code_gets_the_secret() {
    let (mut giver, mut rng) = (giver(), ChaCha20Rng::seed_from_u64(1));
    let (end, given) = take(&mut giver, &code(1), 1, &mut rng);
    assert_eq!((end, given), (Ok(SECRET.to_vec()), vec![Given::Taken]));
    let (end, given) = take(&mut giver, &code(9), 2, &mut rng);
    let left = MAX_WRONG - 1;
    assert_eq!(end, Err(Refusal::Wrong.into()));
    assert_eq!(given, [Given::Wrong { left }]);
    let other_number = Code::new(8, [1, 2, 3]).unwrap();
    let (end, given) = take(&mut giver, &other_number, 3, &mut rng);
    assert_eq!((end, given), (Err(Refusal::Number.into()), vec![]));
    assert!(take(&mut giver, &code(1), 4, &mut rng).0.is_ok());
}

#[test]
fn open_exchanges_give_an_attacker_no_more_guesses() {
    let (mut giver, mut rng) = (giver(), ChaCha20Rng::seed_from_u64(2));
    // The attacker begins many exchanges, of which one has the right code, and then confirms all.
    let guesses = (0..60).map(|guess| (code(100 - guess), guess));
    let mut takers: Vec<Taker> = guesses
        .chain([(code(1), 99)])
        .map(|(guess, session)| Taker::new(&guess, [session; 16], &mut rng))
        .collect();
    for taker in &mut takers {
        let (answer, given) = giver.handle(SENDER, &taker.message().encode(), &mut rng);
        assert_eq!(
            (taker.handle(&answer.unwrap().encode()), given),
            (None, None)
        );
    }
    let mut ends = Vec::new();
    for taker in &mut takers {
        let (answer, _) = giver.handle(SENDER, &taker.message().encode(), &mut rng);
        ends.push(taker.handle(&answer.unwrap().encode()).unwrap());
    }
    let tried = MAX_WRONG as usize;
    let is = |end: &Result<Vec<u8>, TakerError>, why: Refusal| *end == Err(why.into());
    assert!(ends[..tried].iter().all(|end| is(end, Refusal::Wrong)));
    assert!(ends[tried..].iter().all(|end| is(end, Refusal::UsedUp)));
    assert!(giver.is_used_up());
    let (end, _) = take(&mut giver, &code(1), 200, &mut rng);
    assert_eq!(end, Err(Refusal::UsedUp.into()));
}

#[test]
fn a_repeated_guess_counts_once_and_cannot_be_replaced() {
    let (mut giver, mut rng) = (giver(), ChaCha20Rng::seed_from_u64(3));
    let mut taker = Taker::new(&code(9), [1; 16], &mut rng);
    let (answer, _) = giver.handle(SENDER, &taker.message().encode(), &mut rng);
    taker.handle(&answer.unwrap().encode());
    let guess = taker.message();
    let mut other = guess.clone();
    other.body = Body::Confirmation([0; 32]);
    let mut counted = 0;
    for message in [&guess, &guess, &other, &guess] {
        let (answer, given) = giver.handle(SENDER, &message.encode(), &mut rng);
        assert_eq!(answer.unwrap().body, Body::Refusal(Refusal::Wrong));
        counted += usize::from(given.is_some());
    }
    assert_eq!(counted, 1);
}

#[test]
fn an_answer_without_the_code_is_detected() {
    let (mut rng, right) = (ChaCha20Rng::seed_from_u64(6), code(1));
    // The impostor has a code of the same number, and answers where it should refuse.
    let mut impostor = Giver::new(code(9), b"another".to_vec()).unwrap();
    let mut taker = Taker::new(&right, [1; 16], &mut rng);
    let (answer, _) = impostor.handle(SENDER, &taker.message().encode(), &mut rng);
    taker.handle(&answer.unwrap().encode());
    let body = Body::Sealed(vec![0; 40]);
    let session = [1; 16];
    let end = taker.handle(&Message { session, body }.encode());
    assert_eq!(end, Some(Err(TakerError::Impostor)));
    // The impostor returns the taker's own share.
    let mut taker = Taker::new(&right, [1; 16], &mut rng);
    let Body::Hello { share, .. } = taker.message().body else {
        panic!("a taker begins")
    };
    let body = Body::Answer(share);
    let end = taker.handle(&Message { session, body }.encode());
    assert_eq!(end, Some(Err(TakerError::Impostor)));
}

#[test]
fn memory_is_bounded_and_a_forgotten_taker_is_told() {
    let (mut giver, mut rng) = (giver(), ChaCha20Rng::seed_from_u64(7));
    let mut first = Taker::new(&code(1), [0; 16], &mut rng);
    let (answer, _) = giver.handle(SENDER, &first.message().encode(), &mut rng);
    first.handle(&answer.unwrap().encode());
    for number in 1..=64 {
        let taker = Taker::new(&code(9), [number; 16], &mut rng);
        giver.handle(SENDER, &taker.message().encode(), &mut rng);
    }
    let (answer, given) = giver.handle(SENDER, &first.message().encode(), &mut rng);
    assert_eq!(given, None);
    let end = first.handle(&answer.unwrap().encode());
    assert_eq!(end, Some(Err(Refusal::Forgotten.into())));
    assert!(Giver::new(code(1), vec![0; 4096]).is_none());
}

#[test]
fn a_sender_that_begins_thousands_of_exchanges_pushes_out_its_own_only() {
    let (mut giver, mut rng) = (giver(), ChaCha20Rng::seed_from_u64(9));
    let mut honest = Taker::new(&code(1), [0; 16], &mut rng);
    let hello = honest.message().encode();
    let (answer, _) = giver.handle(Guid([2; 32]), &hello, &mut rng);
    for number in 1..=200 {
        let taker = Taker::new(&code(9), [number; 16], &mut rng);
        giver.handle(SENDER, &taker.message().encode(), &mut rng);
    }
    honest.handle(&answer.unwrap().encode());
    let (sealed, given) = giver.handle(Guid([2; 32]), &honest.message().encode(), &mut rng);
    assert_eq!(given, Some(Given::Taken));
    let end = honest.handle(&sealed.unwrap().encode());
    assert_eq!(end, Some(Ok(SECRET.to_vec())));
}

proptest! {
    /// Each step delivers one of the messages that were ever sent to one side, or drops it.
    #[test]
    fn loss_copies_and_disorder_delay_the_secret_and_spoil_nothing(steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40)) {
        let (mut giver, mut rng) = (giver(), ChaCha20Rng::seed_from_u64(8));
        let mut taker = Taker::new(&code(1), [1; 16], &mut rng);
        let mut to_giver = vec![taker.message()];
        let mut to_taker: Vec<Message> = Vec::new();
        let mut taken = 0;
        let mut end = None;
        for (is_to_giver, which) in steps {
            if is_to_giver {
                let (answer, given) = giver.handle(SENDER, &which.get(&to_giver).encode(), &mut rng);
                to_taker.extend(answer);
                taken += usize::from(given == Some(Given::Taken));
                let is_wrong = matches!(given, Some(Given::Wrong { .. }));
                prop_assert!(!is_wrong);
            } else if !to_taker.is_empty() && end.is_none() {
                end = taker.handle(&which.get(&to_taker).encode());
                to_giver.push(taker.message());
            }
        }
        prop_assert!(taken <= 1);
        if let Some(end) = end {
            prop_assert_eq!(end, Ok(SECRET.to_vec()));
        }
        prop_assert!(!giver.is_used_up());
    }

    #[test]
    fn messages_round_trip(session: [u8; 16], kind in 0u8..6, rest in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut bytes = vec![1, kind];
        bytes.extend_from_slice(&session);
        bytes.extend_from_slice(&rest);
        for length in 0..bytes.len() {
            let _ = Message::decode(&bytes[..length]);
        }
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(message.encode(), bytes);
        }
    }
}
