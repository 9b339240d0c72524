//! A router's status report.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use whimbrel_core::{DiskStatus, Guid, LookUpFailure, Time};
use whimbrel_gnrs::NameServerStatus;
use whimbrel_link::hop::ReceptionCounters;
use whimbrel_routing::{KnownRouter, RoutingCounters};

use super::Router;
use super::store::Purpose;
use crate::links::{CallersTotal, DividedStatus, LinkStatus, UnresolvedStatus};
use crate::next_hops::Branch;
use crate::wire::NetworkHeader;

/// Counters since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RouterCounters {
    /// Chunks that neighbours delivered whole.
    pub chunks_received: u64,
    /// Chunks that the next neighbour has.
    pub chunks_forwarded: u64,
    /// Chunks pushed up to the proxy.
    pub chunks_stored: u64,
    /// Chunks that the disk had at the start.
    pub chunks_restored: u64,
    /// Stored chunks whose copy on the disk was damaged.
    pub chunks_damaged: u64,
    /// Stored chunks forwarded because their destination was open.
    pub chunks_released: u64,
    /// Stored chunks forwarded because of their source's Push.
    pub chunks_pushed: u64,
    /// Chunks for groups that were divided among next hops, and the copies that left.
    pub group_chunks: u64,
    /// See `group_chunks`.
    pub group_copies: u64,
    /// Times that a group was found among its own members, and that groups of groups were too many.
    pub groups_in_themselves: u64,
    /// See `groups_in_themselves`.
    pub groups_too_deep: u64,
    /// Chunks moved to storage because the next hop takes them too slowly.
    pub held_back: u64,
    /// Times that a neighbour was asked to hold back a flow.
    pub holds: u64,
    /// Chunks dropped because their receiver no longer wants them.
    pub chunks_unwanted: u64,
    /// Lookups made because a storage timer expired.
    pub storage_lookups: u64,
    /// Chunks whose name was not looked up at once because too many names of the same port were.
    pub lookups_deferred: u64,
    /// Chunks that were copied into the cache.
    pub chunks_cached: u64,
    /// Requested chunks of which a copy was here.
    pub cache_hits: u64,
    /// Requested chunks that another client was fetching through here.
    pub chunks_awaited: u64,
    /// Copies sent, and their bytes.
    pub copies_sent: u64,
    /// See `copies_sent`.
    pub copy_bytes_sent: u64,
    /// Copies kept for producers, and those of them that are needed no longer.
    pub chunks_kept: u64,
    /// See `chunks_kept`.
    pub kept_freed: u64,
    /// Chunks that are stored although they have a way: it is much worse than the usual one.
    pub waited_for_usual: u64,
    /// Contents announced, of which all chunks are kept.
    pub kept_announced: u64,
    /// Requests and NACKs that ended here, because all that they ask for is on its way from here.
    pub requests_absorbed: u64,
    /// Changed bindings that the name service pushed.
    pub bindings_pushed: u64,
    /// Hosts' attachments accepted.
    pub attachments: u64,
    /// Inputs after which work was left over, to accept the next input. Should be 0.
    pub left_over: u64,
    /// Drops by reason.
    pub drops: BTreeMap<&'static str, u64>,
}

impl RouterCounters {
    pub(super) fn drop(&mut self, reason: &'static str) {
        *self.drops.entry(reason).or_default() += 1;
    }
}

/// Maximum of destinations in a report; the ones with the most bytes are in it.
const MAX_WAITING: usize = 64;

/// Why stored chunks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitReason {
    /// The name service knows no address of the destination.
    NoAddress,
    /// No name server answers.
    NameServerSilent,
    /// The destination is a content, and none of its providers can be reached.
    ProviderAway,
    /// The next hop does not respond.
    NextHopSilent,
    /// The next hop has asked to hold back the flow.
    HeldBack,
    /// The next hop has no room yet; chunks leave as it gets some.
    NextHopBusy,
    /// The router is configured to wait for a Push of the source.
    Push,
}

