//! ICMP errors to a TCP end on this side, when its packets cannot be carried (RFC 792, RFC 4443).

use core::net::IpAddr;

use etherparse::{Icmpv4Type, Icmpv6Type, IpSlice, PacketBuilder, icmpv4, icmpv6};
use whimbrel_core::{Limit, Meter, Time};

/// Bytes of the offending packet that are returned (RFC 1812 §4.3.2.3: not above 576 bytes in all).
const QUOTED: usize = 520;

/// Answers to what is not carried (RFC 1812 §4.3.2.8): a flood must not bring as large a flood back.
pub(crate) const ANSWERS: Limit = Limit {
    at_once: 50,
    per_second: 100,
};

/// Why a packet is not carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The configuration does not allow it.
    Prohibited,
    /// The NDN network has no route to the proxy responsible.
    Host,
    /// It is not TCP.
    Protocol,
}

/// Makes errors, at a limited rate.
#[derive(Debug, Default)]
pub struct Reporter {
    answers: Meter,
}

impl Reporter {
    /// The error for `packet`, from its destination; `None` if there must not be one or the rate is
    /// exceeded.
    pub fn report(&mut self, now: Time, packet: &[u8], why: Unreachable) -> Option<Vec<u8>> {
        let (source, destination) = ends(packet)?;
        if source.is_multicast()
            || source.is_unspecified()
            || destination.is_multicast()
            || is_icmp_error(packet)
        {
            return None;
        }
        self.answers
            .admits(now, ANSWERS)
            .then(|| error(source, destination, packet, why))?
    }
}

fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let ip = IpSlice::from_slice(packet).ok()?;
    Some((ip.source_addr(), ip.destination_addr()))
}

/// An error must not answer an error (RFC 1122 §3.2.2).
fn is_icmp_error(packet: &[u8]) -> bool {
    let Ok(ip) = IpSlice::from_slice(packet) else {
        return true;
    };
    let payload = ip.payload();
    let kind = payload.payload.first().copied().unwrap_or_default();
    match payload.ip_number {
        etherparse::IpNumber::ICMP => !matches!(kind, 0 | 8 | 13 | 14),
        etherparse::IpNumber::IPV6_ICMP => kind < 128,
        _ => false,
    }
}

fn error(source: IpAddr, destination: IpAddr, packet: &[u8], why: Unreachable) -> Option<Vec<u8>> {
    let quoted = packet.get(..packet.len().min(QUOTED))?;
    let mut out = Vec::with_capacity(quoted.len() + 48);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = match why {
                Unreachable::Prohibited => icmpv4::DestUnreachableHeader::FilterProhibited,
                Unreachable::Host => icmpv4::DestUnreachableHeader::Host,
                Unreachable::Protocol => icmpv4::DestUnreachableHeader::Protocol,
            };
            PacketBuilder::ipv4(destination.octets(), source.octets(), 64)
                .icmpv4(Icmpv4Type::DestinationUnreachable(header))
                .write(&mut out, quoted)
                .ok()?;
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let code = match why {
                Unreachable::Prohibited => icmpv6::DestUnreachableCode::Prohibited,
                Unreachable::Host => icmpv6::DestUnreachableCode::NoRoute,
                Unreachable::Protocol => icmpv6::DestUnreachableCode::Port,
            };
            PacketBuilder::ipv6(destination.octets(), source.octets(), 64)
                .icmpv6(Icmpv6Type::DestinationUnreachable(code))
                .write(&mut out, quoted)
                .ok()?;
        }
        _ => return None,
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp() -> Vec<u8> {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(1, 2)
            .write(&mut packet, b"question")
            .unwrap();
        packet
    }

    #[test]
    fn an_error_goes_back_with_the_packet_in_it() {
        let error = Reporter::default().report(Time::ZERO, &udp(), Unreachable::Host);
        let error = error.unwrap();
        let (source, destination) = ends(&error).unwrap();
        assert_eq!(
            (source.to_string(), destination.to_string()),
            ("10.0.0.2".into(), "10.0.0.1".into())
        );
        assert_eq!(error.get(20..22), Some(&[3, 1][..]), "type and code");
        assert_eq!(error.get(28..), Some(&udp()[..]));
    }

    #[test]
    fn errors_are_not_answered_and_their_rate_is_bounded() {
        let mut reporter = Reporter::default();
        let error = reporter
            .report(Time::ZERO, &udp(), Unreachable::Host)
            .unwrap();
        assert_eq!(reporter.report(Time::ZERO, &error, Unreachable::Host), None);
        let mut count = |now| {
            let report = |_| reporter.report(now, &udp(), Unreachable::Protocol);
            (0..200).filter_map(report).count()
        };
        assert_eq!(count(Time::ZERO), ANSWERS.at_once as usize - 1);
        assert_eq!(count(Time::from_millis(100)), 10);
    }
}
