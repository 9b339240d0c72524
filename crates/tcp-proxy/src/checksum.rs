//! The checksum of a TCP segment (RFC 9293 §3.1). Each segment has it computed three times on its way
//! through two proxies, so that this sums four octets at a time (RFC 1071 §2), and the compiler more.

use core::net::IpAddr;

/// Where it is in a TCP header.
const AT: usize = 16;
/// TCP's number among the protocols of IP.
const TCP: u8 = 6;

/// Returns the checksum that the segment must have between these addresses, whatever it has now. Too
/// short or too long for a segment: `None`.
pub(crate) fn of_segment(source: IpAddr, destination: IpAddr, segment: &[u8]) -> Option<u16> {
    let (before, rest) = segment.split_at_checked(AT)?;
    let after = rest.get(2..)?;
    let length = u16::try_from(segment.len()).ok()?.to_be_bytes();
    let [high, low] = length;
    let addresses = [source, destination].map(|address| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    });
    let pseudo_header = addresses.iter().sum::<u64>() + sum(&[0, TCP, high, low]);
    Some(!folded(pseudo_header + sum(before) + sum(after)))
}

/// Sums words in this machine's order of octets: "the sum of 16-bit integers can be computed in either
/// byte order" (RFC 1071 §2 (B)).
fn sum(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let words = words.iter().chain([&last]);
    words.map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}

/// Adds the carries until 16 bits are left.
fn folded(mut sum: u64) -> u16 {
    while let high @ 1.. = sum >> 16 {
        sum = (sum & 0xffff) + high;
    }
    u16::from_be_bytes((sum as u16).to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::TcpSlice;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_that_of_another_implementation(
            source in any::<[u8; 16]>(), destination in any::<[u8; 16]>(), v4 in any::<bool>(),
            mut segment in prop::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 20..1500),
        ) {
            segment[12] = 5 << 4;
            let tcp = TcpSlice::from_slice(&segment).unwrap();
            let short = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
            let (ends, expected) = match v4 {
                true => {
                    let ends = [short(source), short(destination)];
                    (ends.map(IpAddr::from), tcp.calc_checksum_ipv4(ends[0], ends[1]))
                }
                false => {
                    let ends = [source, destination];
                    (ends.map(IpAddr::from), tcp.calc_checksum_ipv6(source, destination))
                }
            };
            prop_assert_eq!(of_segment(ends[0], ends[1], &segment), expected.ok());
        }
    }
}
