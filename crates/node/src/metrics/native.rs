//! Counters of a host, a name server, or a router's MobilityFirst plane: the values in its status.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use whimbrel_gnrs::store::EngineStatus;
use whimbrel_gnrs::{PeerCounters, PeerStatus, ServerCounters, ServerStatus};
use whimbrel_io::TransportCounters;
use whimbrel_link::hop::ReceptionCounters;
use whimbrel_mobilityfirst::host::{HostCounters, HostStatus};
use whimbrel_mobilityfirst::links::{CallersTotal, LinkStatus};
use whimbrel_mobilityfirst::router::{RouterCounters, RouterStatus, StorageDisk};

use super::callers::encode_callers;
use super::family::{Families, Rows, flag, rows};
use super::links::encode_links;
use crate::Node;
use crate::run::NodeLoop;

/// Counters of a router.
const ROUTER_COUNTS: Rows<RouterCounters, u64> = rows![c: RouterCounters => u64;
    "whimbrel_router_chunks_cached", "Chunks that were copied into the cache", c.chunks_cached;
    "whimbrel_router_cache_hits", "Requested chunks of which a copy was here", c.cache_hits;
    "whimbrel_router_chunks_awaited", "Requested chunks that another client was fetching", c.chunks_awaited;
    "whimbrel_router_copy_bytes_sent", "Bytes of copies sent to clients", c.copy_bytes_sent;
    "whimbrel_router_chunks_kept", "Chunks copied for a producer that delegates", c.chunks_kept;
    "whimbrel_router_kept_freed", "Kept copies that are needed no longer", c.kept_freed;
    "whimbrel_router_chunks_received", "Chunks that neighbours delivered whole", c.chunks_received;
    "whimbrel_router_chunks_forwarded", "Chunks that the next neighbour acknowledged", c.chunks_forwarded;
    "whimbrel_router_chunks_stored", "Chunks that were put into storage", c.chunks_stored;
    "whimbrel_router_chunks_released", "Stored chunks forwarded because their destination was open", c.chunks_released;
    "whimbrel_router_chunks_pushed", "Stored chunks forwarded because of their source's Push", c.chunks_pushed;
    "whimbrel_router_chunks_held_back", "Chunks stored because the next hop takes them too slowly", c.held_back;
    "whimbrel_router_chunks_unwanted", "Chunks that their receiver no longer wants", c.chunks_unwanted;
    "whimbrel_router_holds", "Times that a neighbour was asked to hold back a flow", c.holds;
    "whimbrel_router_storage_lookups", "Lookups made for stored chunks", c.storage_lookups;
    "whimbrel_router_requests_absorbed", "Requests and NACKs that ended here", c.requests_absorbed;
    "whimbrel_router_waited_for_usual", "Chunks that are stored although they have a way, which is much worse than the usual one", c.waited_for_usual;
    "whimbrel_router_bindings_pushed", "Changed bindings that the name service pushed", c.bindings_pushed;
    "whimbrel_router_attachments_accepted", "Hosts' attachments accepted", c.attachments;
    "whimbrel_router_left_over", "Inputs after which work was left over", c.left_over;
];

/// States of a router.
const ROUTER_LEVELS: Rows<RouterStatus, f64> = rows![r: RouterStatus => f64;
    "whimbrel_router_cached_bytes", "Bytes of cached copies", r.cached_bytes.0 as f64;
    "whimbrel_router_kept_bytes", "Bytes of copies kept for producers", r.kept_bytes as f64;
    "whimbrel_router_stored_chunks", "Chunks in storage", r.stored_chunks as f64;
    "whimbrel_router_stored_bytes", "Bytes in storage", r.stored_bytes.0 as f64;
    "whimbrel_router_storage_capacity_bytes", "Capacity of the storage", r.stored_bytes.1 as f64;
    "whimbrel_router_waiting_destinations", "Destinations of stored chunks", r.waiting_destinations as f64;
    "whimbrel_router_attachments", "Names attached here", r.attachments as f64;
];

