//! Local programs, and the events that wait for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{PortId, Transmit};
use whimbrel_link::Room;

use super::{App, HostEvent};
use crate::local::{LocalEvent, check_greeting, greeting};

/// Bound of the events that wait for one program; beyond it, reports are dropped.
const MAX_QUEUED_EVENTS: usize = 256;

#[derive(Default)]
struct LocalPort {
    // Events, and what each holds of the buffer until it has left.
    queue: VecDeque<(LocalEvent, Room)>,
    blocked: bool,
    greeting: GreetingState,
}

/// Progress of the agreement between a program and the host on the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GreetingState {
    is_sent: bool,
    // Whether the program's first frame was accepted.
    accepted: Option<bool>,
}

/// The programs of a host.
#[derive(Default)]
pub(super) struct Programs {
    ports: BTreeMap<PortId, LocalPort>,
    inner: VecDeque<(HostEvent, Room)>,
    // Programs in this process that take no events for now.
    blocked: BTreeSet<u32>,
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

    pub(super) fn set_blocked(&mut self, app: App, blocked: bool) {
        match app {
            App::Port(port) => {
                if let Some(local) = self.ports.get_mut(&port) {
                    local.blocked = blocked;
                }
            }
            App::Inner(app) if blocked => {
                self.blocked.insert(app);
            }
            App::Inner(app) => {
                self.blocked.remove(&app);
            }
        }
    }

    /// Forgets a program in this process that has gone.
    pub(super) fn forget_inner(&mut self, app: u32) {
        self.blocked.remove(&app);
        self.inner.retain(|(waiting, _)| waiting.app != app);
    }

    /// Takes a program's first frame as its greeting; returns true if a frame is a request of a program that
    /// speaks this protocol.
    pub(super) fn accept_request(&mut self, port: PortId, frame: &[u8]) -> bool {
        let Some(local) = self.ports.get_mut(&port) else {
            return false;
        };
        if let Some(accepted) = local.greeting.accepted {
            return accepted;
        }
        let greeted = check_greeting(frame);
        local.greeting.accepted = Some(greeted.is_ok());
        if let Err(mismatch) = greeted {
            tracing::warn!(%port, "refused a local program: {mismatch}");
        }
        false
    }

    /// Returns true if a program's first frame was not understood.
    pub(super) fn is_refused(&self, port: PortId) -> bool {
        let local = self.ports.get(&port);
        local.is_some_and(|local| local.greeting.accepted == Some(false))
    }

    /// Returns true if a program takes an event at once: its socket has room, and no queue that
    /// would fill it waits.
    pub(super) fn is_ready(&self, app: App) -> bool {
        match app {
            App::Inner(app) => {
                let mut waiting = self.inner.iter();
                !self.blocked.contains(&app) && !waiting.any(|(waiting, _)| waiting.app == app)
            }
            App::Port(port) => self.ports.get(&port).is_some_and(|local| {
                !local.blocked && local.greeting.is_sent && local.queue.is_empty()
            }),
        }
    }

    /// Queues an event for a program. Returns false if it is dropped. A program's own requests
    /// bound the events that answer them; only reports are dropped when it does not read.
    pub(super) fn tell(&mut self, app: App, event: LocalEvent, load: Room) -> bool {
        let port = match app {
            App::Inner(app) => {
                let is_behind = self.blocked.contains(&app) && event.is_report();
                if is_behind && self.inner.len() >= MAX_QUEUED_EVENTS {
                    return false;
                }
                self.inner.push_back((HostEvent { app, event }, load));
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
        local.queue.push_back((event, load));
        true
    }

    /// Returns the next event for a program in this process.
    pub(super) fn poll_inner(&mut self) -> Option<HostEvent> {
        let takes = |(waiting, _): &(HostEvent, Room)| !self.blocked.contains(&waiting.app);
        let next = self.inner.iter().position(takes)?;
        self.inner.remove(next).map(|(event, _)| event)
    }

    /// Appends the next event for a program behind a socket.
    pub(super) fn poll_transmit(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        for (port, local) in &mut self.ports {
            if !local.greeting.is_sent && !local.blocked {
                local.greeting.is_sent = true;
                buffer.extend_from_slice(&greeting());
                return Some(Transmit {
                    port: *port,
                    size: greeting().len(),
                    segment_size: None,
                });
            }
            if !local.blocked
                && let Some((event, _)) = local.queue.pop_front()
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
