//! Actions of a router's parts: each part owns its state, and the router carries out the actions.

use std::collections::VecDeque;

use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::Record;

use super::store::StoreId;
use super::{RouterCounters, Timer};
use crate::chunk::Chunk;
use crate::links::{Carried, ChunkToSend, Grant};
use crate::wire::{Control, Flow};

/// An action beyond a part's own state.
#[derive(Debug)]
pub(super) enum Action {
    /// Decide on the chunk's next hop, and send it there.
    Forward(ChunkToSend),
    /// Send a message that the router originates.
    Say(Chunk),
    /// Retry the chunks of all destinations for which something is known.
    RetryWaiting,
    /// Measure the rate of a neighbour's link, if it is idle.
    Measure(PortId),
    /// Send a control message to the neighbour on a port.
    Tell(PortId, Control),
    /// Register a verified record; the host on this port waits for the outcome.
    Register(PortId, Record),
    /// Announce with the router's own key a content of which all chunks are kept here until this time: a
    /// request finds them when the producer is away.
    AnnounceKept(Guid, Time),
    /// Tell the neighbour on a port that a flow need not be held back for what is stored.
    GoOn(PortId, Flow),
    /// Retry the chunks stored for a destination.
    Retry(Guid),
    /// Bind what is stored for a name to what is known of it.
    BindStored(Guid),
    /// Tell the neighbour on a port what may come of a flow that comes from it.
    Grant(PortId, Flow, Grant),
    /// Forget a destination without stored chunks.
    StopIfNoneWaits(Guid),
    /// Withdraw a chunk from the hop that carries it.
    Withdraw(Carried),
    /// Write a stored chunk to the disk.
    Write(StoreId),
    /// Watch a name at the name service.
    Watch(Guid),
    /// Stop watching a name.
    Unwatch(Guid),
    /// Set a timer, replacing an earlier setting.
    Set(Timer, Time),
    /// Set a timer unless it fires earlier already.
    SetEarlier(Timer, Time),
    /// Cancel a timer.
    Cancel(Timer),
}

/// Actions in the order in which to carry them out, and counters.
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

    /// Counts a drop.
    pub(super) fn drop(&mut self, reason: &'static str) {
        self.counters.drop(reason);
    }
}
