//! The real losses, counted by the links themselves rather than inferred by the protocol under
//! study.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::PortId;
use whimbrel_ndn_packet::types;
use whimbrel_sim::link::DropReason;
use whimbrel_sim::trace::{TraceKind, TraceRecord, TraceSink};

/// Octets of a load's name, `prefix-a` to `prefix-z`: no payload of zeros and no header looks like
/// it, and Interests for numbers below it have the paper's 28 octets.
pub(super) const NAME_LEN: usize = 8;
/// Bytes of a frame that are searched for the name, which follows any acknowledgements in the
/// frame.
const SEARCHED: usize = 512;
/// A frame with more octets carries a Data, because Interests are small.
const LARGEST_INTEREST: usize = 600;

/// Returns true if a [`LossWatch`] finds packets of the load of that name.
pub(super) fn is_watched(load: &str) -> bool {
    load.len() == NAME_LEN
        && load.starts_with("prefix-")
        && load.ends_with(|c: char| c.is_ascii_lowercase())
}

/// One Interest or Data of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    flow: u8,
    data: bool,
    number: u32,
}

/// Watches the links between routers.
#[derive(Debug, Default)]
pub(super) struct LossWatch {
    /// Both ports of a direction, and the direction.
    directions: BTreeMap<PortId, Ends>,
    /// Packets of which a frame was lost and none has arrived since.
    missing: Vec<BTreeSet<Packet>>,
    /// The number of lost frames of each exchange that lost any.
    exchanges: BTreeMap<(u8, u32), u32>,
    counts: LossCounts,
}

/// The directions of the frames that leave and arrive by a port.
#[derive(Clone, Copy, Debug)]
struct Ends {
    out: usize,
    back: usize,
}

/// The counts of a [`LossWatch`], over all links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LossCounts {
    /// Interests and Data that were lost on a link; lost retransmissions of the link do not count
    /// again.
    pub(super) packets: u64,
    /// Lost frames of all kinds.
    pub(super) frames: u64,
    /// Lost frames that carried no Interest or Data.
    pub(super) bare_frames: u64,
}

impl LossWatch {
    /// Watches a link between these ports.
    pub(super) fn watch(&mut self, a: PortId, b: PortId) {
        let (forth, back) = (self.missing.len(), self.missing.len() + 1);
        self.missing.resize_with(back + 1, BTreeSet::new);
        self.directions.insert(a, Ends { out: forth, back });
        self.directions.insert(
            b,
            Ends {
                out: back,
                back: forth,
            },
        );
    }

    pub(super) fn counts(&self) -> LossCounts {
        self.counts
    }

    /// Returns the number of exchanges that lost at least this many frames.
    pub(super) fn exchanges_with(&self, losses: u32) -> u64 {
        self.exchanges
            .values()
            .filter(|count| **count >= losses)
            .count() as u64
    }
}

impl TraceSink for LossWatch {
    fn record(&mut self, record: &TraceRecord<'_>) {
        let Some(ends) = self.directions.get(&record.port) else {
            return;
        };
        match record.kind {
            TraceKind::Drop(DropReason::Loss) => {
                self.counts.frames += 1;
                let Some(packet) = packet_in(record.frame) else {
                    self.counts.bare_frames += 1;
                    return;
                };
                self.counts.packets += u64::from(self.missing[ends.out].insert(packet));
                *self
                    .exchanges
                    .entry((packet.flow, packet.number))
                    .or_default() += 1;
            }
            TraceKind::Deliver if !self.missing[ends.back].is_empty() => {
                if let Some(packet) = packet_in(record.frame) {
                    self.missing[ends.back].remove(&packet);
                }
            }
            _ => {}
        }
    }
}

/// Returns the packet in a frame of any profile: all of them carry the name unchanged.
fn packet_in(frame: &[u8]) -> Option<Packet> {
    let marker = &[NAME_LEN as u8, b'p', b'r', b'e', b'f', b'i', b'x', b'-'];
    let searched = frame.get(..SEARCHED).unwrap_or(frame);
    let at = searched
        .windows(marker.len())
        .position(|window| window == marker)?
        + marker.len();
    let flow = frame.get(at)?.checked_sub(b'a')?;
    let [kind, length] = *frame.get(at + 1..at + 3)?.first_chunk::<2>()?;
    if u64::from(kind) != types::SEQUENCE_NUM {
        return None;
    }
    let octets = frame.get(at + 3..at + 3 + usize::from(length))?;
    let number = octets
        .iter()
        .fold(0u32, |number, octet| number << 8 | u32::from(*octet));
    Some(Packet {
        flow,
        data: frame.len() > LARGEST_INTEREST,
        number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_found_by_its_name_behind_any_header() {
        let mut frame = vec![1, 2, 3, 8];
        frame.extend_from_slice(&[8]);
        frame.extend_from_slice(b"prefix-c");
        frame.extend_from_slice(&[58, 2, 1, 4, 0, 0]);
        assert_eq!(
            packet_in(&frame),
            Some(Packet {
                flow: 2,
                data: false,
                number: 260
            })
        );
        frame.resize(1061, 0);
        assert_eq!(
            packet_in(&frame),
            Some(Packet {
                flow: 2,
                data: true,
                number: 260
            })
        );
        assert_eq!(packet_in(&frame[..14]), None);
        assert_eq!(packet_in(&[0; 40]), None);
    }
}
