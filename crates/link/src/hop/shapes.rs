//! What frames of Hop have in common, so that noise is told from them before anything is read.

use whimbrel_core::FrameShape;

use super::secure::handshake::{
    ANSWER, ANSWER_LEN, CALL, CALL_LEN, COOKIE, COOKIE_FRAME_LEN, HANDSHAKE_VERSION, LOST,
    NOTICE_LEN, PARAMETERS_LEN, PROOF, PROOF_LEN, REFUSAL,
};
use super::wire::{
    CACK, CSYN, DATA, Envelope, HANDSHAKE, HELLO, HELLO_LEN, INNER_HEAD, SEALED, SEALED_HEAD,
    TAG_LEN, VERSION,
};

/// Octets of a sealed frame with parameters.
const SEALED_HELLO_LEN: usize = SEALED_HEAD + INNER_HEAD + PARAMETERS_LEN + TAG_LEN;

/// Returns the shapes of all frames that a hop or a gate takes, plain, sealed and of the handshake.
/// Lengths are those of the shortest frames: a hybrid message is longer than the other one of its type.
pub(super) fn shapes() -> Vec<FrameShape> {
    let envelope = Envelope::Plain(0);
    let plain = [
        (HELLO, HELLO_LEN),
        (DATA, envelope.data_overhead() + 1),
        (CSYN, envelope.csyn_len()),
        (CACK, envelope.cack_len()),
    ];
    let plain = plain.map(|(kind, len)| FrameShape::beginning(VERSION << 4 | kind, len));
    let envelope = Envelope::Sealed;
    let sealed = [
        (HELLO, SEALED_HELLO_LEN),
        (DATA, envelope.data_overhead() + 1),
        (CSYN, envelope.csyn_len()),
        (CACK, envelope.cack_len()),
    ];
    // Between the version and the type are two bits of the epoch.
    let sealed = sealed.map(|(kind, len)| FrameShape {
        mask: 0xf3 << 24,
        ..FrameShape::beginning(SEALED << 4 | kind, len)
    });
    let handshake = [
        (CALL, CALL_LEN),
        (ANSWER, ANSWER_LEN),
        (PROOF, PROOF_LEN),
        (COOKIE, COOKIE_FRAME_LEN),
        (LOST, NOTICE_LEN),
        (REFUSAL, NOTICE_LEN),
    ];
    let handshake = handshake.map(|(kind, shortest)| FrameShape {
        mask: 0xff00_ff00,
        value: u32::from_be_bytes([HANDSHAKE << 4 | kind, 0, HANDSHAKE_VERSION, 0]),
        shortest,
    });
    [&plain[..], &sealed[..], &handshake[..]].concat()
}

/// Returns true if the frame has one of the shapes. Tests of all kinds ask it of each frame that is
/// sent.
#[cfg(test)]
pub(super) fn fits(frame: &[u8]) -> bool {
    shapes().iter().any(|shape| shape.fits(frame))
}

#[cfg(test)]
mod tests {
    use super::super::wire::decode;
    use super::*;

    #[test]
    fn every_frame_of_the_vectors_that_is_taken_has_a_shape() {
        let plain = include_str!("../../../../docs/protocols/vectors/hop.txt");
        let frames = plain
            .lines()
            .filter_map(|line| line.strip_prefix("frame: "));
        let taken = |frame: &Vec<u8>| decode(frame).is_ok();
        let plain: Vec<Vec<u8>> = frames
            .map(|it| hex::decode(it).unwrap())
            .filter(taken)
            .collect();
        for kind in [HELLO, DATA, CSYN, CACK] {
            assert!(plain.iter().any(|frame| frame[0] & 15 == kind), "{kind}");
        }
        let sealed = [
            include_str!("../../../../docs/protocols/vectors/hop-session.txt"),
            include_str!("../../../../docs/protocols/vectors/hop-session-hybrid.txt"),
        ];
        let lines = sealed.iter().flat_map(|text| text.lines());
        let is_frame = |name: &str| {
            ["call", "answer", "proof"].contains(&name)
                || name.starts_with("probe")
                || name.starts_with("the same")
        };
        let sealed: Vec<Vec<u8>> = lines
            .filter_map(|line| line.split_once(": "))
            .filter(|(name, _)| is_frame(name))
            .map(|(_, frame)| hex::decode(frame).unwrap())
            .collect();
        assert_eq!(sealed.len(), 2 * 5);
        for frame in plain.iter().chain(&sealed) {
            assert!(fits(frame), "{}", hex::encode(frame));
        }
    }

    #[test]
    fn what_is_shorter_than_every_frame_or_of_no_type_has_no_shape() {
        for len in [0, 1, 2, 3, 4, 8, 11] {
            for first in 0..=255u8 {
                let mut noise = vec![1; len];
                noise.iter_mut().take(1).for_each(|it| *it = first);
                assert!(!fits(&noise), "{len} octets, {first:#x}");
            }
        }
        // As long as all frames of these types, less one octet.
        for (first, len) in [
            (0x10, 84),
            (0x11, 21),
            (0x12, 24),
            (0x13, 44),
            (0x20, 73),
            (0x2d, 37),
            (0x22, 40),
            (0x2f, 60),
            (0x30, 240),
            (0x31, 225),
            (0x32, 217),
            (0x33, 24),
            (0x34, 12),
            (0x35, 12),
        ] {
            let mut noise = vec![0; len];
            (noise[0], noise[2]) = (first, 1);
            assert!(fits(&noise), "{first:#x}");
            assert!(!fits(&noise[1..]) && !fits(&noise[..len - 1]), "{first:#x}");
        }
        for first in [0, 0x0f, 0x14, 0x1f, 0x36, 0x3f, 0x40, 0xff] {
            assert!(!fits(&[first; 1_400]), "{first:#x}");
        }
        let mut later = [0x30; 240];
        later[2] = 2;
        assert!(!fits(&later), "another version of the handshake");
    }
}
