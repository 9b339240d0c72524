//! The send queue: packets, bounded in number and bytes, and lost pieces.

use std::collections::VecDeque;

use whimbrel_core::Time;
use whimbrel_ndn_packet::{LpHeader, SharedPacket};

use super::piece::Piece;
use super::recovery::ProfileId;

/// A network-layer packet to send.
#[derive(Clone, Debug)]
pub(crate) struct QueuedPacket {
    pub(crate) packet: SharedPacket,
    pub(crate) header: Option<Box<LpHeader>>,
    pub(crate) queued_at: Time,
}

/// A lost piece to retransmit.
#[derive(Debug)]
pub(crate) struct Resend {
    /// The profile that sent it.
    pub(crate) profile: ProfileId,
    /// The number under which it was lost.
    pub(crate) number: u64,
    pub(crate) piece: Piece,
}

/// An entry of the queue.
#[derive(Debug)]
pub(crate) enum Entry {
    Packet(QueuedPacket),
    /// Boxed: packets are many, retransmissions few and much larger.
    Resend(Box<Resend>),
}

impl Entry {
    fn len(&self) -> usize {
        match self {
            Entry::Packet(packet) => packet.packet.len(),
            Entry::Resend(resend) => resend.piece.len as usize,
        }
    }
}

#[derive(Debug)]
pub(crate) struct OutQueue {
    entries: VecDeque<Entry>,
    // Sent before all others. Bounded by the number of outstanding frames.
    urgent: VecDeque<Box<Resend>>,
    bytes: usize,
    max_packets: usize,
    max_bytes: usize,
}

impl OutQueue {
    pub(crate) fn new(max_packets: usize, max_bytes: usize) -> OutQueue {
        OutQueue {
            entries: VecDeque::new(),
            urgent: VecDeque::new(),
            bytes: 0,
            max_packets,
            max_bytes,
        }
    }

    /// Queues a packet. Returns false if there is no room. An empty queue accepts a packet of any
    /// size.
    pub(crate) fn push(&mut self, packet: QueuedPacket) -> bool {
        let full =
            self.len() >= self.max_packets || self.bytes + packet.packet.len() > self.max_bytes;
        if full && !self.is_empty() {
            return false;
        }
        self.bytes += packet.packet.len();
        self.entries.push_back(Entry::Packet(packet));
        true
    }

    /// Puts a packet back at the front of the queue.
    pub(crate) fn put_back(&mut self, packet: QueuedPacket) {
        self.bytes += packet.packet.len();
        self.entries.push_front(Entry::Packet(packet));
    }

    /// Queues a piece to retransmit, before all others or after them.
    pub(crate) fn push_resend(&mut self, resend: Resend, urgent: bool) {
        self.bytes += resend.piece.len as usize;
        let resend = Box::new(resend);
        if urgent {
            self.urgent.push_back(resend);
        } else {
            self.entries.push_back(Entry::Resend(resend));
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = match self.urgent.pop_front() {
            Some(resend) => Entry::Resend(resend),
            None => self.entries.pop_front()?,
        };
        self.bytes -= entry.len();
        Some(entry)
    }

    /// Returns the time when the next entry was queued.
    pub(crate) fn head_since(&self) -> Option<Time> {
        let urgent = self.urgent.front().map(|resend| resend.piece.queued_at);
        urgent.or_else(|| {
            self.entries.front().map(|entry| match entry {
                Entry::Packet(packet) => packet.queued_at,
                Entry::Resend(resend) => resend.piece.queued_at,
            })
        })
    }

    /// Returns the bytes of the next entry.
    pub(crate) fn next_len(&self) -> Option<usize> {
        self.urgent
            .front()
            .map(|resend| resend.piece.len as usize)
            .or_else(|| self.entries.front().map(Entry::len))
    }

    /// Drops the pieces to retransmit for which `keep` is false. Returns their number.
    pub(crate) fn retain_resends(&mut self, mut keep: impl FnMut(&Resend) -> bool) -> usize {
        let before = self.len();
        let mut gone = 0;
        self.urgent.retain(|resend| {
            let keep = keep(resend);
            gone += if keep { 0 } else { resend.piece.len as usize };
            keep
        });
        self.entries.retain(|entry| match entry {
            Entry::Packet(_) => true,
            Entry::Resend(resend) => {
                let keep = keep(resend);
                gone += if keep { 0 } else { resend.piece.len as usize };
                keep
            }
        });
        self.bytes -= gone;
        before - self.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() + self.urgent.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.urgent.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
