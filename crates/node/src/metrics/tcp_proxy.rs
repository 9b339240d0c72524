//! Counters of a TCP/ICN proxy.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use whimbrel_io::TransportCounters;
use whimbrel_tcp_proxy::{Counters, Phase};

use super::family::{Families, Rows, flag, rows};
use super::native::SOCKET_COUNTS;
use crate::tcp_proxy::run::ProxyEventLoop;

/// A snapshot of one proxy.
#[derive(Debug)]
pub(super) struct Snapshot {
    counters: Counters,
    registered: bool,
    connections: Vec<(&'static str, u64)>,
    queued_bytes: usize,
    pending: usize,
    sockets: TransportCounters,
}

type Count = fn(&Counters) -> u64;

/// Counters of a proxy.
const COUNTS: Rows<Counters, u64> = rows![c: Counters => u64;
    "tcp_proxy_device_packets", "Packets from local programs", c.device_packets;
    "tcp_proxy_delivered_packets", "Packets to local programs", c.delivered_packets;
    "tcp_proxy_sent_interests", "Interests sent", c.out_interests;
    "tcp_proxy_sent_data", "Data sent", c.out_data;
    "tcp_proxy_sent_segments", "Segments in the Data sent", c.out_segments;
    "tcp_proxy_received_interests", "Interests received", c.in_interests;
    "tcp_proxy_received_data", "Data received that answer an Interest", c.in_data;
    "tcp_proxy_received_nacks", "Nacks received", c.in_nacks;
    "tcp_proxy_revived_segments", "Segments sent once more after an outage", c.revived;
    "tcp_proxy_path_probes", "Probes and checks of paths sent", c.probes;
    "tcp_proxy_failed_paths", "Paths left because they failed", c.failed_paths;
    "tcp_proxy_connections_seen", "Connections since the start", c.connections;
];

/// States of a proxy.
const LEVELS: Rows<Snapshot, f64> = rows![s: Snapshot => f64;
    "tcp_proxy_queued_bytes", "Bytes of segments that wait for an Interest", s.queued_bytes as f64;
    "tcp_proxy_pending_interests", "Interests that are not answered yet", s.pending as f64;
    "tcp_proxy_registered", "1 if the forwarder has the proxy's prefix", flag(s.registered);
];

/// Reasons to drop a packet or message.
const DROPS: [(&str, Count); 16] = [
    ("malformed", |c| c.malformed),
    ("fragment", |c| c.fragments),
    ("not-tcp", |c| c.not_tcp),
    ("checksum", |c| c.wrong_checksum),
    ("denied", |c| c.denied),
    ("unknown-connection", |c| c.unknown_connection),
    ("table-full", |c| c.table_full),
    ("not-admitted", |c| c.not_admitted),
    ("opening-forgotten", |c| c.opening_forgotten),
    ("queue-full", |c| c.queue_full),
    ("forged", |c| c.forged),
    ("replayed", |c| c.replayed),
    ("untimely", |c| c.untimely),
    ("version", |c| c.other_version),
    ("bad-message", |c| c.bad_messages),
    ("unexpected", |c| c.unexpected),
];

impl Snapshot {
    /// Takes a snapshot of a proxy and its sockets.
    pub(super) fn of(event_loop: &ProxyEventLoop) -> Snapshot {
        let proxy = event_loop.machine().proxy();
        let counted = proxy.phases();
        Snapshot {
            counters: *proxy.counters(),
            registered: proxy.is_registered(),
            connections: Phase::ALL
                .iter()
                .zip(counted)
                .map(|(phase, count)| (phase.name(), count))
                .collect(),
            queued_bytes: proxy.queued_bytes(),
            pending: proxy.pending_interests(),
            sockets: event_loop.snapshot().transports_total(),
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut families = Families::new(&mut encoder);
        families.count_all(COUNTS, &self.counters)?;
        families.counters(
            "tcp_proxy_drops",
            "Packets, messages and connections dropped, by reason",
            DROPS
                .iter()
                .map(|(reason, count)| (vec![("reason", *reason)], count(&self.counters))),
        )?;
        families.gauges(
            "tcp_proxy_connections",
            "Connections known, by phase",
            self.connections
                .iter()
                .map(|(phase, count)| (vec![("phase", *phase)], *count as f64)),
        )?;
        families.level_all(LEVELS, self)?;
        families.count_all(SOCKET_COUNTS, &self.sockets)
    }
}
