//! Frames of the paper's profile: 8 octets of numbers and 4 octets for each ACK beyond the packet,
//! as the paper counts them.
//!
//! ```text
//! 11kk0000 | ACKs (1) | frame number (4) | packet number (4) | ACK (4) x ACKs | packet without its first two octets
//! 11000000 | ACKs (1) | ACK (4) x ACKs
//! ```
//! The first two octets of an Interest or Data are its type and the length, or 0xfd and the first
//! octet after it; both follow from the kind and from the frame's length. Kind 3 carries a whole
//! element of any type.

use whimbrel_ndn_packet::types;

use crate::ndnlp::compact::{Kind, PAPER};

/// Maximum of ACKs in one frame.
pub(crate) const MAX_ACKS: usize = 255;
/// Octets of an ACK.
pub(crate) const ACK_LEN: usize = 4;
/// Octets of a frame beyond an Interest or Data and its ACKs.
pub(crate) const NUMBERS_LEN: usize = 8;
/// Octets of a frame of ACKs alone beyond its ACKs.
pub(crate) const ACKS_HEADER_LEN: usize = 2;

/// The two numbers of a frame with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) frame: u32,
    pub(crate) packet: u32,
}

/// A decoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaperFrame<'a> {
    /// `None` if it carries only ACKs.
    pub(crate) numbers: Option<Numbers>,
    acks: &'a [u8],
    kind: Kind,
    body: &'a [u8],
}

impl<'a> PaperFrame<'a> {
    /// Decodes a frame. Returns `None` if it is not valid.
    pub(crate) fn decode(frame: &'a [u8]) -> Option<PaperFrame<'a>> {
        let (&[first, acks], mut rest) = frame.split_first_chunk::<2>()?;
        if first & 0xcf != PAPER {
            return None;
        }
        let kind = Kind::from_bits(first >> 4);
        let mut numbers = None;
        if kind != Kind::Nothing {
            let (frame, after) = rest.split_first_chunk::<4>()?;
            let (packet, after) = after.split_first_chunk::<4>()?;
            numbers = Some(Numbers {
                frame: u32::from_be_bytes(*frame),
                packet: u32::from_be_bytes(*packet),
            });
            rest = after;
        }
        let (acks, body) = rest.split_at_checked(usize::from(acks) * ACK_LEN)?;
        // Only Ethernet's padding may follow a frame without a packet.
        let fits = kind != Kind::Nothing || body.iter().all(|octet| *octet == 0);
        fits.then_some(PaperFrame {
            numbers,
            acks,
            kind,
            body,
        })
    }

    pub(crate) fn acks(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.acks
            .chunks_exact(ACK_LEN)
            .filter_map(|ack| ack.try_into().ok().map(u32::from_be_bytes))
    }

    /// Returns the element in the frame, borrowed or assembled in `scratch`.
    pub(crate) fn packet<'b>(&self, scratch: &'b mut Vec<u8>) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let typ = match self.kind {
            Kind::Nothing => return None,
            Kind::Other => return Some(self.body),
            Kind::Interest => types::INTEREST as u8,
            Kind::Data => types::DATA as u8,
        };
        scratch.clear();
        // The second octet was a length of up to 252, or 0xfd, followed by two octets of length and
        // at least 253 of value.
        let second = u8::try_from(self.body.len())
            .ok()
            .filter(|length| *length <= 252)
            .unwrap_or(0xfd);
        scratch.extend_from_slice(&[typ, second]);
        scratch.extend_from_slice(self.body);
        Some(scratch)
    }
}

/// Appends a frame with a packet. `smallest` is the size below which the medium pads frames.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    numbers: Numbers,
    acks: &[u32],
    packet: &[u8],
    smallest: usize,
) {
    let short = Kind::of(packet).filter(|(_, header)| {
        *header <= 4 && packet.len() + NUMBERS_LEN + acks.len() * ACK_LEN >= smallest
    });
    let (kind, body) = match short {
        Some((kind, _)) => (kind, packet.get(2..).unwrap_or_default()),
        None => (Kind::Other, packet),
    };
    out.extend_from_slice(&[PAPER | (kind as u8) << 4, acks.len() as u8]);
    out.extend_from_slice(&numbers.frame.to_be_bytes());
    out.extend_from_slice(&numbers.packet.to_be_bytes());
    write_acks(out, acks);
    out.extend_from_slice(body);
}

/// Appends a frame with only ACKs.
pub(crate) fn encode_acks(out: &mut Vec<u8>, acks: &[u32]) {
    out.extend_from_slice(&[PAPER, acks.len() as u8]);
    write_acks(out, acks);
}

fn write_acks(out: &mut Vec<u8>, acks: &[u32]) {
    for ack in acks {
        out.extend_from_slice(&ack.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(typ: u8, value_len: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        let value: Vec<u8> = (0..value_len).map(|n| n as u8).collect();
        whimbrel_ndn_packet::tlv::write_element(&mut packet, u64::from(typ), &value);
        packet
    }

    /// "the size of an Interest packet, Data packet, and a sequence number are 28, 1061, and 4
    /// bytes, respectively. Each piggybacked ACK is of size 4 bytes."
    #[test]
    fn a_frame_has_8_bytes_of_numbers_and_4_for_each_ack_beyond_its_packet() {
        for (packet, acks) in [(packet(5, 26), 0), (packet(6, 1057), 3)] {
            let acks = vec![7; acks];
            let mut frame = Vec::new();
            encode(
                &mut frame,
                Numbers {
                    frame: 1,
                    packet: 2,
                },
                &acks,
                &packet,
                0,
            );
            assert!([28, 1061].contains(&packet.len()));
            assert_eq!(frame.len(), packet.len() + 8 + 4 * acks.len());
        }
    }

    proptest! {
        #[test]
        fn encoded_frames_decode_to_the_same_values(
            typ in prop_oneof![Just(5u8), Just(6), Just(0x64)], value_len in 0usize..600,
            numbers in any::<(u32, u32)>(), acks in prop::collection::vec(any::<u32>(), 0..20),
            smallest in prop_oneof![Just(0usize), Just(46)],
        ) {
            let packet = packet(typ, value_len);
            let numbers = Numbers { frame: numbers.0, packet: numbers.1 };
            let mut frame = Vec::new();
            encode(&mut frame, numbers, &acks, &packet, smallest);
            frame.resize(frame.len().max(smallest), 0);
            let decoded = PaperFrame::decode(&frame).unwrap();
            prop_assert_eq!(decoded.numbers, Some(numbers));
            prop_assert_eq!(decoded.acks().collect::<Vec<_>>(), acks);
            let mut scratch = Vec::new();
            let read = decoded.packet(&mut scratch).unwrap();
            prop_assert_eq!(&read[..packet.len()], &packet[..]);
            prop_assert!(read[packet.len()..].iter().all(|octet| *octet == 0));
        }

        #[test]
        fn any_octets_are_read_or_refused(octets in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(frame) = PaperFrame::decode(&octets) {
                let _ = (frame.acks().count(), frame.packet(&mut Vec::new()).map(<[u8]>::len));
            }
        }
    }
}
