//! The contract between a profile of link reliability and the link service.
//!
//! [`LinkService`](super::LinkService) queues, fragments and reassembles; a [`Recovery`] numbers
//! frames, acknowledges them and detects lost ones. A service has several in the order of
//! preference: the first one that accepts a packet carries it. The last one is always [`Plain`],
//! which accepts every packet and recovers none.
//!
//! A further profile is a type that implements the trait, a variant of [`Reliability`] and an arm
//! in [`Profiles::new`]. A profile with frames of its own needs a unique first octet; one with
//! header fields of its own adds rows to the table of `whimbrel_ndn_packet::lp`.

use core::fmt::Debug;

use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::lp::{FieldSet, LinkFields};
use whimbrel_ndn_packet::{LpHeader, LpPacket};

use super::adaptive::Adaptive;
use super::config::{LinkServiceConfig, Reliability};
use super::framing::LpFrame;
use super::ndnlpv2::Ndnlpv2;
use super::paper::Paper;
use super::piece::Piece;
use super::plain::Plain;
use super::reassembly::Place;
use super::stats::LinkStats;

/// The index of a profile in its service's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProfileId(u8);

/// The profiles of a face.
#[derive(Debug)]
pub(crate) struct Profiles {
    /// The profiles that recover frames, in the order of preference.
    pub(crate) recovering: Vec<Box<dyn Recovery>>,
    /// Accepts packets that no other profile does.
    plain: Plain,
}

impl Profiles {
    pub(crate) fn new(config: &LinkServiceConfig, rng: &mut SeededRng) -> Profiles {
        let max_outstanding = config.max_outstanding;
        let recovering: Vec<Box<dyn Recovery>> = match config.reliability {
            Reliability::Off => Vec::new(),
            Reliability::Paper(options) => {
                vec![Box::new(Paper::new(rng, options, max_outstanding))]
            }
            Reliability::Ndnlpv2 => vec![Box::new(Ndnlpv2::new(rng, max_outstanding))],
            Reliability::Adaptive => vec![Box::new(Adaptive::new(config, rng))],
            Reliability::Auto => {
                let ndnlpv2 = Ndnlpv2::new(rng, max_outstanding);
                vec![Box::new(Adaptive::new(config, rng)), Box::new(ndnlpv2)]
            }
        };
        let plain = Plain;
        Profiles { recovering, plain }
    }

    #[inline]
    pub(crate) fn get(&self, id: ProfileId) -> &dyn Recovery {
        match self.recovering.get(usize::from(id.0)) {
            Some(profile) => &**profile,
            None => &self.plain,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ProfileId) -> &mut dyn Recovery {
        match self.recovering.get_mut(usize::from(id.0)) {
            Some(profile) => &mut **profile,
            None => &mut self.plain,
        }
    }

    /// Returns the profiles that recover frames, in the order of preference.
    #[inline]
    pub(crate) fn ids(&self) -> impl DoubleEndedIterator<Item = ProfileId> + use<> {
        (0..self.recovering.len() as u8).map(ProfileId)
    }

    /// Returns the profile whose numbers the next packet gets.
    #[inline]
    pub(crate) fn taking_next(&mut self, now: Time, stats: &mut LinkStats) -> ProfileId {
        let mut recovering = self.recovering.iter_mut();
        let taken = recovering.position(|profile| profile.claim_next(now, stats));
        ProfileId(taken.unwrap_or(self.recovering.len()) as u8)
    }

    /// Returns the profile with the format of a frame with this first octet.
    #[inline]
    pub(crate) fn with_format(&self, first_octet: u8) -> Option<ProfileId> {
        let mut recovering = self.recovering.iter();
        let found = recovering.position(|profile| profile.has_format(first_octet));
        let plain = || self.plain.has_format(first_octet);
        let place = found.or_else(|| plain().then_some(self.recovering.len()));
        place.map(|place| ProfileId(place as u8))
    }
}

/// The context of one call into a profile: time, counters, lost frames.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    pub(crate) stats: &'a mut LinkStats,
    /// Collects the frames that are declared lost: their numbers and pieces. The service calls
    /// [`Recovery::may_resend`] for each.
    pub(crate) lost: &'a mut Vec<(u64, Piece)>,
}

/// A piece to write into a frame.
pub(crate) struct FramePlan<'a> {
    pub(crate) piece: &'a Piece,
    /// The number under which it was lost, if it is a retransmission.
    pub(crate) replaces: Option<u64>,
    /// Largest frame, in bytes.
    pub(crate) mtu: usize,
    /// Size in bytes to which the medium pads shorter frames; 0 without padding.
    pub(crate) smallest_frame: usize,
}

