//! Local programs, and the events that wait for them.

use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{PortId, Transmit};

use super::{App, HostEvent};
use crate::local::LocalEvent;

/// Events that wait for one program; beyond, those that it can do without are dropped.
const MAX_QUEUED_EVENTS: usize = 256;

#[derive(Default)]
struct LocalPort {
    queue: VecDeque<LocalEvent>,
    blocked: bool,
}

/// The programs of a host.
#[derive(Default)]
pub(super) struct Programs {
    ports: BTreeMap<PortId, LocalPort>,
    inner: VecDeque<HostEvent>,
}

impl Programs {
    pub(super) fn attach(&mut self, port: PortId) {
        self.ports.insert(port, LocalPort::default());
    }

    pub(super) fn has(&self, port: PortId) -> bool {
        self.ports.contains_key(&port)
    }

    pub(super) fn detach(&mut self, port: PortId) {
        self.ports.remove(&port);
    }

    pub(super) fn set_blocked(&mut self, port: PortId, blocked: bool) {
        if let Some(local) = self.ports.get_mut(&port) {
            local.blocked = blocked;
        }
    }

    /// Queues an event for a program; false if it is dropped. What a program asked for is bounded by
    /// what it may ask; only reports are dropped when it does not read.
    pub(super) fn tell(&mut self, app: App, event: LocalEvent) -> bool {
        let port = match app {
            App::Inner(app) => {
                self.inner.push_back(HostEvent { app, event });
                return true;
            }
            App::Port(port) => port,
        };
        let Some(local) = self.ports.get_mut(&port) else {
            return true;
        };
        if event.is_report() && local.queue.len() >= MAX_QUEUED_EVENTS {
            return false;
        }
        local.queue.push_back(event);
        true
    }

    /// The next event for a program in this process.
    pub(super) fn poll_inner(&mut self) -> Option<HostEvent> {
        self.inner.pop_front()
    }

    /// Appends the next event for a program behind a socket.
    pub(super) fn poll_transmit(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        for (port, local) in &mut self.ports {
            if !local.blocked
                && let Some(event) = local.queue.pop_front()
            {
                let start = buffer.len();
                let tail = event.encode_head(buffer);
                buffer.extend_from_slice(&tail);
                return Some(Transmit {
                    port: *port,
                    size: buffer.len() - start,
                    segment_size: None,
                });
            }
        }
        None
    }
}
