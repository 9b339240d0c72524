//! Packets that are being retransmitted, so that they are not sent another time beside it.
//!
//! A consumer may take a Data for lost that a link recovers, and request it again; the router's content store
//! then gives it to the link once more. If the last retransmission was less than a round trip of the link
//! ago, the neighbour's answer is on its way: either the Data arrives and satisfies both requests, or it is
//! lost again and retransmitted again.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;
use whimbrel_ndn_packet::SharedPacket;

/// Maximum of packets that are remembered.
const MAX_PACKETS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct ResentPackets {
    /// In the order in which they were declared lost.
    packets: VecDeque<(Time, SharedPacket)>,
}

impl ResentPackets {
    /// A frame of the packet was lost and is retransmitted.
    pub(crate) fn push(&mut self, now: Time, packet: &SharedPacket) {
        let last = self.packets.back_mut();
        if let Some((at, _)) = last.filter(|(_, last)| last.is_same(packet)) {
            *at = now;
            return;
        }
        if self.packets.len() >= MAX_PACKETS {
            self.packets.pop_front();
        }
        self.packets.push_back((now, packet.clone()));
    }

    /// Returns true if the packet is on its way again; `round_trip` is that of the link.
    #[inline]
    pub(crate) fn has(&mut self, now: Time, packet: &SharedPacket, round_trip: Duration) -> bool {
        if self.packets.is_empty() {
            return false;
        }
        while let Some((at, _)) = self.packets.front()
            && *at + round_trip < now
        {
            self.packets.pop_front();
        }
        self.packets.iter().any(|(_, known)| known.is_same(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_packet_is_remembered_for_a_round_trip_after_its_last_loss() {
        let packets = [1u8, 1].map(|octet| SharedPacket::from(vec![octet; 9]));
        let mut resent = ResentPackets::default();
        let has = |resent: &mut ResentPackets, at: u64, packet: usize| {
            resent.has(Time::from_millis(at), &packets[packet], 100 * MS)
        };
        assert!(!has(&mut resent, 0, 0));
        resent.push(Time::from_millis(10), &packets[0]);
        assert!(has(&mut resent, 110, 0));
        assert!(!has(&mut resent, 110, 1), "the same octets, another packet");
        resent.push(Time::from_millis(110), &packets[0]);
        assert!(has(&mut resent, 210, 0));
        assert!(!has(&mut resent, 211, 0));
    }

    #[test]
    fn no_more_packets_are_remembered_than_the_bound() {
        let mut resent = ResentPackets::default();
        for _ in 0..MAX_PACKETS * 2 {
            resent.push(Time::ZERO, &SharedPacket::from(vec![1]));
        }
        assert_eq!(resent.packets.len(), MAX_PACKETS);
    }
}
