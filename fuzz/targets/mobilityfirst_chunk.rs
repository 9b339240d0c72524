//! A chunk as any neighbour may send it: headers, extensions and every message.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_mobilityfirst::chunk::Chunk;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};
use whimbrel_mobilityfirst::wire::{Control, Echo, Transport};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(chunk) = Chunk::decode(&bytes) {
        let (head, body) = chunk.clone().into_pieces();
        let again = Chunk::decode(&[head, body].concat().into());
        assert_eq!(
            again,
            Ok(chunk),
            "a chunk that was read is written as another one"
        );
    }
    let _ = Control::decode(&bytes);
    let _ = Echo::decode(&bytes);
    if let Ok(message) = Transport::decode(&bytes) {
        let mut written = Vec::new();
        message.encode_head(&mut written);
        if let Transport::Data(data) = &message {
            written.extend_from_slice(&data.payload);
        }
        assert_eq!(Transport::decode(&written.into()), Ok(message));
    }
    let _ = LocalRequest::decode(&bytes);
    let _ = LocalEvent::decode(&bytes);
});
