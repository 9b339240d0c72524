//! What frames of Hop have in common, so that noise is told from them before anything is read.

use whimbrel_core::FrameShape;

use super::secure::handshake::{
    ANSWER, ANSWER_LEN, CALL, CALL_LEN, COOKIE, COOKIE_FRAME_LEN, HANDSHAKE_VERSION, LOST,
    NOTICE_LEN, PARAMETERS_LEN, PROOF, PROOF_LEN, REFUSAL,
};
use super::wire::{CACK, CSYN, DATA, Envelope, FRAME, HANDSHAKE, PARAMETERS};

/// Returns the shapes of all frames that a hop or a gate takes, of sessions and of the handshake.
/// Lengths are those of the shortest frames: a sealed frame is longer than a plain one, and a hybrid
/// message than the other one of its type.
pub(super) fn shapes() -> Vec<FrameShape> {
    let envelope = Envelope::Plain;
    let frames = [
        (PARAMETERS, envelope.around() + PARAMETERS_LEN),
        (DATA, envelope.data_overhead() + 1),
        (CSYN, envelope.csyn_len()),
        (CACK, envelope.cack_len()),
    ];
    // Between the version and the type are two bits of the epoch.
    let frames = frames.map(|(kind, len)| FrameShape {
        mask: 0xf3 << 24,
        ..FrameShape::beginning(FRAME << 4 | kind, len)
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
    [&frames[..], &handshake[..]].concat()
}

/// Returns true if the frame has one of the shapes. Tests of all kinds ask it of each frame that is
/// sent.
#[cfg(test)]
pub(super) fn fits(frame: &[u8]) -> bool {
    shapes().iter().any(|shape| shape.fits(frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_frame_of_the_vectors_that_is_taken_has_a_shape() {
        let texts = [
            include_str!("../../../../docs/protocols/vectors/hop.txt"),
            include_str!("../../../../docs/protocols/vectors/hop-session.txt"),
            include_str!("../../../../docs/protocols/vectors/hop-session-plain.txt"),
            include_str!("../../../../docs/protocols/vectors/hop-session-hybrid.txt"),
        ];
        let is_frame = |name: &str| {
            ["frame", "call", "answer", "proof"].contains(&name)
                || name.starts_with("probe")
                || name.starts_with("the same")
        };
        let mut kinds = BTreeSet::new();
        for text in texts {
            let lines: Vec<&str> = text.lines().collect();
            for (at, line) in lines.iter().enumerate() {
                let Some((name, frame)) = line.split_once(": ") else {
                    continue;
                };
                let dropped = lines.get(at + 1);
                let dropped = dropped.is_some_and(|means| means.starts_with("means: dropped"));
                if is_frame(name) && !dropped {
                    let frame = hex::decode(frame).unwrap();
                    assert!(fits(&frame), "{line}");
                    kinds.insert(frame[0] & 0xf3);
                }
            }
        }
        let all = [0x20, 0x21, 0x22, 0x23, 0x30, 0x31, 0x32];
        assert_eq!(kinds, BTreeSet::from(all));
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
            (0x20, 61),
            (0x2d, 25),
            (0x22, 28),
            (0x2f, 48),
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
        for first in [0, 0x0f, 0x10, 0x11, 0x36, 0x3f, 0x40, 0xff] {
            assert!(!fits(&[first; 1_400]), "{first:#x}");
        }
        let mut later = [0x30; 240];
        later[2] = 2;
        assert!(!fits(&later), "another version of the handshake");
    }
}
