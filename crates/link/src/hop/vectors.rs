//! The frames of `docs/protocols/vectors/hop.txt` decode to the values in that file, and encode to
//! the same octets.

use super::wire::{
    CRC_LEN, Content, Envelope, HEAD_LEN, Opened, decode_opened, encode_cack, encode_csyn,
    encode_data, encode_parameters,
};

/// Returns the frame whose head and checksum are those of `frame`.
fn encode(opened: &Opened<'_>, frame: &[u8]) -> Vec<u8> {
    let (mut buffer, envelope) = (Vec::new(), Envelope::Plain);
    match opened {
        Opened::Parameters(bytes) => encode_parameters(envelope, bytes, &mut buffer),
        Opened::Content(Content::Data(data)) => {
            encode_data(envelope, data, [data.payload, &[]], &mut buffer);
        }
        Opened::Content(Content::Csyn(csyn)) => encode_csyn(envelope, csyn, &mut buffer),
        Opened::Content(Content::Cack(cack)) => encode_cack(envelope, cack, &mut buffer),
    }
    let crc_at = buffer.len() - CRC_LEN;
    buffer[1..HEAD_LEN].copy_from_slice(&frame[1..HEAD_LEN]);
    let crc = crc_fast::crc32_iscsi(&buffer[..crc_at]);
    buffer[crc_at..].copy_from_slice(&crc.to_be_bytes());
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
        let (body, crc) = frame.split_last_chunk::<CRC_LEN>().unwrap();
        if crc_fast::crc32_iscsi(body).to_be_bytes() != *crc {
            assert_eq!(means, "dropped: the checksum does not match", "{name}");
            continue;
        }
        match decode_opened(frame[0], &body[HEAD_LEN..]) {
            Ok(opened) => {
                assert_eq!(format!("{opened:?}"), means, "{name}");
                assert_eq!(encode(&opened, &frame), frame, "{name}");
            }
            Err(error) => assert_eq!(format!("dropped: {error}"), means, "{name}"),
        }
    }
}
