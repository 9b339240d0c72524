//! Messages of streams: what a peer may send to an endpoint.
#![no_main]

use core::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_stream::{StreamEndpoint, StreamEndpointOptions, StreamEvent, StreamPacket};

const PEER: Guid = Guid([1; 32]);

fuzz_target!(|data: &[u8]| {
    if let Ok(packet) = StreamPacket::decode(&Bytes::copy_from_slice(data)) {
        assert_eq!(StreamPacket::decode(&packet.encode()), Ok(packet));
    }
    let options = StreamEndpointOptions {
        accepts: true,
        max_streams: 8,
        patience: Duration::from_secs(60),
        secret: [7; 32],
    };
    let mut endpoint = StreamEndpoint::new(options, SeededRng::new(1));
    let Ok(own) = endpoint.open(Time::ZERO, PEER) else {
        return;
    };
    endpoint.write(Time::ZERO, own, &Bytes::from_static(&[5; 100_000]));
    // Each message: a length, and its bytes; the own stream's number and a valid token can be had.
    let mut rest = data;
    for round in 0..64 {
        let now = Time::from_millis(round * 100);
        let [length, manner, behind @ ..] = rest else {
            break;
        };
        let length = usize::from(*length).min(behind.len());
        let mut message = behind[..length].to_vec();
        rest = &behind[length..];
        if manner & 1 != 0 && message.len() >= 10 {
            (message[0], message[1]) = (1, 1);
            message[2..10].copy_from_slice(&own.stream.to_be_bytes());
        }
        endpoint.handle_message(now, PEER, &message.into());
        endpoint.handle_timeout(now);
        while endpoint.poll_transmit(now).is_some() {}
        while let Some(event) = endpoint.poll_event() {
            if let StreamEvent::Readable(key) | StreamEvent::Accepted(key) = event {
                endpoint.read(key, 1000);
            }
        }
    }
});
