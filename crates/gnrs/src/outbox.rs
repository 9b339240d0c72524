//! Send queues per port, bounded.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{PortId, Transmit};

/// Queues of frames, served in turn.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Maximum of queued frames per port.
    capacity: usize,
    queues: BTreeMap<PortId, Queue>,
    /// Ports that have frames and are not blocked, next one first; each at most once.
    ready: VecDeque<PortId>,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    blocked: bool,
    ready: bool,
}

impl Outbox {
    pub(crate) fn new(capacity: usize) -> Outbox {
        Outbox {
            capacity,
            queues: BTreeMap::new(),
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn add(&mut self, port: PortId) {
        self.queues.entry(port).or_default();
    }

    pub(crate) fn remove(&mut self, port: PortId) {
        if self.queues.remove(&port).is_some_and(|queue| queue.ready) {
            self.ready.retain(|other| *other != port);
        }
    }

    pub(crate) fn set_blocked(&mut self, port: PortId, blocked: bool) {
        if let Some(queue) = self.queues.get_mut(&port) {
            queue.blocked = blocked;
            self.update_ready(port);
        }
    }

    /// Queues a frame; returns false if the port is unknown or its queue is full: then the frame is
    /// lost, as on any datagram path, and the requester retransmits.
    pub(crate) fn push(&mut self, port: PortId, frame: Vec<u8>) -> bool {
        match self.queues.get_mut(&port) {
            Some(queue) if queue.frames.len() < self.capacity => queue.frames.push_back(frame),
            _ => return false,
        }
        self.update_ready(port);
        true
    }

    fn update_ready(&mut self, port: PortId) {
        let Some(queue) = self.queues.get_mut(&port) else {
            return;
        };
        let ready = !queue.blocked && !queue.frames.is_empty();
        if ready && !queue.ready {
            self.ready.push_back(port);
        } else if !ready && queue.ready {
            self.ready.retain(|other| *other != port);
        }
        queue.ready = ready;
    }

    /// As [`whimbrel_core::Machine::poll_transmit`]: frames of equal size for one port are sent
    /// together.
    pub(crate) fn poll_transmit(
        &mut self,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let port = self.ready.pop_front()?;
        let queue = self.queues.get_mut(&port)?;
        let first = queue.frames.pop_front()?;
        buffer.extend_from_slice(&first);
        let mut size = first.len();
        let mut segments = 1;
        while segments < max_segments {
            // Only the last segment may be shorter.
            if queue
                .frames
                .front()
                .is_none_or(|next| next.len() > first.len())
            {
                break;
            }
            let Some(next) = queue.frames.pop_front() else {
                break;
            };
            buffer.extend_from_slice(&next);
            size += next.len();
            segments += 1;
            if next.len() < first.len() {
                break;
            }
        }
        queue.ready = false;
        self.update_ready(port);
        Some(Transmit {
            port,
            size,
            segment_size: (segments > 1).then_some(first.len()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every accepted frame comes out once, in order per port, never to a blocked port.
        #[test]
        fn frames_come_out_once_and_in_order(steps in prop::collection::vec((0u8..6, 0u32..3, 1usize..4), 0..200)) {
            let mut outbox = Outbox::new(5);
            let mut model: BTreeMap<PortId, (VecDeque<Vec<u8>>, bool)> = BTreeMap::new();
            for (serial, (step, port, size)) in steps.into_iter().enumerate() {
                let port = PortId(port);
                match step {
                    0 => {
                        outbox.add(port);
                        model.entry(port).or_default();
                    }
                    1 if serial % 7 == 0 => {
                        outbox.remove(port);
                        model.remove(&port);
                    }
                    1 | 2 => {
                        outbox.set_blocked(port, step == 1);
                        if let Some(queue) = model.get_mut(&port) {
                            queue.1 = step == 1;
                        }
                    }
                    3 | 4 => {
                        let frame = vec![serial as u8; size];
                        let room = model.get(&port).is_some_and(|queue| queue.0.len() < 5);
                        prop_assert_eq!(outbox.push(port, frame.clone()), room);
                        if room {
                            model.get_mut(&port).unwrap().0.push_back(frame);
                        }
                    }
                    _ => {
                        let mut buffer = Vec::new();
                        match outbox.poll_transmit(3, &mut buffer) {
                            Some(transmit) => {
                                let queue = model.get_mut(&transmit.port).unwrap();
                                prop_assert!(!queue.1);
                                for frame in transmit.frames(&buffer) {
                                    prop_assert_eq!(&queue.0.pop_front().unwrap()[..], frame);
                                }
                            }
                            None => prop_assert!(model.values().all(|queue| queue.1 || queue.0.is_empty())),
                        }
                    }
                }
            }
        }
    }
}
