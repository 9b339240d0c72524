//! Counters of a router's NDN plane.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use whimbrel_forwarder::mgmt::ManagementCounters;
use whimbrel_forwarder::{FaceCounters, ForwarderCounters, Scope};
use whimbrel_io::TransportCounters;
use whimbrel_link::ndnlp::LinkStats;
use whimbrel_ndn_router::faces;

use super::family::{Families, Labels, Rows, flag, rows};
use crate::ndn::open::NdnLoop;

/// A snapshot of one router.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    forwarder: ForwarderCounters,
    refused_callers: u64,
    evicted_callers: u64,
    kept_out: u64,
    management: ManagementCounters,
    sockets: TransportCounters,
    pit_entries: usize,
    fib_entries: usize,
    cs_packets: usize,
    cs_bytes: usize,
    faces: Vec<FaceSnapshot>,
}

#[derive(Clone, Debug)]
struct FaceSnapshot {
    /// Labels of the face's metrics.
    labels: [(&'static str, String); 4],
    up: bool,
    counters: FaceCounters,
    link: LinkStats,
}

/// Counters of a router.
const COUNTS: Rows<Snapshot, u64> = rows![s: Snapshot => u64;
    "ndn_callers_refused", "Inbound peers refused because there were too many faces", s.refused_callers;
    "ndn_datagrams_kept_out", "Datagrams of unknown senders dropped because there were too many of these", s.kept_out;
    "ndn_callers_evicted", "Faces of silent inbound peers that gave way to others", s.evicted_callers;
    "ndn_management_wrong_digests", "Commands accepted although their digest does not match, because no signature is required", s.management.wrong_digests;
];

/// Counters of a face's link.
const LINK_COUNTS: Rows<LinkStats, u64> = rows![l: LinkStats => u64;
    "ndn_link_sent_bytes", "Bytes of frames sent", l.bytes_sent;
    "ndn_link_received_bytes", "Bytes of frames received", l.bytes_received;
    "ndn_link_sent_frames", "Frames sent", l.frames_sent;
    "ndn_link_received_frames", "Frames received", l.frames_received;
    "ndn_link_retransmissions", "Frames retransmitted", l.retransmissions;
    "ndn_link_spurious", "Spurious retransmissions: the frame had arrived", l.spurious;
    "ndn_link_losses", "Frames declared lost", l.losses;
    "ndn_link_mtu_falls", "Times that the path was found to drop large frames", l.mtu_falls;
    "ndn_link_mtu_probes", "Probes of the path MTU sent", l.mtu_probes;
    "ndn_link_timeouts", "Frames declared lost by a timeout", l.timeouts;
    "ndn_link_recovered", "Lost frames that a retransmission recovered", l.recovered;
    "ndn_link_spared", "Packets not sent, because the same packet was being retransmitted", l.spared;
    "ndn_link_given_up", "Lost frames that no retransmission recovered", l.given_up;
    "ndn_link_duplicates", "Frames received twice", l.duplicates;
    "ndn_link_marks", "Packets marked for congestion", l.marks;
];

/// States of a face's link.
const LINK_LEVELS: Rows<LinkStats, f64> = rows![l: LinkStats => f64;
    "ndn_link_loss_ratio", "Share of frames lost, smoothed", l.loss;
    "ndn_link_rtt_seconds", "Smoothed round trip of the link; 0 if unknown", l.rtt.unwrap_or_default().as_secs_f64();
    "ndn_link_queue_bytes", "Bytes that wait to be sent", l.queue_bytes as f64;
    "ndn_link_outstanding_frames", "Frames sent and not acknowledged", l.outstanding as f64;
];

impl Snapshot {
    /// Takes a snapshot of a router and its sockets.
    pub(super) fn of(event_loop: &NdnLoop) -> Snapshot {
        let router = event_loop.machine();
        let forwarder = router.forwarder();
        let faces = forwarder.faces().filter_map(|face| {
            let link = router.link(face.id())?.stats().clone();
            let scope = if face.spec.scope == Scope::Local {
                "local"
            } else {
                "non-local"
            };
            let labels = [
                ("face", face.id().to_string()),
                ("remote", face.spec.remote_uri.clone()),
                ("local", face.spec.local_uri.clone()),
                ("scope", scope.to_owned()),
            ];
            Some(FaceSnapshot {
                labels,
                up: face.up,
                counters: face.counters,
                link,
            })
        });
        Snapshot {
            forwarder: *forwarder.counters(),
            refused_callers: router.refused_callers(),
            evicted_callers: router.evicted_callers(),
            kept_out: router.kept_out(),
            management: forwarder.management_counters(),
            sockets: event_loop.snapshot().transports_total(),
            pit_entries: forwarder.pit().len(),
            fib_entries: forwarder.fib().len(),
            cs_packets: forwarder.cs().len(),
            cs_bytes: forwarder.cs().bytes(),
            faces: faces.collect(),
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut family = Families::new(&mut encoder);
        self.encode_forwarder(&mut family)?;
        self.encode_faces(&mut family)?;
        self.encode_links(&mut family)
    }
}

impl Snapshot {
    fn encode_forwarder(&self, family: &mut Families<'_, '_>) -> Result<(), std::fmt::Error> {
        let counters = &self.forwarder;
        let kinds = |values: [u64; 3]| {
            ["interest", "data", "nack"]
                .into_iter()
                .zip(values)
                .map(|(kind, value)| (vec![("kind", kind)], value))
        };
        let received = [counters.in_interests, counters.in_data, counters.in_nacks];
        family.counters(
            "ndn_packets_received",
            "Network-layer packets received",
            kinds(received),
        )?;
        let sent = [
            counters.out_interests,
            counters.out_data,
            counters.out_nacks,
        ];
        family.counters(
            "ndn_packets_sent",
            "Network-layer packets sent",
            kinds(sent),
        )?;
        let outcomes = [
            ("satisfied", counters.satisfied),
            ("unsatisfied", counters.unsatisfied),
        ];
        let outcomes = outcomes.map(|(outcome, value)| (vec![("outcome", outcome)], value));
        family.counters(
            "ndn_pit_ended",
            "Pending Interests that ended, with Data or without",
            outcomes,
        )?;
        let answers = [("hit", counters.cs_hits), ("miss", counters.cs_misses)];
        let answers = answers.map(|(answer, value)| (vec![("answer", answer)], value));
        family.counters(
            "ndn_content_store_lookups",
            "Interests looked up in the content store",
            answers,
        )?;
        let drops = counters
            .drops()
            .map(|(reason, value)| (vec![("reason", reason)], value));
        family.counters("ndn_drops", "Packets that the forwarder dropped", drops)?;
        family.count_all(COUNTS, self)?;
        self.encode_management(family)?;
        self.encode_sockets(family)?;
        self.encode_tables(family)
    }

    fn encode_tables(&self, family: &mut Families<'_, '_>) -> Result<(), std::fmt::Error> {
        let sizes = [
            ("pit", self.pit_entries as f64),
            ("fib", self.fib_entries as f64),
            ("content-store", self.cs_packets as f64),
        ];
        let sizes = sizes.map(|(table, value)| (vec![("table", table)], value));
        family.gauges(
            "ndn_table_entries",
            "Entries of the forwarder's tables",
            sizes,
        )?;
        family.gauge(
            "ndn_content_store_bytes",
            "Memory of the content store",
            self.cs_bytes as f64,
        )
    }

    fn encode_management(&self, family: &mut Families<'_, '_>) -> Result<(), std::fmt::Error> {
        let management = [
            ("carried-out", self.management.commands),
            ("failed", self.management.failures),
            ("refused", self.management.refusals),
        ];
        let management = management.map(|(outcome, value)| (vec![("outcome", outcome)], value));
        family.counters(
            "ndn_management_commands",
            "Commands to management",
            management,
        )
    }

    fn encode_sockets(&self, family: &mut Families<'_, '_>) -> Result<(), std::fmt::Error> {
        let sockets = &self.sockets;
        let ended = [
            ("foreign-type", sockets.foreign_closed),
            ("malformed", sockets.malformed_closed),
            ("oversize", sockets.oversize_closed),
            ("not-read", sockets.overflow_closed),
            ("no-answer", sockets.timed_out),
        ];
        family.counters(
            "ndn_connections_ended",
            "Streams and WebSockets that the router closed",
            ended.map(|(reason, value)| (vec![("reason", reason)], value)),
        )?;
        family.counters(
            "ndn_handshakes_refused",
            "WebSocket handshakes refused because of the page's origin",
            [(vec![("reason", "origin")], sockets.origins_refused)],
        )
    }

    fn each<'s, V>(
        &'s self,
        value: impl Fn(&FaceSnapshot) -> V + 's,
    ) -> impl Iterator<Item = (Labels<'s>, V)> + 's {
        self.faces
            .iter()
            .map(move |face| (face.labels(), value(face)))
    }

    fn encode_faces(&self, family: &mut Families<'_, '_>) -> Result<(), std::fmt::Error> {
        family.gauges(
            "ndn_face_up",
            "1 while the face is up",
            self.each(|face| flag(face.up)),
        )?;
        type Kinds = [(&'static str, fn(&FaceCounters) -> u64); 3];
        let directions: [(&str, &str, Kinds); 2] = [
            (
                "ndn_face_packets_received",
                "Network-layer packets received by the face",
                [
                    ("interest", |c| c.in_interests),
                    ("data", |c| c.in_data),
                    ("nack", |c| c.in_nacks),
                ],
            ),
            (
                "ndn_face_packets_sent",
                "Network-layer packets sent by the face",
                [
                    ("interest", |c| c.out_interests),
                    ("data", |c| c.out_data),
                    ("nack", |c| c.out_nacks),
                ],
            ),
        ];
        for (name, help, kinds) in directions {
            let members = self.faces.iter().flat_map(|face| {
                kinds.iter().map(move |(kind, count)| {
                    let mut labels = face.labels();
                    labels.push(("kind", *kind));
                    (labels, count(&face.counters))
                })
            });
            family.counters(name, help, members)?;
        }
        Ok(())
    }

    fn encode_links(&self, family: &mut Families<'_, '_>) -> Result<(), std::fmt::Error> {
        for (name, help, count) in LINK_COUNTS.iter().copied() {
            family.counters(name, help, self.each(move |face| count(&face.link)))?;
        }
        let drops = self.faces.iter().flat_map(|face| {
            faces::by_reason(&face.link.drops)
                .into_iter()
                .map(move |(reason, value)| {
                    let mut labels = face.labels();
                    labels.push(("reason", reason));
                    (labels, value)
                })
        });
        family.counters(
            "ndn_link_drops",
            "Packets and frames that the link dropped",
            drops,
        )?;
        for (name, help, level) in LINK_LEVELS.iter().copied() {
            family.gauges(name, help, self.each(move |face| level(&face.link)))?;
        }
        Ok(())
    }
}

impl FaceSnapshot {
    fn labels(&self) -> Labels<'_> {
        self.labels
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect()
    }
}
