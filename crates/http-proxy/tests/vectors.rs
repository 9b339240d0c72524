//! `docs/protocols/vectors/http.txt` holds what `docs/protocols/http.md` says, byte for byte.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use proptest::prelude::*;
use whimbrel_core::Guid;
use whimbrel_http_proxy::wire::{
    BodyFrame, FRAME_HEAD, decode_request, decode_response, encode_request, encode_response,
    encode_tunnel, encode_tunnel_answer,
};

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/protocols/vectors/http.txt"
);

fn request() -> Request<()> {
    let request = Request::get("http://example.org/a?b=c").header("host", "example.org");
    request.header("accept", "*/*").body(()).unwrap()
}

fn response() -> Response<()> {
    let response = Response::builder()
        .status(200)
        .header("content-length", "5");
    response.header("via", "1.1 whimbrel").body(()).unwrap()
}

fn frames() -> Vec<(&'static str, BodyFrame)> {
    let mut trailers = HeaderMap::new();
    trailers.insert("digest", HeaderValue::from_static("abc"));
    vec![
        ("data", BodyFrame::Data(Bytes::from_static(b"hello"))),
        ("end", BodyFrame::End(HeaderMap::new())),
        ("end-with-trailers", BodyFrame::End(trailers)),
        (
            "failed",
            BodyFrame::Failed("the server has closed the connection".into()),
        ),
        (
            "content",
            BodyFrame::Content {
                name: Guid([7; 32]),
                length: 65_536,
            },
        ),
    ]
}

fn decode_frame(mut bytes: Bytes) -> Option<BodyFrame> {
    let mut head = [0; FRAME_HEAD];
    bytes.try_copy_to_slice(&mut head).ok()?;
    let length = BodyFrame::length(head).ok()?;
    (bytes.len() == length).then(|| BodyFrame::decode(head[0], bytes).ok())?
}

/// `WHIMBREL_WRITE_VECTORS=1 cargo test -p whimbrel-http-proxy --test vectors` writes the file anew.
#[test]
fn heads_and_frames_are_what_the_file_says() {
    let mut vectors = vec![
        ("request", encode_request(&request()).unwrap()),
        ("response", encode_response(&response()).unwrap()),
        ("tunnel", encode_tunnel("example.org:443").unwrap()),
        ("tunnel-answer", encode_tunnel_answer(StatusCode::OK, "")),
    ];
    vectors.extend(
        frames()
            .iter()
            .map(|(name, frame)| (*name, frame.encode().unwrap())),
    );
    let hex = |bytes: &Bytes| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let lines = vectors
        .iter()
        .map(|(name, bytes)| format!("{name} {}\n", hex(bytes)));
    let text: String = lines.collect();
    let text = format!(
        "# Heads and body frames of docs/protocols/http.md: a line `name hexadecimal-digits`.\n{text}"
    );
    if std::env::var_os("WHIMBREL_WRITE_VECTORS").is_some() {
        std::fs::write(FILE, &text).expect("the file");
    }
    assert_eq!(std::fs::read_to_string(FILE).expect("the file"), text);
    let decoded = decode_request(vectors[0].1.slice(4..)).unwrap();
    assert_eq!(
        (decoded.uri(), decoded.headers()),
        (request().uri(), request().headers())
    );
    let decoded = decode_response(vectors[1].1.slice(4..)).unwrap();
    assert_eq!(
        (decoded.status(), decoded.headers()),
        (response().status(), response().headers())
    );
    for (name, frame) in frames() {
        assert_eq!(decode_frame(frame.encode().unwrap()), Some(frame), "{name}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..5) {
        let bytes = Bytes::from(bytes);
        if let Ok(request) = decode_request(bytes.clone()) {
            prop_assert!(encode_request(&request).is_ok());
        }
        if let Ok(response) = decode_response(bytes.clone()) {
            prop_assert_eq!(&encode_response(&response).unwrap()[4..], &bytes[..]);
        }
        if let Ok(frame) = BodyFrame::decode(kind, bytes) {
            let encoded = frame.encode().unwrap();
            prop_assert_eq!(decode_frame(encoded), Some(frame));
        }
    }
}
