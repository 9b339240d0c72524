//! Sending on a packet socket, frame by frame.

use std::io::IoSlice;

use rustix::io::Errno;
use whimbrel_core::{Machine, PortId, Time};

use super::LENGTH;
use super::endpoint::EthernetEndpoint;
use crate::counters::DropReason;
use crate::interface::{current_mtu, exists};
use crate::poller::Poller;
use crate::side::MachineSide;
use crate::transport::{FramesToSend, Progress};

/// Bytes of destination, source and EtherType before the payload.
pub(super) const HEADER: usize = 14;

/// Frames that the kernel could not accept at once.
#[derive(Debug)]
pub(super) struct Unsent {
    port: PortId,
    bytes: Vec<u8>,
    start: usize,
    segment: usize,
}

/// The outcome of sending some frames.
enum Sent {
    All,
    /// The kernel's buffer is full; the frames from this offset on are unsent.
    BlockedAt(usize),
    /// The interface is gone.
    Gone,
}

impl EthernetEndpoint {
    /// Sends the frames of one transmit. Frames that the kernel cannot accept now are kept, and all
    /// ports are blocked.
    pub(crate) fn send<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        out: FramesToSend<'_>,
    ) -> Progress {
        let id = out.transmit.port;
        if self.unsent.is_some() {
            side.count_drop(id, DropReason::Blocked, out.frame_count());
            return Progress::Open;
        }
        match self.send_frames(side, now, id, out.frames(), out.segment()) {
            Sent::All => Progress::Open,
            Sent::Gone => self.lose_interface(poller),
            Sent::BlockedAt(at) => {
                let (start, segment) = (out.frames_start() + at, out.segment());
                self.unsent = Some(Unsent {
                    port: id,
                    bytes: std::mem::take(out.buffer),
                    start,
                    segment,
                });
                poller.set_interest(&self.socket, self.token, true, true);
                self.report_blocked(side, now, true);
                Progress::Open
            }
        }
    }

    /// Sends the kept frames. The ports become writable when all of them are sent.
    pub(crate) fn flush<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        let Some(mut unsent) = self.unsent.take() else {
            return Progress::Open;
        };
        let frames = unsent.bytes.get(unsent.start..).unwrap_or_default();
        // The port may have been closed while its frames waited; they are discarded then.
        match self.send_frames(side, now, unsent.port, frames, unsent.segment) {
            Sent::Gone => {
                self.report_blocked(side, now, false);
                self.lose_interface(poller)
            }
            Sent::BlockedAt(at) => {
                unsent.start += at;
                self.unsent = Some(unsent);
                Progress::Open
            }
            Sent::All => {
                poller.set_interest(&self.socket, self.token, true, false);
                self.report_blocked(side, now, false);
                Progress::Open
            }
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    fn report_blocked<M: Machine>(&self, side: &mut MachineSide<M>, now: Time, blocked: bool) {
        for port in self.peers.keys() {
            side.set_blocked(now, *port, blocked);
        }
    }

    fn send_frames<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        id: PortId,
        frames: &[u8],
        segment: usize,
    ) -> Sent {
        let (Some(peer), Some(port)) = (self.peers.get(&id).copied(), side.get_mut(id)) else {
            return Sent::All;
        };
        if self.is_away {
            let count = frames.len().div_ceil(segment) as u64;
            port.counters.drops.count(DropReason::Unreachable, count);
            return Sent::All;
        }
        let mut too_long = None;
        let mut sent = Sent::All;
        for (index, frame) in frames.chunks(segment).enumerate() {
            match self.write(peer, frame) {
                Ok(()) => {
                    port.counters.sent_frames += 1;
                    port.counters.sent_bytes += frame.len() as u64;
                }
                Err(Errno::AGAIN) => {
                    self.counters.would_block += 1;
                    sent = Sent::BlockedAt(index * segment);
                    break;
                }
                Err(Errno::NXIO | Errno::NODEV) if !exists(self.config.interface.index) => {
                    return Sent::Gone;
                }
                Err(error) => {
                    let reason = DropReason::of(&error.into());
                    if reason == DropReason::PathTooNarrow {
                        too_long = too_long.max(Some(frame.len()));
                    }
                    port.counters.drops.count(reason, 1);
                }
            }
        }
        if let Some(too_long) = too_long {
            let mtu = current_mtu(&self.config.interface.name)
                .map(|mtu| self.config.largest_frame(mtu))
                .filter(|mtu| *mtu < too_long);
            let mtu = mtu.unwrap_or(too_long.saturating_sub(1)).max(1);
            // All ports share the interface.
            for port in self.peers.keys() {
                side.lower_mtu(now, *port, mtu);
            }
        }
        sent
    }

    /// Sends one frame with this packet.
    pub(super) fn write(&mut self, to: [u8; 6], packet: &[u8]) -> Result<(), Errno> {
        self.counters.send_calls += 1;
        let length = u16::try_from(packet.len()).map_err(|_| Errno::MSGSIZE)?;
        let header = header(to, self.local, self.config.ether_type, length);
        let written = if self.config.has_lengths {
            HEADER + LENGTH
        } else {
            HEADER
        };
        let header = header.get(..written).unwrap_or_default();
        let pieces = [IoSlice::new(header), IoSlice::new(packet)];
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.socket, &pieces)).map(|_| ())
    }
}

/// Returns what precedes the packet in a frame; links without lengths leave out the last two octets.
fn header(to: [u8; 6], from: [u8; 6], ether_type: u16, length: u16) -> [u8; HEADER + LENGTH] {
    let mut header = [0; HEADER + LENGTH];
    let octets = to
        .into_iter()
        .chain(from)
        .chain(ether_type.to_be_bytes())
        .chain(length.to_be_bytes());
    header
        .iter_mut()
        .zip(octets)
        .for_each(|(place, octet)| *place = octet);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_destination_source_type_and_length() {
        let header = header([1, 0, 0x5e, 0, 0x17, 0xaa], [2, 0, 0, 0, 0, 9], 0x8624, 300);
        assert_eq!(
            header,
            [
                1, 0, 0x5e, 0, 0x17, 0xaa, 2, 0, 0, 0, 0, 9, 0x86, 0x24, 1, 44
            ]
        );
        assert_eq!(
            crate::ethernet::written([1, 0, 0x5e, 0, 0x17, 0xaa]),
            "01:00:5e:00:17:aa"
        );
    }
}