/// Counters of a storage's disk.
const DISK_COUNTS: Rows<StorageDisk, u64> = rows![d: StorageDisk => u64;
    "whimbrel_router_disk_written", "Chunks written to the storage's disk", d.written;
    "whimbrel_router_disk_read", "Chunks read from the storage's disk", d.read;
    "whimbrel_router_disk_refused", "Chunks that the disk had no room for", d.refused;
    "whimbrel_router_disk_damaged", "Damaged chunks on the disk, which were dropped", d.damaged;
    "whimbrel_router_disk_faults", "Failures of the disk", d.faults;
];

/// States of a storage's disk.
const DISK_LEVELS: Rows<StorageDisk, f64> = rows![d: StorageDisk => f64;
    "whimbrel_router_disk_works", "1 while the storage's disk works", flag(d.fault.is_none());
    "whimbrel_router_disk_chunks", "Chunks on the storage's disk", d.chunks as f64;
    "whimbrel_router_disk_bytes", "Bytes of chunks on the storage's disk", d.bytes.0 as f64;
    "whimbrel_router_disk_capacity_bytes", "Bound of the chunks on the storage's disk", d.bytes.1 as f64;
];

/// Counters of a host.
const HOST_COUNTS: Rows<HostCounters, u64> = rows![c: HostCounters => u64;
    "whimbrel_host_chunks_received", "Chunks that routers delivered whole", c.chunks_received;
    "whimbrel_host_chunks_sent", "Chunks that a router acknowledged", c.chunks_sent;
    "whimbrel_host_chunks_handed_over", "Verified chunks handed to local programs", c.chunks_handed_over;
    "whimbrel_host_chunks_duplicate", "Chunks that had been received before", c.duplicates;
    "whimbrel_host_chunks_unproven", "Chunks that did not belong to the content that they claimed", c.unproven;
    "whimbrel_host_requests_sent", "Requests sent, repeated ones included", c.requests_sent;
    "whimbrel_host_nacks_sent", "NACKs sent", c.nacks_sent;
    "whimbrel_host_windows_sent", "Messages about end-to-end windows sent", c.windows_sent;
    "whimbrel_host_pushes_sent", "Pushes sent to proxies", c.pushes_sent;
    "whimbrel_host_left_over", "Inputs after which work was left over", c.left_over;
];

/// States of a host.
const HOST_LEVELS: Rows<HostStatus, f64> = rows![h: HostStatus => f64;
    "whimbrel_host_registered", "1 once the name service has the host's binding", flag(h.registered);
    "whimbrel_host_downloads", "Requests of local programs that are under way", h.downloads as f64;
    "whimbrel_host_published", "Contents on offer", h.published as f64;
    "whimbrel_host_uploads", "Contents being sent to others", h.uploads as f64;
];

/// Counters of a name server.
const NAME_SERVER_COUNTS: Rows<ServerCounters, u64> = rows![c: ServerCounters => u64;
    "whimbrel_gnrs_busy", "Requests refused because too many waited for the store", c.busy;
    "whimbrel_gnrs_frames_received", "Frames received", c.frames;
    "whimbrel_gnrs_frames_damaged", "Frames with a wrong checksum", c.damaged_frames;
    "whimbrel_gnrs_frames_malformed", "Frames that are malformed, of another version, or not for a server", c.malformed_frames;
    "whimbrel_gnrs_frames_from_unknown_ports", "Frames from a port that is not up", c.frames_from_unknown_ports;
    "whimbrel_gnrs_lookups", "Lookups", c.lookups;
    "whimbrel_gnrs_lookups_not_found", "Lookups of names without a record", c.not_found;
    "whimbrel_gnrs_updates_stored", "Updates stored", c.updates_stored;
    "whimbrel_gnrs_updates_unchanged", "Updates that were stored already", c.updates_unchanged;
    "whimbrel_gnrs_commits", "Transactions", c.commits;
    "whimbrel_gnrs_records_forgotten", "Records removed after they had expired", c.records_forgotten;
    "whimbrel_gnrs_pushes", "Pushes sent, retransmissions included", c.pushes;
    "whimbrel_gnrs_pushes_repeated", "Retransmissions of pushes", c.pushes_repeated;
    "whimbrel_gnrs_pushes_given_up", "Pushes abandoned after the last retransmission", c.pushes_given_up;
    "whimbrel_gnrs_watches_ended", "Watches that ended so that another client could watch a name", c.watches_ended;
    "whimbrel_gnrs_leases_ended", "Watches whose lease expired", c.leases_ended;
    "whimbrel_gnrs_answers_dropped", "Answers dropped because the client's queue was full", c.answers_dropped;
];

