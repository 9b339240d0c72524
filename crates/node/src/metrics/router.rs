//! Counters of a router's MobilityFirst plane.

use whimbrel_mobilityfirst::router::RouterCounters;

use super::family::Count;

/// Returns the counters with their names and texts.
pub(super) fn router_counts(c: &RouterCounters) -> impl Iterator<Item = Count> {
    carried(c).into_iter().chain(kept(c))
}

/// Of what is carried and stored.
fn carried(c: &RouterCounters) -> [Count; 10] {
    [
        (
            "whimbrel_router_chunks_cached",
            "Chunks that were copied into the cache",
            c.chunks_cached,
        ),
        (
            "whimbrel_router_cache_hits",
            "Requested chunks of which a copy was here",
            c.cache_hits,
        ),
        (
            "whimbrel_router_chunks_awaited",
            "Requested chunks that another client was fetching",
            c.chunks_awaited,
        ),
        (
            "whimbrel_router_copy_bytes_sent",
            "Bytes of copies sent to clients",
            c.copy_bytes_sent,
        ),
        (
            "whimbrel_router_chunks_kept",
            "Chunks copied for a producer that delegates",
            c.chunks_kept,
        ),
        (
            "whimbrel_router_kept_freed",
            "Kept copies that are needed no longer",
            c.kept_freed,
        ),
        (
            "whimbrel_router_chunks_received",
            "Chunks that neighbours delivered whole",
            c.chunks_received,
        ),
        (
            "whimbrel_router_chunks_forwarded",
            "Chunks that the next neighbour acknowledged",
            c.chunks_forwarded,
        ),
        (
            "whimbrel_router_chunks_stored",
            "Chunks that were put into storage",
            c.chunks_stored,
        ),
        (
            "whimbrel_router_chunks_released",
            "Stored chunks forwarded because their destination was open",
            c.chunks_released,
        ),
    ]
}

/// Of the others.
fn kept(c: &RouterCounters) -> [Count; 10] {
    [
        (
            "whimbrel_router_chunks_pushed",
            "Stored chunks forwarded because of their source's Push",
            c.chunks_pushed,
        ),
        (
            "whimbrel_router_chunks_held_back",
            "Chunks stored because the next hop takes them too slowly",
            c.held_back,
        ),
        (
            "whimbrel_router_chunks_unwanted",
            "Chunks that their receiver no longer wants",
            c.chunks_unwanted,
        ),
        (
            "whimbrel_router_holds",
            "Times that a neighbour was asked to hold back a flow",
            c.holds,
        ),
        (
            "whimbrel_router_storage_lookups",
            "Lookups made for stored chunks",
            c.storage_lookups,
        ),
        (
            "whimbrel_router_requests_absorbed",
            "Requests and NACKs that ended here",
            c.requests_absorbed,
        ),
        (
            "whimbrel_router_waited_for_usual",
            "Chunks that are stored although they have a way, which is much worse than the usual one",
            c.waited_for_usual,
        ),
        (
            "whimbrel_router_bindings_pushed",
            "Changed bindings that the name service pushed",
            c.bindings_pushed,
        ),
        (
            "whimbrel_router_attachments_accepted",
            "Hosts' attachments accepted",
            c.attachments,
        ),
        (
            "whimbrel_router_left_over",
            "Inputs after which work was left over",
            c.left_over,
        ),
    ]
}
