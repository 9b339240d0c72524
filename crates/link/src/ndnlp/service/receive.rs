//! Received frames.

use whimbrel_core::Time;
use whimbrel_ndn_packet::{LpHeader, LpPacket};

use super::LinkService;
use crate::ndnlp::compact::FIRST_COMPACT;
use crate::ndnlp::reassembly::{PacketKey, Place};
use crate::ndnlp::recovery::{Heard, Opened, ProfileId};

type Deliver<'a> = &'a mut dyn FnMut(&LpPacket<'_>);

impl LinkService {
    pub(super) fn receive(&mut self, now: Time, frame: &[u8], deliver: Deliver<'_>) {
        self.stats.frames_received += 1;
        self.stats.bytes_received += frame.len() as u64;
        match frame.first() {
            Some(first) if *first >= FIRST_COMPACT => {
                self.receive_compact(now, *first, frame, deliver);
            }
            _ => self.receive_ndnlp(now, frame, deliver),
        }
    }

    fn padding_allowed(&self) -> bool {
        self.config.smallest_frame > 0
    }

    /// Handles an NDNLPv2 frame or a bare packet.
    fn receive_ndnlp(&mut self, now: Time, frame: &[u8], deliver: Deliver<'_>) {
        let Ok(lp) = LpPacket::decode(frame, self.padding_allowed()) else {
            self.stats.drops.malformed += 1;
            return;
        };
        if !lp.skipped.is_empty() && !self.skip_fields(&lp) {
            return;
        }
        let received = self.stats.bytes_received - frame.len() as u64;
        if let Some(path) = self.path.as_mut().filter(|_| lp.fragment.is_none())
            && path.handle(now, &lp, frame.len(), received)
        {
            return self.check_path();
        }
        if self.is_plain() || !self.hear_header(now, &lp) {
            self.deliver_lp(now, &lp, deliver);
        }
    }

    /// Skips invalid fields and counts them; returns false if a profile needs them.
    fn skip_fields(&mut self, lp: &LpPacket<'_>) -> bool {
        let mut profiles = self.profiles.recovering.iter();
        if profiles.any(|profile| profile.needs(lp.skipped)) {
            self.stats.drops.malformed += 1;
            return false;
        }
        self.stats.fields_skipped += 1;
        true
    }

    /// Passes the header to all profiles. Returns true if the packet is a duplicate.
    fn hear_header(&mut self, now: Time, lp: &LpPacket<'_>) -> bool {
        let mut repeated = false;
        for id in self.profiles.ids() {
            let (profile, mut turn) = self.turn(now, id);
            let Heard { twice, restarted } = profile.handle_header(lp, &mut turn);
            repeated |= twice;
            if restarted {
                self.forget_numbers(id);
            }
            self.recover(now, id);
        }
        repeated
    }

    /// Forgets the earlier numbers of a neighbour that restarted.
    fn forget_numbers(&mut self, id: ProfileId) {
        self.reassembler.forget_frames();
        let gone = self.queue.retain_resends(|resend| resend.profile != id);
        self.stats.abandoned += gone as u64;
    }

    /// Handles a frame in a profile's own format.
    fn receive_compact(&mut self, now: Time, first: u8, frame: &[u8], deliver: Deliver<'_>) {
        let Some(id) = self.profiles.with_format(first) else {
            self.stats.drops.malformed += 1;
            return;
        };
        let mut scratch = core::mem::take(&mut self.scratch);
        let (profile, mut turn) = self.turn(now, id);
        let opened = profile.open(frame, &mut scratch, &mut turn);
        self.recover(now, id);
        self.deliver_opened(now, opened, deliver);
        self.scratch = scratch;
    }

    fn deliver_opened(&mut self, now: Time, opened: Opened<'_>, deliver: Deliver<'_>) {
        match opened {
            Opened::Malformed => self.stats.drops.malformed += 1,
            Opened::Nothing => {}
            Opened::Packet(packet) => {
                self.stats.packets_delivered += 1;
                deliver(&LpPacket::bare(packet));
            }
            Opened::Element(element) => match LpPacket::decode(element, self.padding_allowed()) {
                Ok(lp) => self.deliver_lp(now, &lp, deliver),
                Err(_) => self.stats.drops.malformed += 1,
            },
            Opened::Fragment(place, bytes) => self.put_element(now, place, bytes, deliver),
            Opened::Unnumbered => self.stats.drops.no_session += 1,
        }
    }

    fn deliver_lp(&mut self, now: Time, lp: &LpPacket<'_>, deliver: Deliver<'_>) {
        let Some(fragment) = lp.fragment else { return };
        if !lp.is_fragment() {
            self.stats.packets_delivered += 1;
            deliver(lp);
            return;
        }
        let Some(sequence) = lp.link.sequence else {
            self.stats.drops.bad_fragment += 1;
            return;
        };
        let (index, count) = lp.place();
        let key = PacketKey::Sequence(sequence.wrapping_sub(index));
        let place = Place { key, index, count };
        let header = (!lp.header.is_empty()).then(|| lp.to_header());
        let delivered = &mut self.stats.packets_delivered;
        let drops = &mut self.stats.drops;
        let mut whole = |packet: &[u8], header: Option<&LpHeader>| {
            *delivered += 1;
            let mut lp = LpPacket::bare(packet);
            lp.header = header.map(LpHeader::as_ref).unwrap_or_default();
            deliver(&lp);
        };
        self.reassembler
            .insert(now, place, fragment, header, drops, &mut whole);
    }

    /// Adds a fragment of an encapsulated element.
    fn put_element(&mut self, now: Time, place: Place, bytes: &[u8], deliver: Deliver<'_>) {
        let padding_allowed = self.padding_allowed();
        let (delivered, mut malformed) = (&mut self.stats.packets_delivered, 0);
        let drops = &mut self.stats.drops;
        let mut whole =
            |element: &[u8], _: Option<&LpHeader>| match LpPacket::decode(element, padding_allowed)
            {
                Ok(lp) if lp.fragment.is_some() && !lp.is_fragment() => {
                    *delivered += 1;
                    deliver(&lp);
                }
                _ => malformed += 1,
            };
        self.reassembler
            .insert(now, place, bytes, None, drops, &mut whole);
        self.stats.drops.malformed += malformed;
    }
}