/// States of a name server.
const NAME_SERVER_LEVELS: Rows<ServerStatus, f64> = rows![s: ServerStatus => f64;
    "whimbrel_gnrs_records", "Stored records", s.records as f64;
    "whimbrel_gnrs_record_bytes", "Memory of the stored records", s.record_bytes as f64;
    "whimbrel_gnrs_clients", "Clients, such as routers", s.clients as f64;
    "whimbrel_gnrs_watches", "Names that clients watch", s.watches as f64;
    "whimbrel_gnrs_store_up", "1 while the store works", flag(s.store_works);
    "whimbrel_gnrs_waiting", "Clients' requests that wait for the store", s.waiting as f64;
];

/// States of the peers of a name server.
const PEER_LEVELS: Rows<[PeerStatus], f64> = rows![p: [PeerStatus] => f64;
    "whimbrel_gnrs_peers", "Other name servers", p.len() as f64;
    "whimbrel_gnrs_peers_up", "Of them: those that answer", p.iter().filter(|it| it.answers).count() as f64;
    "whimbrel_gnrs_peers_in_repair", "Of them: those that are shown the records that are theirs to keep", p.iter().filter(|it| it.is_repaired).count() as f64;
    "whimbrel_gnrs_names_followed", "Names of other name servers that are followed because they are often asked for", p.iter().map(|it| it.followed).sum::<usize>() as f64;
];

/// Counters of the copies that name servers have of each other's records.
const PEER_COUNTS: Rows<PeerCounters, u64> = rows![c: PeerCounters => u64;
    "whimbrel_gnrs_copies_passed_on", "Records passed on to other name servers", c.passed_on;
    "whimbrel_gnrs_repairs", "Repairs of other name servers", c.repairs;
    "whimbrel_gnrs_lookups_of_peers", "Lookups for which other name servers were asked", c.lookups;
    "whimbrel_gnrs_lookups_of_peers_at_hand", "Of them: answered at once, because the name is followed or was asked for a moment ago", c.lookups_at_hand;
    "whimbrel_gnrs_lookups_of_peers_in_vain", "Of them: no other name server had a record", c.lookups_in_vain;
];

/// States of the cluster of a name server's records.
const ENGINE_LEVELS: Rows<EngineStatus, f64> = rows![e: EngineStatus => f64;
    "whimbrel_gnrs_engine_up", "1 while the cluster considers itself as working", flag(e.works);
    "whimbrel_gnrs_engine_primaries", "Primaries that are connected", e.primaries.values().filter(|it| **it).count() as f64;
    "whimbrel_gnrs_engine_uncovered_slots", "Slots that no primary has", e.uncovered_slots as f64;
    "whimbrel_gnrs_engine_bytes", "Memory that the primaries use", e.bytes as f64;
    "whimbrel_gnrs_engine_at_hand", "Names whose records are at hand without the cluster", e.at_hand as f64;
    "whimbrel_gnrs_engine_kept_writes", "Accepted writes that are kept, to be written again after a failover", e.kept_writes as f64;
];

