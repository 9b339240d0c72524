//! A router's status report.

use std::collections::BTreeMap;

use serde::Serialize;
use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::NameServerStatus;

use super::Router;
use crate::links::LinkStatus;

/// Counters since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RouterCounters {
    /// Chunks that neighbours delivered whole.
    pub chunks_received: u64,
    /// Chunks that the next neighbour has.
    pub chunks_forwarded: u64,
    /// Chunks pushed up to the proxy.
    pub chunks_stored: u64,
    /// Stored chunks forwarded because their destination was open.
    pub chunks_released: u64,
    /// Stored chunks forwarded because of their source's Push.
    pub chunks_pushed: u64,
    /// Chunks moved to storage because the next hop takes them too slowly.
    pub held_back: u64,
    /// Times that a neighbour was asked to hold back a flow.
    pub holds: u64,
    /// Chunks that went no further because their receiver wants them no more.
    pub chunks_unwanted: u64,
    /// Lookups made because a storage timer expired.
    pub storage_lookups: u64,
    /// Chunks whose name was not looked up at once because too many names of the same port were.
    pub lookups_deferred: u64,
    /// Requests and NACKs that ended here, because all that they ask for is on its way from here.
    pub requests_absorbed: u64,
    /// Changed bindings that the name service pushed.
    pub bindings_pushed: u64,
    /// Hosts' attachments accepted.
    pub attachments: u64,
    /// Inputs after which work was left over, to accept the next input. Should be 0.
    pub unsettled: u64,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
}

impl RouterCounters {
    pub(super) fn drop(&mut self, reason: &'static str) {
        *self.drops.entry(reason).or_default() += 1;
    }
}

/// A router's status, for people and programs.
#[derive(Clone, Debug, Serialize)]
pub struct RouterStatus {
    /// The router's GUID.
    pub guid: Guid,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Packets in the back-pressure buffer, and its capacity.
    pub buffer_packets: (usize, usize),
    /// Chunks in storage.
    pub stored_chunks: usize,
    /// Bytes in storage, and its capacity.
    pub stored_bytes: (u64, u64),
    /// Destinations of stored chunks.
    pub waiting_destinations: usize,
    /// Attached GUIDs.
    pub attachments: usize,
    /// The name servers, the preferred one first.
    pub name_servers: Vec<NameServerStatus>,
    /// The neighbours.
    pub links: Vec<LinkStatus>,
    /// Counters since the start.
    pub counters: RouterCounters,
}

/// A router's memory for chunks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RouterMemory {
    /// Chunks with room in the back-pressure buffer: arriving, waiting to be bound, waiting for a
    /// hop or in one.
    pub buffered_bytes: u64,
    /// Stored chunks.
    pub stored_bytes: u64,
    /// Stored chunks that are being forwarded; they count in the storage's total.
    pub released_bytes: u64,
    /// Messages that the router originated: notices, answers, control messages.
    pub said_bytes: u64,
}

impl RouterMemory {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.buffered_bytes + self.stored_bytes + self.released_bytes + self.said_bytes
    }
}

impl Router {
    /// The current memory of its chunks.
    pub fn memory(&self) -> RouterMemory {
        RouterMemory {
            buffered_bytes: self.links.buffered_bytes(),
            stored_bytes: self.proxy.store().bytes(),
            released_bytes: self.proxy.released_bytes(),
            said_bytes: self.said.bytes(),
        }
    }

    /// The current status.
    pub fn status(&self, now: Time) -> RouterStatus {
        let store = self.proxy.store();
        RouterStatus {
            guid: self.config.guid,
            uptime_s: now.as_secs_f64(),
            buffer_packets: self.links.buffer(),
            stored_chunks: store.len(),
            stored_bytes: (store.bytes(), store.limits().total),
            waiting_destinations: self.proxy.waiting().len(),
            attachments: self.attachments.len(),
            name_servers: self.names.resolver.server_status(),
            links: self.links.status(now),
            counters: self.effects.counters.clone(),
        }
    }
}
