//! Marks on frames (ECN, RFC 3168).

/// A frame that a queue may mark as having met congestion instead of dropping it.
pub trait Markable {
    /// Marks the frame. Returns false if its sender has not said that it understands marks.
    fn mark(&mut self) -> bool;
}

/// Plain bytes carry no mark.
impl Markable for Vec<u8> {
    fn mark(&mut self) -> bool {
        false
    }
}

/// Sets CE in the header of an IP packet that says ECT. Returns false for any other packet
/// (RFC 3168 §5).
pub fn mark_ip(packet: &mut [u8]) -> bool {
    match packet {
        [version, class, rest @ ..] if *version >> 4 == 4 && rest.len() >= 18 => {
            if *class & 3 == 0 {
                return false;
            }
            let before = u16::from_be_bytes([*version, *class]);
            *class |= 3;
            let after = u16::from_be_bytes([*version, *class]);
            // RFC 1624 §3: HC' = ~(~HC + ~m + m').
            let sum = u16::from_be_bytes([rest[8], rest[9]]);
            let mut sum = u32::from(!sum) + u32::from(!before) + u32::from(after);
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            let sum = !(sum as u16);
            rest[8..10].copy_from_slice(&sum.to_be_bytes());
            true
        }
        [version, class, ..] if *version >> 4 == 6 => {
            let is_capable = *class & 0x30 != 0;
            if is_capable {
                *class |= 0x30;
            }
            is_capable
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the one's complement sum of a header, which is 0xffff if its checksum is right.
    fn sum(header: &[u8]) -> u32 {
        let words = header.chunks(2);
        let sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        (sum & 0xffff) + (sum >> 16)
    }

    #[test]
    fn a_mark_keeps_the_checksum_of_an_ip_header_right() {
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        assert_eq!(sum(&header), 0xffff);
        let mut unable = header;
        assert!(!mark_ip(&mut unable));
        assert_eq!(unable, header);
        let mut able = header;
        (able[1], able[11]) = (2, 0x5f);
        assert_eq!(sum(&able), 0xffff);
        assert!(mark_ip(&mut able));
        assert_eq!((able[1], sum(&able)), (3, 0xffff));
        assert!(mark_ip(&mut able));
        assert_eq!((able[1], sum(&able)), (3, 0xffff));
    }

    #[test]
    fn a_mark_is_in_the_traffic_class_of_ipv6() {
        let mut able = [0x60, 0x20, 0, 0, 0, 0];
        assert!(mark_ip(&mut able));
        assert_eq!(able[..2], [0x60, 0x30]);
        assert!(!mark_ip(&mut [0x60, 0x0f, 0, 0]));
        assert!(!mark_ip(&mut [1]));
    }
}
