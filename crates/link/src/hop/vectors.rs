//! The frames of `docs/protocols/vectors/hop.txt` decode to the values in that file, and encode to
//! the same octets.

use super::wire::{Envelope, Frame, decode, encode_cack, encode_csyn, encode_data, encode_hello};

fn encode(frame: &Frame<'_>) -> Vec<u8> {
    let mut buffer = Vec::new();
    match frame {
        Frame::Hello(hello) => encode_hello(hello, &mut buffer),
        Frame::Data { session, data } => encode_data(
            Envelope::Plain(*session),
            data,
            [data.payload, &[]],
            &mut buffer,
        ),
        Frame::Csyn { session, csyn } => encode_csyn(Envelope::Plain(*session), csyn, &mut buffer),
        Frame::Cack { session, cack } => encode_cack(Envelope::Plain(*session), cack, &mut buffer),
    }
    buffer
}

#[test]
fn every_vector_decodes_to_its_values_and_encodes_to_itself() {
    let text = include_str!("../../../../docs/protocols/vectors/hop.txt");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(lines.len() >= 3 * 14 && lines.len().is_multiple_of(3));
    for block in lines.chunks(3) {
        let name = block[0].strip_prefix("name: ").unwrap();
        let frame = hex::decode(block[1].strip_prefix("frame: ").unwrap()).unwrap();
        let means = block[2].strip_prefix("means: ").unwrap();
        match decode(&frame) {
            Ok(decoded) => {
                assert_eq!(format!("{decoded:?}"), means, "{name}");
                assert_eq!(encode(&decoded), frame, "{name}");
            }
            Err(error) => assert_eq!(format!("dropped: {error}"), means, "{name}"),
        }
    }
}