/// The chunks stored for one destination.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingStatus {
    /// The destination: a host, or the content that is asked for.
    pub destination: Guid,
    /// Its stored chunks.
    pub chunks: usize,
    /// Their bytes, as they count against the storage.
    pub bytes: u64,
    /// Seconds since the oldest of them was stored.
    pub since_s: f64,
    /// Why they wait.
    pub reason: WaitReason,
}

/// The state of the storage's disk.
#[derive(Clone, Debug, Serialize)]
pub struct StorageDisk {
    /// The folder.
    pub folder: String,
    /// Chunks on it.
    pub chunks: u64,
    /// Bytes that they take, and the bound of these.
    pub bytes: (u64, u64),
    /// Chunks written since the start.
    pub written: u64,
    /// Chunks read since the start.
    pub read: u64,
    /// Chunks that are in memory only, because the disk was full or failed.
    pub refused: u64,
    /// Damaged chunks, which were dropped.
    pub damaged: u64,
    /// Failures since the start.
    pub faults: u64,
    /// Why it does not work, if so: chunks are stored in memory only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl From<DiskStatus> for StorageDisk {
    fn from(status: DiskStatus) -> StorageDisk {
        StorageDisk {
            folder: status.place,
            chunks: status.entries,
            bytes: (status.bytes, status.limit),
            written: status.written,
            read: status.read,
            refused: status.refused,
            damaged: status.damaged,
            faults: status.faults,
            fault: status.fault,
        }
    }
}

/// What a router has learned, for reports.
#[derive(Clone, Debug, Serialize)]
pub struct RoutingStatus {
    /// The other routers, 256 at most.
    pub routers: Vec<KnownRouter>,
    /// Counters since the start.
    pub counters: RoutingCounters,
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
    /// Memory of the storage in bytes, and its bound.
    pub stored_bytes: (u64, u64),
    /// The disk of the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<StorageDisk>,
    /// Bytes of cached copies, and their bound.
    pub cached_bytes: (u64, u64),
    /// Bytes of copies that are kept for producers.
    pub kept_bytes: u64,
    /// Clients that wait for copies, or fetch what others wait for.
    pub fetching_clients: usize,
    /// Destinations of stored chunks.
    pub waiting_destinations: usize,
    /// What is stored, most bytes first: 64 destinations at most.
    pub waiting: Vec<WaitingStatus>,
    /// Attached GUIDs.
    pub attachments: usize,
    /// The name servers, the preferred one first.
    pub name_servers: Vec<NameServerStatus>,
    /// The neighbours.
    pub links: Vec<LinkStatus>,
    /// All inbound peers together; of them, `links` has 256 at most.
    pub callers: CallersTotal,
    /// What those who are no neighbours yet have asked of its links.
    pub reception: ReceptionCounters,
    /// Configured neighbours without a port, because their host names are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<UnresolvedStatus>,
    /// The flows that this router divides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub divided: Vec<DividedStatus>,
    /// What it has learned of other routers; none if its routes are static.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<RoutingStatus>,
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
    /// Copies of chunks, kept for producers or cached.
    pub copied_bytes: u64,
    /// Stored chunks and copies that are being forwarded; they count in the storage's total.
    pub released_bytes: u64,
    /// Messages that the router originated: notices, answers, control messages.
    pub said_bytes: u64,
}

impl RouterMemory {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.buffered_bytes
            + self.stored_bytes
            + self.copied_bytes
            + self.released_bytes
            + self.said_bytes
    }
}

impl Router {
    /// Notes that a configured neighbour's host name cannot be looked up.
    pub fn note_look_up_failure(&mut self, failure: LookUpFailure) {
        self.links.neighbours.note_look_up_failure(failure);
    }

