//! What the parts of a router want done: each part owns its state, and the router carries out what
//! is beyond it.

use std::collections::VecDeque;

use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::Record;

use super::{RouterCounters, Timer};
use crate::chunk::Chunk;
use crate::links::{Carried, Outgoing};
use crate::wire::Control;

/// Something that a part of the router cannot do itself.
#[derive(Debug)]
pub(super) enum Action {
    /// Decide where a chunk goes, and send it there.
    Forward(Outgoing),
    /// Send a message of the router's own.
    Say(Chunk),
    /// Send a control message to the neighbour on a port.
    Tell(PortId, Control),
    /// Register a verified record; the host on this port waits to hear what becomes of it.
    Register(PortId, Record),
    /// Try what is stored for a destination.
    Retry(Guid),
    /// Forget a destination unless chunks are stored for it.
    StopIfNoneWaits(Guid),
    /// Take a chunk back from the hop that carries it.
    Withdraw(Carried),
    /// Have the name service push changes of a name.
    Watch(Guid),
    /// No longer.
    Unwatch(Guid),
    /// Set a timer, in place of an earlier setting.
    Set(Timer, Time),
    /// Set a timer unless it fires earlier already.
    SetEarlier(Timer, Time),
    /// Cancel a timer.
    Cancel(Timer),
}

/// Actions in the order in which they are to be carried out, and what was counted.
#[derive(Debug, Default)]
pub(super) struct Effects {
    actions: VecDeque<Action>,
    pub(super) counters: RouterCounters,
}

impl Effects {
    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn next(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Counts something dropped.
    pub(super) fn drop(&mut self, reason: &'static str) {
        self.counters.drop(reason);
    }
}
