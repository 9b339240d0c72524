//! The exchange of a spoken code: what anybody may send to who gives a ticket, and to who takes one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use whimbrel_core::Guid;
use whimbrel_spoken::message::Body;
use whimbrel_spoken::{Code, Given, Giver, MAX_WRONG, Message, Taker};

/// Messages of one run: each costs a computation on the curve at most.
const MAX_MESSAGES: usize = 32;
/// The session of the taker.
const SESSION: [u8; 16] = [7; 16];

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = core::str::from_utf8(data) {
        let is_meant = Code::is_meant_by(text);
        if let Ok(code) = text.parse::<Code>() {
            assert!(is_meant);
            assert_eq!(code.to_string().parse(), Ok(code));
        }
    }
    if let Ok(message) = Message::decode(data) {
        assert_eq!(message.encode(), data);
    }
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let (Some(code), Some(other)) = (Code::new(7, [1, 2, 3]), Code::new(7, [3, 2, 1])) else {
        return;
    };
    let Some(mut giver) = Giver::new(code, b"a ticket".to_vec()) else {
        return;
    };
    let mut taker = Taker::new(&code, SESSION, &mut rng);
    let guesser = Taker::new(&other, SESSION, &mut rng);
    let (mut wrong, mut is_over) = (0, false);
    // Each message: a length, whom it goes to and how it begins, and its bytes.
    let mut rest = data;
    for _ in 0..MAX_MESSAGES {
        let [length, manner, behind @ ..] = rest else {
            break;
        };
        let (bytes, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = behind;
        let message = match manner >> 1 {
            0 => bytes.to_vec(),
            1 => taker.message().encode(),
            2 => guesser.message().encode(),
            kind => {
                let mut message = vec![1, kind % 5];
                message.extend_from_slice(&SESSION);
                message.extend_from_slice(bytes);
                message
            }
        };
        if manner & 1 == 0 {
            // Whoever guesses has another name than whom the code was given to.
            let from = Guid([1 + u8::from(manner >> 1 == 2); 32]);
            let (answer, given) = giver.handle(from, &message, &mut rng);
            match given {
                Some(Given::Taken) => assert!(wrong < MAX_WRONG),
                Some(Given::Wrong { left }) => {
                    wrong += 1;
                    assert_eq!(left, MAX_WRONG - wrong);
                }
                None => {}
            }
            if let Some(answer) = answer
                && !is_over
            {
                let is_sealed = matches!(answer.body, Body::Sealed(_));
                let end = taker.handle(&answer.encode());
                if let (true, Some(Ok(secret))) = (is_sealed, &end) {
                    assert_eq!(secret, b"a ticket");
                }
                is_over = end.is_some();
            }
        } else if !is_over {
            let end = taker.handle(&message);
            // Nobody who does not know the code has a secret for the taker.
            assert!(!matches!(end, Some(Ok(_))));
            is_over = end.is_some();
        }
    }
});
