//! What goes to the device: segments, and errors about those that are not carried.

use std::collections::VecDeque;

use whimbrel_core::Time;

use crate::connection::Packet;
use crate::counters::Counters;
use crate::icmp::{Reporter, Unreachable};

/// Packets for the device.
pub(super) struct Device {
    queue: VecDeque<Packet>,
    /// Maximum of these.
    most: usize,
    reporter: Reporter,
}

impl Device {
    /// At most `most` packets wait.
    pub(super) fn new(most: usize) -> Device {
        Device {
            queue: VecDeque::new(),
            most,
            reporter: Reporter::default(),
        }
    }

    pub(super) fn deliver(&mut self, packet: Packet, counters: &mut Counters) {
        if self.queue.len() >= self.most {
            counters.queue_full += 1;
        } else {
            counters.delivered_packets += 1;
            self.queue.push_back(packet);
        }
    }

    /// Tells the sender of a packet why it is not carried.
    pub(super) fn report(
        &mut self,
        now: Time,
        packet: &[u8],
        why: Unreachable,
        counters: &mut Counters,
    ) {
        if let Some(error) = self.reporter.report(now, packet, why) {
            counters.icmp_errors += 1;
            self.deliver(error.into(), counters);
        }
    }

    /// The next packet for the device.
    pub(super) fn pop(&mut self) -> Option<Packet> {
        self.queue.pop_front()
    }
}