    /// Returns the current memory of its chunks.
    pub fn memory(&self) -> RouterMemory {
        RouterMemory {
            buffered_bytes: self.links.neighbours.buffered_bytes(),
            stored_bytes: self.proxy.store().memory_bytes(),
            copied_bytes: self.proxy.store().copied_bytes(),
            released_bytes: self.proxy.store().leaving_bytes(),
            said_bytes: self.said.bytes(),
        }
    }

    fn waiting_status(&self, now: Time) -> Vec<WaitingStatus> {
        let store = self.proxy.store();
        let waiting = self.proxy.waiting().iter();
        let mut waiting: Vec<(u64, Guid)> = waiting
            .map(|destination| (store.bytes_for(destination), *destination))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        waiting.sort_by_key(|(bytes, destination)| (Reverse(*bytes), *destination));
        waiting.truncate(MAX_WAITING);
        let status = waiting.into_iter().filter_map(|(bytes, destination)| {
            let oldest = store.get(store.oldest_for(&destination)?)?;
            Some(WaitingStatus {
                destination,
                chunks: store.ids_for(&destination).len(),
                bytes,
                since_s: now.since(oldest.stored_at).as_secs_f64(),
                reason: self.wait_reason(now, oldest.header),
            })
        });
        status.collect()
    }

    /// Why this chunk is stored still.
    fn wait_reason(&self, now: Time, header: &NetworkHeader) -> WaitReason {
        let destination = header.destination;
        if !self.config.proxy.proactive {
            return WaitReason::Push;
        }
        if let Some(hops) = self.proxy.openings.next_hops(&destination) {
            let flow = header.flow();
            let is_held = |branch: &Branch| {
                let link = self.links.at(branch.port);
                link.is_some_and(|link| link.is_held(&flow))
            };
            let mut up = hops.iter().filter(|branch| self.links.is_up(branch.port));
            return match up.next() {
                None => WaitReason::NextHopSilent,
                Some(first) if is_held(first) => match up.all(is_held) {
                    true => WaitReason::HeldBack,
                    false => WaitReason::NextHopBusy,
                },
                Some(_) => WaitReason::NextHopBusy,
            };
        }
        if self.binding.attachments.contains(&destination) {
            return WaitReason::NextHopSilent;
        }
        match self.binding.names.known(now, &destination) {
            Some(answer)
                if self
                    .binding
                    .routes
                    .towards_binding(&answer, &self.links)
                    .is_some() =>
            {
                WaitReason::NextHopSilent
            }
            Some(answer) if !answer.providers.is_empty() => WaitReason::ProviderAway,
            None if self.binding.names.is_silent() => WaitReason::NameServerSilent,
            _ => WaitReason::NoAddress,
        }
    }

    /// Returns the current status.
    pub fn status(&self, now: Time) -> RouterStatus {
        let store = self.proxy.store();
        let copies = store.copies();
        let mut counters = self.effects.counters.clone();
        counters.drops.extend(
            Some(self.links.neighbours.own_dropped())
                .filter(|count| *count > 0)
                .map(|count| ("own-message-for-one", count)),
        );
        RouterStatus {
            guid: self.config.guid,
            uptime_s: now.as_secs_f64(),
            buffer_packets: self.links.buffer(),
            stored_chunks: store.len(),
            stored_bytes: (store.memory_bytes(), store.limits().total),
            disk: self.proxy.disk_status().map(StorageDisk::from),
            cached_bytes: (copies.bytes(Purpose::Cached), copies.limit()),
            kept_bytes: copies.bytes(Purpose::Kept),
            fetching_clients: self.cache.fetches.clients(),
            waiting_destinations: self.proxy.waiting().len(),
            waiting: self.waiting_status(now),
            attachments: self.binding.attachments.len(),
            name_servers: self.binding.names.resolver.server_status(),
            links: self.links.neighbours.status(now),
            callers: self.links.neighbours.callers_total(),
            reception: self.links.reception(),
            unresolved: self.links.neighbours.unresolved(now),
            divided: self.links.division.status(&self.links.neighbours, now),
            routing: self.binding.routes.learning.status(now),
            counters,
        }
    }
}
