//! Programs on this machine that ask a node for its state, or who may call it: a router's, a name
//! server's.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_core::{PortId, Transmit};

use super::{LocalEvent, LocalRequest, check_greeting, greeting};

/// Answers that wait to be written; a program that never reads loses further ones.
const MAX_QUEUED: usize = 64;

/// What a program has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// That it speaks this protocol.
    Greeting,
    /// A request for the node's state, and its number.
    Status(u32),
    /// A request about the node's callers, its number, and a change or nothing.
    Callers(u32, String),
    /// Something else.
    Unknown,
    /// Anything, after a first frame that was not understood.
    Refused,
}

/// The ports of local programs, and what waits to be written to them.
#[derive(Debug, Default)]
pub struct Programs {
    // Whether the program's first frame said that it speaks this protocol, once it has come.
    ports: BTreeMap<PortId, Option<bool>>,
    queue: VecDeque<(PortId, Vec<u8>)>,
}

impl Programs {
    /// Takes in a program.
    pub fn attach(&mut self, port: PortId) {
        self.ports.insert(port, None);
        self.queue.push_back((port, greeting().to_vec()));
    }

    /// Returns true if the port is a program's.
    pub fn has(&self, port: PortId) -> bool {
        self.ports.contains_key(&port)
    }

    /// Forgets a program that has gone.
    pub fn detach(&mut self, port: PortId) {
        self.ports.remove(&port);
        self.queue.retain(|(to, _)| *to != port);
    }

    /// What a program's frame is.
    pub fn read(&mut self, port: PortId, frame: &[u8]) -> Frame {
        let accepted = match self.ports.get_mut(&port) {
            Some(accepted @ None) => {
                let greeted = check_greeting(frame);
                *accepted = Some(greeted.is_ok());
                if let Err(mismatch) = greeted {
                    tracing::warn!(%port, "a local program is refused: {mismatch}");
                    return Frame::Refused;
                }
                return Frame::Greeting;
            }
            Some(Some(accepted)) => *accepted,
            None => false,
        };
        if !accepted {
            return Frame::Refused;
        }
        match LocalRequest::decode(&Bytes::copy_from_slice(frame)) {
            Ok(LocalRequest::Status { request }) => Frame::Status(request),
            Ok(LocalRequest::Callers { request, change }) => Frame::Callers(request, change),
            _ => Frame::Unknown,
        }
    }

    /// Queues an answer.
    pub fn tell(&mut self, port: PortId, event: &LocalEvent) {
        let mut answer = Vec::new();
        event.encode_head(&mut answer);
        if self.queue.len() < MAX_QUEUED {
            self.queue.push_back((port, answer));
        }
    }

    /// The next frame for a program.
    pub fn poll_transmit(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (port, frame) = self.queue.pop_front()?;
        buffer.extend_from_slice(&frame);
        Some(Transmit {
            port,
            size: frame.len(),
            segment_size: None,
        })
    }
}
