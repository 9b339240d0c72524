//! No reliability: frames carry no transmission numbers, and are never retransmitted.

use whimbrel_core::Time;
use whimbrel_ndn_packet::LpHeader;

use super::adaptive;
use super::compact::{ADAPTIVE, PROFILE_MASK};
use super::framing::{self, MAX_FRAGMENTS};
use super::recovery::{Opened, Recovery, Turn};
use super::stats::LinkStats;

#[derive(Debug)]
pub(crate) struct Plain;

impl Recovery for Plain {
    fn claim_next(&mut self, _now: Time, _stats: &mut LinkStats) -> bool {
        true
    }

    fn whole_frame_len(&self, packet: &[u8], header: Option<&LpHeader>) -> usize {
        framing::element_len(packet, header)
    }

    fn fragment_overhead(&self, header: Option<&LpHeader>) -> usize {
        framing::fragment_overhead(header)
    }

    fn max_fragments(&self) -> usize {
        MAX_FRAGMENTS
    }

    /// Accepts compact frames without an agreement, too: a peer sends them until it has noticed
    /// that this end restarted.
    fn has_format(&self, first_octet: u8) -> bool {
        first_octet & PROFILE_MASK == ADAPTIVE
    }

    fn open<'a>(
        &mut self,
        frame: &'a [u8],
        scratch: &'a mut Vec<u8>,
        _turn: &mut Turn<'_>,
    ) -> Opened<'a> {
        adaptive::open_without_agreement(frame, scratch)
    }
}
