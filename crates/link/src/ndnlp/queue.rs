//! Packets that wait to be sent, bounded in number and bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::LpHeader;

/// A network-layer packet that waits to be sent.
#[derive(Clone, Debug)]
pub(crate) struct QueuedPacket {
    pub(crate) packet: Bytes,
    pub(crate) header: Option<Box<LpHeader>>,
    pub(crate) queued_at: Time,
}

#[derive(Debug)]
pub(crate) struct OutQueue {
    packets: VecDeque<QueuedPacket>,
    bytes: usize,
    most_packets: usize,
    most_bytes: usize,
}

impl OutQueue {
    pub(crate) fn new(most_packets: usize, most_bytes: usize) -> OutQueue {
        OutQueue { packets: VecDeque::new(), bytes: 0, most_packets, most_bytes }
    }

    /// False if there is no room. One packet is let in however large it is.
    pub(crate) fn push(&mut self, packet: QueuedPacket) -> bool {
        let len = packet.packet.len();
        let full = self.packets.len() >= self.most_packets || self.bytes + len > self.most_bytes;
        if full && !self.packets.is_empty() {
            return false;
        }
        self.bytes += len;
        self.packets.push_back(packet);
        true
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedPacket> {
        let packet = self.packets.pop_front()?;
        self.bytes -= packet.packet.len();
        Some(packet)
    }

    pub(crate) fn front(&self) -> Option<&QueuedPacket> {
        self.packets.front()
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
