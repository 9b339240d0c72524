//! The state of the hops, for reports and for the choice of next hops.

use whimbrel_core::{Guid, LinkState, LookUpFailure, PortId, Time};
use whimbrel_link::HopStats;

use super::link::Link;
use super::neighbours::Neighbours;

/// One neighbour, for reports.
#[derive(Clone, Debug, serde::Serialize)]
pub struct LinkStatus {
    /// The port's number.
    pub port: u32,
    /// The link's name in the configuration.
    pub label: String,
    /// The other end's address.
    pub peer: String,
    /// The neighbour's GUID, once it is known.
    pub neighbour: Option<Guid>,
    /// True for an inbound peer.
    pub caller: bool,
    /// True while it is responsive.
    pub up: bool,
    /// Seconds since its last frame, or since the link was opened.
    pub silent_s: f64,
    /// True if its machine has answered since then that no program receives there.
    pub refused: bool,
    /// Why the neighbour does not talk with this node, as an unproven notice has said since it
    /// last did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unwilling: Option<String>,
    /// False while the interface by which its frames leave is known not to work.
    pub carrier: bool,
    /// Chunks queued for the hop.
    pub chunks_waiting: usize,
    /// The hop's counters and estimates.
    pub hop: HopStats,
}

/// Inbound peers that are reported one by one; all of them are in [`CallersTotal`].
const MAX_CALLERS_SHOWN: usize = 256;

/// All inbound peers together, for reports.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct CallersTotal {
    /// Their ports.
    pub ports: usize,
    /// Those that are responsive.
    pub up: usize,
    /// Chunks queued for their hops.
    pub chunks_waiting: usize,
    /// Chunks in flight to them.
    pub chunks_in_flight: usize,
    /// Bytes in flight to them.
    pub inflight: u64,
    /// The sums of their hops' counters, of those that have left as well.
    pub hop: HopStats,
}

/// A configured neighbour without a port.
#[derive(Clone, Debug, serde::Serialize)]
pub struct UnresolvedStatus {
    /// Its host name.
    pub host: String,
    /// Why the name cannot be looked up.
    pub error: String,
    /// Seconds until it is looked up again.
    pub again_in_s: f64,
}

impl Neighbours {
    /// Returns the measured state of a port's link. A chunk counts as waiting until the neighbour has taken
    /// it over.
    pub(crate) fn state(&self, port: PortId) -> LinkState {
        self.at(port).map_or(LinkState::default(), Link::state)
    }

    /// Packets of the buffer in use, and B.
    pub(crate) fn buffer(&self) -> (usize, usize) {
        (self.buffer.used(), self.buffer.capacity())
    }

    /// Memory of chunks that are arriving or hold room in the buffer, wherever in the node they
    /// are, in bytes.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Returns all inbound peers together.
    pub(crate) fn callers_total(&self) -> CallersTotal {
        let mut total = CallersTotal {
            hop: self.departed.clone(),
            ..CallersTotal::default()
        };
        for link in self.links.values().filter(|it| it.info.origin.is_caller()) {
            let stats = link.hop.stats();
            total.ports += 1;
            total.up += usize::from(link.is_up());
            total.chunks_waiting += link.outbox.queued();
            total.chunks_in_flight += stats.chunks_in_flight;
            total.inflight += stats.inflight;
            total.hop.add_counters(&stats);
        }
        total
    }

    /// Returns the configured neighbours, and some of the inbound peers, for reports.
    pub(crate) fn status(&self, now: Time) -> Vec<LinkStatus> {
        let mut callers = 0;
        let is_shown = |(_, link): &(&PortId, &Link)| {
            callers += usize::from(link.info.origin.is_caller());
            !link.info.origin.is_caller() || callers <= MAX_CALLERS_SHOWN
        };
        self.links
            .iter()
            .filter(is_shown)
            .map(|(port, link)| LinkStatus {
                port: port.0,
                label: link.info.label.clone(),
                peer: link.info.peer.clone(),
                neighbour: link.neighbour,
                caller: link.info.origin.is_caller(),
                up: link.is_up(),
                silent_s: now.since(link.last_frame).as_secs_f64(),
                refused: link.refused,
                unwilling: link.hop.unwilling().map(|why| why.text().into_owned()),
                carrier: link.carried,
                chunks_waiting: link.outbox.queued(),
                hop: link.hop.stats(),
            })
            .collect()
    }

    /// Notes that a configured neighbour's host name cannot be looked up.
    pub(crate) fn note_look_up_failure(&mut self, failure: LookUpFailure) {
        self.unresolved.insert(failure.origin, failure);
    }

    /// The configured neighbours whose host names are not known.
    pub(crate) fn unresolved(&self, now: Time) -> Vec<UnresolvedStatus> {
        let all = self.unresolved.values();
        all.map(|failure| UnresolvedStatus {
            host: failure.host.clone(),
            error: failure.error.clone(),
            again_in_s: failure.again_at.since(now).as_secs_f64(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_core::PortEvent;

    use super::super::tests::links;
    use super::*;

    #[test]
    fn thousands_of_inbound_peers_are_summed_and_some_of_them_shown() {
        let mut links = links(4_000);
        let shown = links.neighbours.status(Time::ZERO);
        assert_eq!(shown.len(), MAX_CALLERS_SHOWN);
        assert_eq!(links.neighbours.callers_total().ports, 4_000);
        // A local frame has at most 4 MiB.
        assert!(serde_json::to_vec(&shown).unwrap_or_default().len() < 1 << 20);
        links.handle_port(Time::ZERO, PortId(7), &PortEvent::Down);
        assert_eq!(links.neighbours.callers_total().ports, 3_999);
    }
}
