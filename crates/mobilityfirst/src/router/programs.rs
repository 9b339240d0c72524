//! Programs on this machine that ask a router for its state.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::{PortId, Transmit};

use crate::local::{LocalEvent, LocalRequest};

/// Answers that wait to be written; a program that never reads loses further ones.
const MAX_QUEUED: usize = 64;

/// The ports of local programs, and what waits to be written to them.
#[derive(Debug, Default)]
pub(super) struct Programs {
    ports: BTreeSet<PortId>,
    queue: VecDeque<(PortId, Vec<u8>)>,
}

impl Programs {
    pub(super) fn attach(&mut self, port: PortId) {
        self.ports.insert(port);
    }

    pub(super) fn has(&self, port: PortId) -> bool {
        self.ports.contains(&port)
    }

    pub(super) fn detach(&mut self, port: PortId) {
        self.ports.remove(&port);
        self.queue.retain(|(to, _)| *to != port);
    }

    /// The number of a request for the router's state, which is all that may be asked.
    pub(super) fn status_request(frame: &[u8]) -> Option<u32> {
        match LocalRequest::decode(&Bytes::copy_from_slice(frame)) {
            Ok(LocalRequest::Status { request }) => Some(request),
            _ => None,
        }
    }

    /// Queues an answer.
    pub(super) fn tell(&mut self, port: PortId, event: &LocalEvent) {
        let mut answer = Vec::new();
        event.encode_head(&mut answer);
        if self.queue.len() < MAX_QUEUED {
            self.queue.push_back((port, answer));
        }
    }

    pub(super) fn poll_transmit(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (port, frame) = self.queue.pop_front()?;
        buffer.extend_from_slice(&frame);
        Some(Transmit {
            port,
            size: frame.len(),
            segment_size: None,
        })
    }
}
