//! Lost pieces.

use whimbrel_core::Time;
use whimbrel_ndn_packet::{LpPacket, SharedPacket};

use super::{LinkEvent, LinkService};
use crate::ndnlp::piece::Piece;
use crate::ndnlp::queue::Resend;
use crate::ndnlp::recovery::ProfileId;

/// Maximum of queued events, for owners that do not poll them.
const MAX_EVENTS: usize = 1024;

impl LinkService {
    /// Queues the frames in `lost` for retransmission, or abandons them.
    #[inline]
    pub(super) fn recover(&mut self, now: Time, id: ProfileId) {
        if !self.lost.is_empty() {
            self.recover_lost(now, id);
        }
    }

    fn recover_lost(&mut self, now: Time, id: ProfileId) {
        let mut lost = core::mem::take(&mut self.lost);
        // Packets of which a fragment was abandoned in this call. Usually there are none, and
        // nothing is allocated.
        let mut gone: Vec<u64> = Vec::new();
        for (number, mut piece) in lost.drain(..) {
            if gone.contains(&piece.packet_id) {
                self.stop_resending(id, number);
                continue;
            }
            let profile = self.profiles.get(id);
            if profile.may_resend(now, &piece) {
                let first = profile.resends_first();
                if profile.spares_repetitions() {
                    self.resent.push(now, &piece.packet);
                }
                piece.queued_at = now;
                piece.retransmissions = piece.retransmissions.saturating_add(1);
                let resend = Resend {
                    profile: id,
                    number,
                    piece,
                };
                self.queue.push_resend(resend, first);
            } else {
                gone.extend((!piece.is_whole()).then_some(piece.packet_id));
                self.give_up(id, number, piece);
            }
        }
        self.lost = lost;
    }

    /// Abandons a piece, and all others of its packet.
    pub(super) fn give_up(&mut self, id: ProfileId, number: u64, piece: Piece) {
        self.stats.given_up += 1;
        let packet_id = piece.packet_id;
        self.stop_resending(id, number);
        if !piece.is_whole() {
            self.forget_fragments(id, packet_id);
            self.in_fragments
                .take_if(|packet| packet.packet_id() == packet_id);
        }
        if self.events.len() < MAX_EVENTS {
            self.events
                .push_back(LinkEvent::GaveUp(network_packet(piece.packet)));
        }
    }

    /// Stops the retransmission of the piece that was declared lost under this number.
    pub(super) fn stop_resending(&mut self, id: ProfileId, number: u64) {
        self.profiles.get_mut(id).give_up(number);
    }

    /// Stops the retransmission of this packet's fragments.
    pub(super) fn forget_fragments(&mut self, id: ProfileId, packet_id: u64) {
        let mut gone = Vec::new();
        self.queue.retain_resends(|resend| {
            let keep = resend.piece.packet_id != packet_id;
            gone.extend((!keep).then_some(resend.number));
            keep
        });
        gone.into_iter()
            .for_each(|number| self.stop_resending(id, number));
        self.profiles.get_mut(id).forget_packet(packet_id);
    }
}

/// Extracts the Interest or Data that was encapsulated with its header for fragmentation.
fn network_packet(packet: SharedPacket) -> SharedPacket {
    match LpPacket::decode(&packet, false) {
        Ok(LpPacket {
            fragment: Some(inner),
            ..
        }) => inner.into(),
        _ => packet,
    }
}
