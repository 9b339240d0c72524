//! A message of a neighbouring router, decoded, and handled by the routing of a router.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_core::{KeyPair, Time};
use whimbrel_routing::{Message, Routing};

fuzz_target!(|data: &[u8]| {
    let neighbour = KeyPair::from_secret(&[2; 32]).guid();
    let now = Time::from_secs(1);
    let mut routing = Routing::new(now, KeyPair::from_secret(&[1; 32]));
    routing.handle_up(now, neighbour, true);
    // Two messages, divided where the first octet says.
    let Some((at, rest)) = data.split_first() else {
        return;
    };
    let (one, other) = rest.split_at(rest.len().min(usize::from(*at)));
    for bytes in [one, other] {
        if let Ok(message) = Message::decode(bytes) {
            let mut written = Vec::new();
            message.encode(&mut written);
            assert_eq!(
                written, bytes,
                "a message that was read is written as another one"
            );
            let _ = routing.handle_message(now, neighbour, message);
        }
    }
    for step in 1..20 {
        routing.handle_timeout(now + core::time::Duration::from_millis(step * 500));
        while routing.poll_message().is_some() {}
    }
});
