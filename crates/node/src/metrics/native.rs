//! Counters of a host, a name server, or a router's MobilityFirst plane: the values in its status.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use whimbrel_gnrs::store::EngineStatus;
use whimbrel_gnrs::{PeerCounters, PeerStatus, ServerCounters, ServerStatus};
use whimbrel_io::TransportCounters;
use whimbrel_link::hop::ReceptionCounters;
use whimbrel_mobilityfirst::host::HostStatus;
use whimbrel_mobilityfirst::links::{CallersTotal, LinkStatus};
use whimbrel_mobilityfirst::router::{RouterStatus, StorageDisk};

use super::callers::encode_callers;
use super::family::{Count, Families, flag};
use super::links::encode_links;
use super::router::router_counts;
use crate::Node;
use crate::run::NodeLoop;

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
        if let Some((used, capacity)) = self.buffer {
            families.gauge(
                "whimbrel_buffer_packets",
                "Packets in the back-pressure buffer",
                used as f64,
            )?;
            families.gauge(
                "whimbrel_buffer_capacity_packets",
                "Capacity of the back-pressure buffer",
                capacity as f64,
            )?;
        }
        if let Some((links, callers)) = self.links() {
            encode_links(&mut families, links, callers)?;
        }
        encode_sockets(&mut families, &self.sockets)
    }
}

type Level = (&'static str, &'static str, f64);

fn encode_counts(families: &mut Families<'_, '_>, counts: &[Count]) -> Result<(), Error> {
    counts
        .iter()
        .try_for_each(|(name, help, value)| families.counter(name, help, *value))
}

