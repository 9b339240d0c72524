//! Finds the bounds of packets in a stream (NDN packet format v0.3, TLV encoding).

/// Splits `stream` into its packets. A remainder that is not a whole packet comes last, unchanged.
pub(super) fn packets(mut stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let len = packet_len(stream).filter(|len| *len <= stream.len());
        let (packet, rest) = stream.split_at(len.unwrap_or(stream.len()));
        stream = rest;
        (!packet.is_empty()).then_some(packet)
    })
}

fn packet_len(stream: &[u8]) -> Option<usize> {
    let (_, rest) = number(stream)?;
    let (value, rest) = number(rest)?;
    let header = stream.len() - rest.len();
    header.checked_add(usize::try_from(value).ok()?)
}

/// Reads a variable-size number. Returns it with the bytes after it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let width = match first {
        253 => 2,
        254 => 4,
        255 => 8,
        small => return Some((u64::from(*small), rest)),
    };
    let (digits, rest) = rest.split_at_checked(width)?;
    let value = digits.iter().fold(0, |sum, it| sum << 8 | u64::from(*it));
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_split_and_a_malformed_remainder_stays_whole() {
        let mut stream = vec![5, 1, 7, 6, 0];
        stream.extend([6, 253, 1, 0]);
        stream.extend([9; 256]);
        let lens: Vec<usize> = packets(&stream).map(<[u8]>::len).collect();
        assert_eq!(lens, [3, 2, 260]);
        let lens = |bytes: &[u8]| packets(bytes).map(<[u8]>::len).collect::<Vec<_>>();
        assert!(lens(&[]).is_empty());
        assert_eq!(lens(&[5, 2, 7]), [3]);
        assert_eq!(lens(&[5, 0, 253, 1]), [2, 2]);
        assert_eq!(
            lens(&[5, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
            [11]
        );
    }
}
