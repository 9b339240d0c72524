//! Counters and levels of each link of a node.

use std::fmt::Error;
use std::time::Duration;

use whimbrel_link::HopStats;
use whimbrel_mobilityfirst::links::{CallersTotal, LinkStatus};

use super::family::{Families, Labels, Rows, flag, rows};

/// The labels of one link. The port's number distinguishes inbound peers of one listener.
struct Ends {
    port: String,
    neighbour: String,
}

/// Counters of a hop.
const LINK_COUNTS: Rows<HopStats, u64> = rows![h: HopStats => u64;
    "whimbrel_link_sent_frames", "Frames sent", h.frames_sent;
    "whimbrel_link_sent_bytes", "Bytes of frames sent", h.bytes_sent;
    "whimbrel_link_received_frames", "Frames accepted", h.frames_received;
    "whimbrel_link_received_bytes", "Bytes of frames accepted", h.bytes_received;
    "whimbrel_link_sent_data_frames", "DATA frames sent, including retransmissions", h.data_sent;
    "whimbrel_link_resent_data_frames", "DATA frames declared lost and retransmitted", h.data_resent;
    "whimbrel_link_spurious_resends", "Retransmissions that proved spurious", h.spurious_resends;
    "whimbrel_link_reported_marks", "Frames sent that queues on the path marked (ECN)", h.marks_reported;
    "whimbrel_link_received_marks", "Frames accepted that queues on the path had marked (ECN)", h.marks_received;
    "whimbrel_link_delivered_chunks", "Chunks that the neighbour acknowledged", h.chunks_delivered;
    "whimbrel_link_delivered_chunk_bytes", "Bytes of chunks that the neighbour acknowledged", h.chunk_bytes_delivered;
    "whimbrel_link_received_chunks", "Chunks received whole", h.chunks_received;
    "whimbrel_link_received_chunk_bytes", "Bytes of chunks received whole", h.chunk_bytes_received;
    "whimbrel_link_refusals_sent", "Chunks refused here for want of room", h.refusals_sent;
    "whimbrel_link_refusals_received", "Chunks that the neighbour refused for want of room", h.refusals_received;
    "whimbrel_link_timeouts", "Retransmission timeouts that expired", h.timeouts;
    "whimbrel_link_sessions", "Sessions established", h.sessions;
    "whimbrel_link_outages", "Times that the neighbour became unresponsive", h.outages;
];

/// States of a link.
const LINK_LEVELS: Rows<LinkStatus, f64> = rows![l: LinkStatus => f64;
    "whimbrel_link_up", "1 while the neighbour is responsive", flag(l.up);
    "whimbrel_link_waiting_chunks", "Chunks queued for the hop", l.chunks_waiting as f64;
    "whimbrel_link_flight_chunks", "Chunks in flight to the neighbour", l.hop.chunks_in_flight as f64;
    "whimbrel_link_flight_bytes", "Bytes in flight to the neighbour", l.hop.inflight as f64;
    "whimbrel_link_window_packets", "Packets that the neighbour accepts", f64::from(l.hop.window);
    "whimbrel_link_loss_ratio", "Share of DATA bytes that do not arrive, smoothed", l.hop.loss;
    "whimbrel_link_rate_bits_per_second", "Estimated rate of the path; 0 before the first estimate", l.hop.bandwidth as f64;
    "whimbrel_link_hybrid", "1 if the session's keys come from a hybrid exchange (ML-KEM beside X25519)", f64::from(u8::from(l.hop.hybrid));
    "whimbrel_link_largest_frame_bytes", "Largest frame that is sent; 0 before there is a session", l.hop.largest_frame as f64;
];

/// The members of the first of [`LINK_LEVELS`] for all inbound peers together.
fn levels_of(callers: &CallersTotal) -> [f64; 4] {
    [
        callers.up as f64,
        callers.chunks_waiting as f64,
        callers.chunks_in_flight as f64,
        callers.inflight as f64,
    ]
}

/// Inbound peers are counted together: their names are free, and there may be thousands.
pub(super) fn encode_links(
    families: &mut Families<'_, '_>,
    links: &[LinkStatus],
    callers: &CallersTotal,
) -> Result<(), Error> {
    let links: Vec<&LinkStatus> = links.iter().filter(|link| !link.caller).collect();
    let of_callers: Labels<'_> = [
        ("port", ""),
        ("link", "callers"),
        ("peer", ""),
        ("neighbour", ""),
    ]
    .into();
    let ends: Vec<Ends> = links
        .iter()
        .map(|link| Ends {
            port: link.port.to_string(),
            neighbour: link
                .neighbour
                .map_or(String::new(), |name| name.to_string()),
        })
        .collect();
    let each = || {
        links.iter().zip(&ends).map(|(link, ends)| {
            let labels: Labels<'_> = vec![
                ("port", ends.port.as_str()),
                ("link", link.label.as_str()),
                ("peer", link.peer.as_str()),
                ("neighbour", ends.neighbour.as_str()),
            ];
            (labels, *link)
        })
    };
    for (name, help, count) in LINK_COUNTS.iter().copied() {
        let members = each().map(|(labels, link)| (labels, count(&link.hop)));
        let together = (of_callers.clone(), count(&callers.hop));
        families.counters(name, help, members.chain([together]))?;
    }
    let each_hop = each().map(|(labels, link)| (labels, &link.hop));
    let all = each_hop.chain([(of_callers.clone(), &callers.hop)]);
    let drops = all.flat_map(|(labels, hop)| {
        by_reason(hop).into_iter().map(move |(reason, count)| {
            let mut labels = labels.clone();
            labels.push(("reason", reason));
            (labels, count)
        })
    });
    families.counters("whimbrel_link_drops", "Frames that the hop dropped", drops)?;
    let seconds = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64();
    let mut together = levels_of(callers).into_iter();
    for (name, help, level) in LINK_LEVELS.iter().copied() {
        let members = each().map(|(labels, link)| (labels, level(link)));
        let together = together.next().map(|level| (of_callers.clone(), level));
        families.gauges(name, help, members.chain(together))?;
    }
    families.gauges(
        "whimbrel_link_rtt_seconds",
        "Smoothed round trip of the hop; 0 if unknown",
        each().map(|(labels, link)| (labels, seconds(link.hop.rtt))),
    )
}

fn by_reason(hop: &HopStats) -> [(&'static str, u64); 14] {
    let drops = &hop.drops;
    [
        ("malformed", drops.malformed),
        ("corrupt", drops.corrupt),
        ("wrong-session", drops.wrong_session),
        ("hello-limited", drops.hello_limited),
        ("wrong-mode", drops.wrong_mode),
        ("bad-handshake", drops.bad_handshake),
        ("forged", drops.forged),
        ("replayed", drops.replayed),
        ("finished", drops.finished),
        ("stale", drops.stale),
        ("no-room", drops.no_room),
        ("inconsistent", drops.inconsistent),
        ("false-ack", drops.false_ack),
        ("late-ack", drops.late_ack),
    ]
}
