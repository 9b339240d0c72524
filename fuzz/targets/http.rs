//! Heads and body frames between the two sides of the HTTP proxy.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_http_proxy::wire::{BodyFrame, decode_request, decode_response, encode_request, encode_response};

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else {
        return;
    };
    let rest = Bytes::copy_from_slice(rest);
    if let Ok(request) = decode_request(rest.clone()) {
        let _ = encode_request(&request);
    }
    if let Ok(response) = decode_response(rest.clone()) {
        assert!(encode_response(&response).is_ok_and(|encoded| encoded[4..] == rest[..]));
    }
    if let Ok(frame) = BodyFrame::decode(*kind, rest) {
        assert!(frame.encode().is_ok());
    }
});
