//! The network device for smoltcp: two queues, with a record of sent sequence numbers.

use std::collections::{BTreeMap, VecDeque};

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;
use smoltcp::wire::{IpProtocol, Ipv4Packet, TcpPacket, TcpSeqNumber};

/// Bound of the unused buffers that are kept.
const MAX_SPARE: usize = 4096;

/// Queues of packets in and out.
#[derive(Debug)]
pub(super) struct QueueDevice {
    mtu: usize,
    incoming: VecDeque<Vec<u8>>,
    outgoing: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    // The sequence number after the last payload byte sent, by peer.
    highest_sent: BTreeMap<(u32, u16), TcpSeqNumber>,
    retransmitted_segments: u64,
    retransmitted_bytes: u64,
}

impl QueueDevice {
    pub(super) fn new(mtu: usize) -> QueueDevice {
        QueueDevice {
            mtu,
            incoming: VecDeque::new(),
            outgoing: VecDeque::new(),
            spare: Vec::new(),
            highest_sent: BTreeMap::new(),
            retransmitted_segments: 0,
            retransmitted_bytes: 0,
        }
    }

    pub(super) fn receive_frame(&mut self, frame: &[u8]) {
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.extend_from_slice(frame);
        self.incoming.push_back(packet);
    }

    pub(super) fn has_incoming(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Appends the next packet to `buffer` and returns its size.
    pub(super) fn take_outgoing(&mut self, buffer: &mut Vec<u8>) -> Option<usize> {
        let packet = self.outgoing.pop_front()?;
        buffer.extend_from_slice(&packet);
        let size = packet.len();
        self.recycle(packet);
        Some(size)
    }

    /// Returns the number of retransmitted segments and payload bytes.
    pub(super) fn retransmitted(&self) -> (u64, u64) {
        (self.retransmitted_segments, self.retransmitted_bytes)
    }

    fn recycle(&mut self, mut packet: Vec<u8>) {
        if self.spare.len() < MAX_SPARE {
            packet.clear();
            self.spare.push(packet);
        }
    }

    /// Counts payload that was sent before, since smoltcp itself does not report it.
    fn watch(&mut self, packet: &[u8]) {
        let Ok(ip) = Ipv4Packet::new_checked(packet) else {
            return;
        };
        if ip.next_header() != IpProtocol::Tcp {
            return;
        }
        let Ok(segment) = TcpPacket::new_checked(ip.payload()) else {
            return;
        };
        let peer = (u32::from(ip.dst_addr()), segment.dst_port());
        if segment.syn() || segment.rst() {
            self.highest_sent.remove(&peer);
            return;
        }
        let length = segment.payload().len();
        if length == 0 {
            return;
        }
        let end = segment.seq_number() + length;
        let highest = self
            .highest_sent
            .entry(peer)
            .or_insert(segment.seq_number());
        if segment.seq_number() < *highest {
            self.retransmitted_segments += 1;
            self.retransmitted_bytes += length as u64;
        }
        if *highest < end {
            *highest = end;
        }
    }
}

impl phy::Device for QueueDevice {
    type RxToken<'a> = ReceivedFrame;
    type TxToken<'a> = TransmitSlot<'a>;

    fn receive(&mut self, _now: Instant) -> Option<(ReceivedFrame, TransmitSlot<'_>)> {
        let packet = self.incoming.pop_front()?;
        Some((ReceivedFrame(packet), TransmitSlot(self)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<TransmitSlot<'_>> {
        Some(TransmitSlot(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

/// A received packet.
pub(super) struct ReceivedFrame(Vec<u8>);

impl phy::RxToken for ReceivedFrame {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, process: F) -> R {
        process(&self.0)
    }
}

/// Permission to send one packet.
pub(super) struct TransmitSlot<'a>(&'a mut QueueDevice);

impl phy::TxToken for TransmitSlot<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = self.0.spare.pop().unwrap_or_default();
        packet.resize(length, 0);
        let result = fill(&mut packet);
        self.0.watch(&packet);
        self.0.outgoing.push_back(packet);
        result
    }
}