/// Counters of the cluster.
const ENGINE_COUNTS: Rows<EngineStatus, u64> = rows![e: EngineStatus => u64;
    "whimbrel_gnrs_engine_primaries_changed", "Failovers and restarts of primaries", e.primaries_changed;
    "whimbrel_gnrs_engine_restored", "Records that a failover had lost, and that were written again", e.restored;
    "whimbrel_gnrs_engine_kept_writes_dropped", "Accepted writes that were not kept because there were too many", e.kept_writes_dropped;
    "whimbrel_gnrs_engine_forged", "Records on the cluster that no owner has signed", e.forged;
    "whimbrel_gnrs_engine_answered_without", "Lookups answered from memory because the cluster did not answer", e.answered_without;
    "whimbrel_gnrs_engine_failed", "Requests to the cluster that failed", e.failed;
];

/// States of the back-pressure buffer: its packets, and its capacity.
const BUFFER_LEVELS: Rows<(usize, usize), f64> = rows![b: (usize, usize) => f64;
    "whimbrel_buffer_packets", "Packets in the back-pressure buffer", b.0 as f64;
    "whimbrel_buffer_capacity_packets", "Capacity of the back-pressure buffer", b.1 as f64;
];

/// Counters of sockets.
pub(super) const SOCKET_COUNTS: Rows<TransportCounters, u64> = rows![s: TransportCounters => u64;
    "whimbrel_sockets_lanes_opened", "Sockets opened for peers at work while strangers flooded theirs", s.lanes_opened;
    "whimbrel_sockets_filtered", "Datagrams that the kernel dropped in floods because they could be no frame, about", s.filtered;
    "whimbrel_sockets_damaged", "Ethernet frames that end before the packet in them does", s.damaged;
    "whimbrel_sockets_strangers", "Datagrams from unknown addresses to links that do not listen", s.strangers;
    "whimbrel_sockets_callers_accepted", "Inbound peers and local programs that were accepted", s.accepted;
    "whimbrel_sockets_callers_expired", "Inbound peers closed because they were idle", s.expired;
    "whimbrel_sockets_callers_evicted", "Inbound peers closed to make room for new ones", s.evicted;
    "whimbrel_sockets_callers_refused", "Inbound peers refused because there were too many", s.refused;
    "whimbrel_sockets_receive_errors", "Errors while receiving, and errors that arrived by ICMP", s.receive_errors;
    "whimbrel_sockets_would_block", "Sends that the kernel could not take at once", s.would_block;
];

/// A snapshot of one node.
#[derive(Debug)]
pub(super) struct Snapshot {
    status: Status,
    // Used packets of the back-pressure buffer, and its capacity, in a node with hops.
    buffer: Option<(usize, usize)>,
    sockets: TransportCounters,
}

#[derive(Debug)]
enum Status {
    Router(RouterStatus),
    Host(HostStatus),
    NameServer(ServerStatus),
}

impl Snapshot {
    /// Takes a snapshot of a node and its sockets.
    pub(super) fn of(event_loop: &mut NodeLoop) -> Snapshot {
        let now = event_loop.clock().now();
        let (status, buffer) = match event_loop.machine() {
            Node::Router(router) => {
                let status = router.status(now);
                let buffer = status.buffer_packets;
                (Status::Router(status), Some(buffer))
            }
            Node::Host(host) => (Status::Host(host.status(now)), Some(host.buffer())),
            Node::NameServer(node) => (Status::NameServer(node.server().status(now)), None),
        };
        Snapshot {
            status,
            buffer,
            sockets: event_loop.snapshot().transports_total(),
        }
    }

    fn reception(&self) -> Option<&ReceptionCounters> {
        match &self.status {
            Status::Router(router) => Some(&router.reception),
            Status::Host(host) => Some(&host.reception),
            Status::NameServer(_) => None,
        }
    }