fn encode_levels(families: &mut Families<'_, '_>, levels: &[Level]) -> Result<(), Error> {
    levels
        .iter()
        .try_for_each(|(name, help, value)| families.gauge(name, help, *value))
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
    let counts: Vec<Count> = router_counts(&router.counters).collect();
    encode_counts(families, &counts)?;
    encode_drops(families, "whimbrel_router_drops", &c.drops)?;
    let (stored, capacity) = router.stored_bytes;
    let (cached, _) = router.cached_bytes;
    let levels: [Level; 7] = [
        (
            "whimbrel_router_cached_bytes",
            "Bytes of cached copies",
            cached as f64,
        ),
        (
            "whimbrel_router_kept_bytes",
            "Bytes of copies kept for producers",
            router.kept_bytes as f64,
        ),
        (
            "whimbrel_router_stored_chunks",
            "Chunks in storage",
            router.stored_chunks as f64,
        ),
        (
            "whimbrel_router_stored_bytes",
            "Bytes in storage",
            stored as f64,
        ),
        (
            "whimbrel_router_storage_capacity_bytes",
            "Capacity of the storage",
            capacity as f64,
        ),
        (
            "whimbrel_router_waiting_destinations",
            "Destinations of stored chunks",
            router.waiting_destinations as f64,
        ),
        (
            "whimbrel_router_attachments",
            "Names attached here",
            router.attachments as f64,
        ),
    ];
    encode_levels(families, &levels)?;
    if let Some(disk) = &router.disk {
        encode_disk(families, disk)?;
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

fn encode_disk(families: &mut Families<'_, '_>, disk: &StorageDisk) -> Result<(), Error> {
    let counts: [Count; 5] = [
        (
            "whimbrel_router_disk_written",
            "Chunks written to the storage's disk",
            disk.written,
        ),
        (
            "whimbrel_router_disk_read",
            "Chunks read from the storage's disk",
            disk.read,
        ),
        (
            "whimbrel_router_disk_refused",
            "Chunks that the disk had no room for",
            disk.refused,
        ),
        (
            "whimbrel_router_disk_damaged",
            "Damaged chunks on the disk, which were dropped",
            disk.damaged,
        ),
        (
            "whimbrel_router_disk_faults",
            "Failures of the disk",
            disk.faults,
        ),
    ];
    encode_counts(families, &counts)?;
    let (bytes, limit) = disk.bytes;
    let levels: [Level; 4] = [
        (
            "whimbrel_router_disk_works",
            "1 while the storage's disk works",
            flag(disk.fault.is_none()),
        ),
        (
            "whimbrel_router_disk_chunks",
            "Chunks on the storage's disk",
            disk.chunks as f64,
        ),
        (
            "whimbrel_router_disk_bytes",
            "Bytes of chunks on the storage's disk",
            bytes as f64,
        ),
        (
            "whimbrel_router_disk_capacity_bytes",
            "Bound of the chunks on the storage's disk",
            limit as f64,
        ),
    ];
    encode_levels(families, &levels)
}

fn encode_host(families: &mut Families<'_, '_>, host: &HostStatus) -> Result<(), Error> {
    let c = &host.counters;
    let counts: [Count; 10] = [
        (
            "whimbrel_host_chunks_received",
            "Chunks that routers delivered whole",
            c.chunks_received,
        ),
        (
            "whimbrel_host_chunks_sent",
            "Chunks that a router acknowledged",
            c.chunks_sent,
        ),
        (
            "whimbrel_host_chunks_handed_over",
            "Verified chunks handed to local programs",
            c.chunks_handed_over,
        ),
        (
            "whimbrel_host_chunks_duplicate",
            "Chunks that had been received before",
            c.duplicates,
        ),
        (
            "whimbrel_host_chunks_unproven",
            "Chunks that did not belong to the content that they claimed",
            c.unproven,
        ),
        (
            "whimbrel_host_requests_sent",
            "Requests sent, repeated ones included",
            c.requests_sent,
        ),
        ("whimbrel_host_nacks_sent", "NACKs sent", c.nacks_sent),
        (
            "whimbrel_host_windows_sent",
            "Messages about end-to-end windows sent",
            c.windows_sent,
        ),
        (
            "whimbrel_host_pushes_sent",
            "Pushes sent to proxies",
            c.pushes_sent,
        ),
        (
            "whimbrel_host_left_over",
            "Inputs after which work was left over",
            c.left_over,
        ),
    ];
    encode_counts(families, &counts)?;
    encode_drops(families, "whimbrel_host_drops", &c.drops)?;
    let levels: [Level; 4] = [
        (
            "whimbrel_host_registered",
            "1 once the name service has the host's binding",
            flag(host.registered),
        ),
        (
            "whimbrel_host_downloads",
            "Requests of local programs that are under way",
            host.downloads as f64,
        ),
        (
            "whimbrel_host_published",
            "Contents on offer",
            host.published as f64,
        ),
        (
            "whimbrel_host_uploads",
            "Contents being sent to others",
            host.uploads as f64,
        ),
    ];
    encode_levels(families, &levels)
}

fn name_server_counts(c: &ServerCounters) -> [Count; 17] {
    [
        (
            "whimbrel_gnrs_busy",
            "Requests refused because too many waited for the store",
            c.busy,
        ),
        ("whimbrel_gnrs_frames_received", "Frames received", c.frames),
        (
            "whimbrel_gnrs_frames_damaged",
            "Frames with a wrong checksum",
            c.damaged_frames,
        ),
        (
            "whimbrel_gnrs_frames_malformed",
            "Frames that are malformed, of another version, or not for a server",
            c.malformed_frames,
        ),
        (
            "whimbrel_gnrs_frames_from_unknown_ports",
            "Frames from a port that is not up",
            c.frames_from_unknown_ports,
        ),
        ("whimbrel_gnrs_lookups", "Lookups", c.lookups),
        (
            "whimbrel_gnrs_lookups_not_found",
            "Lookups of names without a record",
            c.not_found,
        ),
        (
            "whimbrel_gnrs_updates_stored",
            "Updates stored",
            c.updates_stored,
        ),
        (
            "whimbrel_gnrs_updates_unchanged",
            "Updates that were stored already",
            c.updates_unchanged,
        ),
        ("whimbrel_gnrs_commits", "Transactions", c.commits),
        (
            "whimbrel_gnrs_records_forgotten",
            "Records removed after they had expired",
            c.records_forgotten,
        ),
        (
            "whimbrel_gnrs_pushes",
            "Pushes sent, retransmissions included",
            c.pushes,
        ),
        (
            "whimbrel_gnrs_pushes_repeated",
            "Retransmissions of pushes",
            c.pushes_repeated,
        ),
        (
            "whimbrel_gnrs_pushes_given_up",
            "Pushes abandoned after the last retransmission",
            c.pushes_given_up,
        ),
        (
            "whimbrel_gnrs_watches_ended",
            "Watches that ended so that another client could watch a name",
            c.watches_ended,
        ),
        (
            "whimbrel_gnrs_leases_ended",
            "Watches whose lease expired",
            c.leases_ended,
        ),
        (
            "whimbrel_gnrs_answers_dropped",
            "Answers dropped because the client's queue was full",
            c.answers_dropped,
        ),
    ]
}

fn encode_name_server(families: &mut Families<'_, '_>, server: &ServerStatus) -> Result<(), Error> {
    let c = &server.counters;
    let counts = name_server_counts(&server.counters);
    encode_counts(families, &counts)?;
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
    let levels: [Level; 6] = [
        (
            "whimbrel_gnrs_records",
            "Stored records",
            server.records as f64,
        ),
        (
            "whimbrel_gnrs_record_bytes",
            "Memory of the stored records",
            server.record_bytes as f64,
        ),
        (
            "whimbrel_gnrs_clients",
            "Clients, such as routers",
            server.clients as f64,
        ),
        (
            "whimbrel_gnrs_watches",
            "Names that clients watch",
            server.watches as f64,
        ),
        (
            "whimbrel_gnrs_store_up",
            "1 while the store works",
            flag(server.store_works),
        ),
        (
            "whimbrel_gnrs_waiting",
            "Clients' requests that wait for the store",
            server.waiting as f64,
        ),
    ];
    encode_levels(families, &levels)?;
    if let Some(counters) = &server.of_peers {
        encode_peers(families, &server.peers, counters)?;
    }
    match &server.engine {
        Some(engine) => encode_engine(families, engine),
        None => Ok(()),
    }
}

/// The peers of a name server, and the copies that they have of each other's records.
fn encode_peers(
    families: &mut Families<'_, '_>,
    peers: &[PeerStatus],
    counters: &PeerCounters,
) -> Result<(), Error> {
    let answering = peers.iter().filter(|it| it.answers).count();
    let repaired = peers.iter().filter(|it| it.is_repaired).count();
    let followed: usize = peers.iter().map(|it| it.followed).sum();
    let levels: [Level; 4] = [
        (
            "whimbrel_gnrs_peers",
            "Other name servers",
            peers.len() as f64,
        ),
        (
            "whimbrel_gnrs_peers_up",
            "Of them: those that answer",
            answering as f64,
        ),
        (
            "whimbrel_gnrs_peers_in_repair",
            "Of them: those that are shown the records that are theirs to keep",
            repaired as f64,
        ),
        (
            "whimbrel_gnrs_names_followed",
            "Names of other name servers that are followed because they are often asked for",
            followed as f64,
        ),
    ];
    encode_levels(families, &levels)?;
    let counts: [Count; 5] = [
        (
            "whimbrel_gnrs_copies_passed_on",
            "Records passed on to other name servers",
            counters.passed_on,
        ),
        (
            "whimbrel_gnrs_repairs",
            "Repairs of other name servers",
            counters.repairs,
        ),
        (
            "whimbrel_gnrs_lookups_of_peers",
            "Lookups for which other name servers were asked",
            counters.lookups,
        ),
        (
            "whimbrel_gnrs_lookups_of_peers_at_hand",
            "Of them: answered at once, because the name is followed or was asked for a moment ago",
            counters.lookups_at_hand,
        ),
        (
            "whimbrel_gnrs_lookups_of_peers_in_vain",
            "Of them: no other name server had a record",
            counters.lookups_in_vain,
        ),
    ];
    encode_counts(families, &counts)
}

/// The cluster of a name server's records.
fn encode_engine(families: &mut Families<'_, '_>, engine: &EngineStatus) -> Result<(), Error> {
    let connected = engine.primaries.values().filter(|it| **it).count();
    let levels: [Level; 6] = [
        (
            "whimbrel_gnrs_engine_up",
            "1 while the cluster considers itself as working",
            flag(engine.works),
        ),
        (
            "whimbrel_gnrs_engine_primaries",
            "Primaries that are connected",
            connected as f64,
        ),
        (
            "whimbrel_gnrs_engine_uncovered_slots",
            "Slots that no primary has",
            engine.uncovered_slots as f64,
        ),
        (
            "whimbrel_gnrs_engine_bytes",
            "Memory that the primaries use",
            engine.bytes as f64,
        ),
        (
            "whimbrel_gnrs_engine_at_hand",
            "Names whose records are at hand without the cluster",
            engine.at_hand as f64,
        ),
        (
            "whimbrel_gnrs_engine_kept_writes",
            "Accepted writes that are kept, to be written again after a failover",
            engine.kept_writes as f64,
        ),
    ];
    encode_levels(families, &levels)?;
    let counts: [Count; 6] = [
        (
            "whimbrel_gnrs_engine_primaries_changed",
            "Failovers and restarts of primaries",
            engine.primaries_changed,
        ),
        (
            "whimbrel_gnrs_engine_restored",
            "Records that a failover had lost, and that were written again",
            engine.restored,
        ),
        (
            "whimbrel_gnrs_engine_kept_writes_dropped",
            "Accepted writes that were not kept because there were too many",
            engine.kept_writes_dropped,
        ),
        (
            "whimbrel_gnrs_engine_forged",
            "Records on the cluster that no owner has signed",
            engine.forged,
        ),
        (
            "whimbrel_gnrs_engine_answered_without",
            "Lookups answered from memory because the cluster did not answer",
            engine.answered_without,
        ),
        (
            "whimbrel_gnrs_engine_failed",
            "Requests to the cluster that failed",
            engine.failed,
        ),
    ];
    encode_counts(families, &counts)
}

pub(super) fn encode_sockets(
    families: &mut Families<'_, '_>,
    sockets: &TransportCounters,
) -> Result<(), Error> {
    let counts: [Count; 10] = [
        (
            "whimbrel_sockets_lanes_opened",
            "Sockets opened for peers at work while strangers flooded theirs",
            sockets.lanes_opened,
        ),
        (
            "whimbrel_sockets_filtered",
            "Datagrams that the kernel dropped in floods because they could be no frame, about",
            sockets.filtered,
        ),
        (
            "whimbrel_sockets_damaged",
            "Ethernet frames that end before the packet in them does",
            sockets.damaged,
        ),
        (
            "whimbrel_sockets_strangers",
            "Datagrams from unknown addresses to links that do not listen",
            sockets.strangers,
        ),
        (
            "whimbrel_sockets_callers_accepted",
            "Inbound peers and local programs that were accepted",
            sockets.accepted,
        ),
        (
            "whimbrel_sockets_callers_expired",
            "Inbound peers closed because they were idle",
            sockets.expired,
        ),
        (
            "whimbrel_sockets_callers_evicted",
            "Inbound peers closed to make room for new ones",
            sockets.evicted,
        ),
        (
            "whimbrel_sockets_callers_refused",
            "Inbound peers refused because there were too many",
            sockets.refused,
        ),
        (
            "whimbrel_sockets_receive_errors",
            "Errors while receiving, and errors that arrived by ICMP",
            sockets.receive_errors,
        ),
        (
            "whimbrel_sockets_would_block",
            "Sends that the kernel could not take at once",
            sockets.would_block,
        ),
    ];
    encode_counts(families, &counts)
}