/// The content of a frame in a profile's own format.
pub(crate) enum Opened<'a> {
    /// Not a valid frame.
    Malformed,
    /// No packet, or a duplicate.
    Nothing,
    /// A whole Interest or Data without a header, not yet checked.
    Packet(&'a [u8]),
    /// An LpPacket or a bare packet, not yet checked. Padding may follow.
    Element(&'a [u8]),
    /// A part of an element.
    Fragment(Place, &'a [u8]),
    /// A part of an element under an unknown number.
    Unnumbered,
}

/// The effect of an NDNLPv2 frame's header on a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The packet is a duplicate and is not delivered.
    pub(crate) twice: bool,
    /// The neighbour restarted: the numbers of this profile have a new meaning from now on.
    pub(crate) restarted: bool,
}

/// A profile of link reliability. The defaults are those of a profile that ignores the call.
pub(crate) trait Recovery: Debug + Send {
    // Packets to send.

    /// Claims the next packet for this profile's numbers; returns false if the profile leaves it.
    fn claim_next(&mut self, now: Time, stats: &mut LinkStats) -> bool;

    /// Returns the number that a new piece keeps in retransmissions; `None` stands for the face's
    /// Sequence.
    fn identity(&mut self) -> Option<u64> {
        None
    }

    /// Returns the bytes of the frame, without acknowledgements, that carries the whole packet.
    fn whole_frame_len(&self, packet: &[u8], header: Option<&LpHeader>) -> usize;

    /// Returns the maximum of bytes of a frame beyond its fragment.
    fn fragment_overhead(&self, header: Option<&LpHeader>) -> usize;

    /// Returns the maximum of fragments of a packet.
    fn max_fragments(&self) -> usize;

    /// Returns true if a packet is encapsulated with its header before it is fragmented. If false,
    /// the first fragment carries the header.
    fn cuts_with_header(&self) -> bool {
        false
    }

    /// Appends the next frame in this profile's own format. Returns false if the piece needs an
    /// NDNLPv2 frame, which the service writes.
    fn write_frame(
        &mut self,
        _now: Time,
        _plan: &FramePlan<'_>,
        _stats: &mut LinkStats,
        _out: &mut Vec<u8>,
    ) -> bool {
        false
    }

    /// Returns the TxSequence of the next NDNLPv2 frame, if it carries one.
    fn transmission_number(&self) -> Option<u64> {
        None
    }

    /// Adds header fields to an NDNLPv2 frame of any profile, as far as they fit.
    fn add_fields<'a>(
        &'a mut self,
        _now: Time,
        _frame: &LpFrame<'_>,
        _link: &mut LinkFields<'a>,
        _stats: &mut LinkStats,
    ) {
    }

    /// Records the transmission of the next frame of this profile, with this piece. `replaces` is
    /// the number under which the piece was lost.
    fn sent(&mut self, _now: Time, _piece: Piece, _replaces: Option<u64>, _stats: &mut LinkStats) {}

    /// Appends a frame that does not wait for packets, if there is one. `packets_wait`: the next
    /// frame could carry its content.
    fn write_urgent(
        &mut self,
        _now: Time,
        _mtu: usize,
        _packets_wait: bool,
        _stats: &mut LinkStats,
        _out: &mut Vec<u8>,
    ) -> bool {
        false
    }

    /// Appends a frame that is sent when no packet waits, if there is one.
    fn write_idle(&mut self, _now: Time, _stats: &mut LinkStats, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Returns the time at which a frame without a packet is due.
    fn control_due(&self) -> Option<Time> {
        None
    }

    // Received frames.

    /// Returns true if frames with this first octet are in this profile's own format.
    fn has_format(&self, _first_octet: u8) -> bool {
        false
    }

    /// Handles a frame of this profile's own format. `scratch` is memory to assemble a packet.
    fn open<'a>(
        &mut self,
        _frame: &'a [u8],
        _scratch: &'a mut Vec<u8>,
        _turn: &mut Turn<'_>,
    ) -> Opened<'a> {
        Opened::Malformed
    }

    /// Returns true if a frame is useless without one of these fields.
    fn needs(&self, _fields: FieldSet) -> bool {
        false
    }

    /// Handles the header of an NDNLPv2 frame.
    fn handle_header(&mut self, _packet: &LpPacket<'_>, _turn: &mut Turn<'_>) -> Heard {
        Heard::default()
    }

    // Timers.

    /// Handles the passing of time. `idle`: no packet waits to be sent.
    fn handle_timeout(&mut self, _idle: bool, _turn: &mut Turn<'_>) {}

    /// Returns the time of the next call to [`Recovery::handle_timeout`].
    fn timer_due(&self) -> Option<Time> {
        None
    }

    // Lost pieces.

    /// Returns true if a lost piece should be retransmitted.
    fn may_resend(&self, _now: Time, _piece: &Piece) -> bool {
        false
    }

    /// Returns true if lost pieces are sent before the waiting packets.
    fn resends_first(&self) -> bool {
        true
    }

    /// Returns true if a packet is not sent another time while it is being retransmitted.
    fn spares_repetitions(&self) -> bool {
        true
    }

    /// Returns true if the frame with this number has not been acknowledged since it was declared
    /// lost.
    fn still_lost(&self, _number: u64) -> bool {
        false
    }

    /// Notes that the piece that was declared lost under this number is not retransmitted.
    fn give_up(&mut self, _number: u64) {}

    /// Notes that no fragment of this packet is retransmitted.
    fn forget_packet(&mut self, _packet_id: u64) {}

    /// Updates estimates in `stats` and adds the outstanding frames.
    fn report(&self, _stats: &mut LinkStats) {}
}