    /// Returns the links, and all inbound peers together.
    fn links(&self) -> Option<(&[LinkStatus], &CallersTotal)> {
        match &self.status {
            Status::Router(router) => Some((&router.links, &router.callers)),
            Status::Host(host) => Some((&host.links, &host.callers)),
            Status::NameServer(_) => None,
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut families = Families::new(&mut encoder);
        let (kind, uptime) = match &self.status {
            Status::Router(router) => ("router", router.uptime_s),
            Status::Host(host) => ("host", host.uptime_s),
            Status::NameServer(server) => ("gnrs", server.uptime_s),
        };
        families.gauges(
            "whimbrel_uptime_seconds",
            "Time since the start",
            [(vec![("kind", kind)], uptime)],
        )?;
        match &self.status {
            Status::Router(router) => encode_router(&mut families, router)?,
            Status::Host(host) => encode_host(&mut families, host)?,
            Status::NameServer(server) => encode_name_server(&mut families, server)?,
        }
        if let Some(counters) = self.reception() {
            encode_callers(&mut families, counters)?;
        }
        if let Some(buffer) = &self.buffer {
            families.level_all(BUFFER_LEVELS, buffer)?;
        }
        if let Some((links, callers)) = self.links() {
            encode_links(&mut families, links, callers)?;
        }
        families.count_all(SOCKET_COUNTS, &self.sockets)
    }
}

fn encode_drops<'s>(
    families: &mut Families<'_, '_>,
    name: &str,
    drops: impl IntoIterator<Item = (&'s &'static str, &'s u64)>,
) -> Result<(), Error> {
    let members = drops
        .into_iter()
        .map(|(reason, count)| (vec![("reason", *reason)], *count));
    families.counters(name, "Chunks and messages that the node dropped", members)
}

fn encode_router(families: &mut Families<'_, '_>, router: &RouterStatus) -> Result<(), Error> {
    let c = &router.counters;
    families.count_all(ROUTER_COUNTS, c)?;
    encode_drops(families, "whimbrel_router_drops", &c.drops)?;
    families.level_all(ROUTER_LEVELS, router)?;
    if let Some(disk) = &router.disk {
        families.count_all(DISK_COUNTS, disk)?;
        families.level_all(DISK_LEVELS, disk)?;
    }
    families.gauges(
        "whimbrel_name_server_up",
        "1 while the name server answers",
        router
            .name_servers
            .iter()
            .map(|server| (vec![("server", server.peer.as_str())], flag(server.answers))),
    )
}

fn encode_host(families: &mut Families<'_, '_>, host: &HostStatus) -> Result<(), Error> {
    let c = &host.counters;
    families.count_all(HOST_COUNTS, c)?;
    encode_drops(families, "whimbrel_host_drops", &c.drops)?;
    families.level_all(HOST_LEVELS, host)
}

fn encode_name_server(families: &mut Families<'_, '_>, server: &ServerStatus) -> Result<(), Error> {
    let c = &server.counters;
    families.count_all(NAME_SERVER_COUNTS, c)?;
    let refused: Vec<(String, u64)> = c
        .refused
        .iter()
        .map(|(code, count)| (format!("{code:?}"), *count))
        .collect();
    families.counters(
        "whimbrel_gnrs_refusals",
        "Requests refused",
        refused
            .iter()
            .map(|(code, count)| (vec![("code", code.as_str())], *count)),
    )?;
    families.level_all(NAME_SERVER_LEVELS, server)?;
    if let Some(counters) = &server.of_peers {
        families.level_all(PEER_LEVELS, &server.peers[..])?;
        families.count_all(PEER_COUNTS, counters)?;
    }
    if let Some(engine) = &server.engine {
        families.level_all(ENGINE_LEVELS, engine)?;
        families.count_all(ENGINE_COUNTS, engine)?;
    }
    Ok(())
}
