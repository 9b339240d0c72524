//! One hop of a node, and the chunks that wait for it.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{Guid, LinkState, PortId, PortInfo, Source, Time};
use whimbrel_link::{Hop, HopEvent, Pool};

use super::{Carried, LinkEvent};
use crate::handed::Handovers;
use crate::outbox::{FlowTurn, Outbox, SPARE_BELOW, flow_of};
use crate::taken::{RecentlyTaken, repeat_guard};
use crate::wire::Flow;

/// While at most this number of bytes waits for a neighbour, the first chunk of each content is queued for a
/// flow that is held back.
const MAX_READY: u64 = 4 << 20;
/// What takes this number of milliseconds to leave is long for a content of which it has nothing.
const LONG_MS: u64 = 500;
/// Longest round trip that counts for what may wait.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(5);

/// Interval at which the host name of an unresponsive neighbour is looked up.
pub(super) const LOOK_UP_AGAIN: Duration = Duration::from_secs(10);
/// What is told of a flow without credit is repeated at this interval, ...
pub(crate) const RENEWAL: Duration = Duration::from_secs(1);
/// ... or at a longer one on a link of which that would take more than this part (one hundredth).
const RENEWAL_SHARE: u64 = 100;
const MAX_RENEWAL: Duration = Duration::from_secs(9);
/// About the bytes of a Credit on a link.
const CREDIT_BYTES: u64 = 300;

/// One hop of a node, and what waits for it.
pub(crate) struct Link {
    pub(super) hop: Hop,
    pub(super) info: PortInfo,
    // What its chunks hold of the buffer, and messages of this node for it.
    pub(super) share: Pool,
    pub(super) own: Pool,
    pub(super) neighbour: Option<Guid>,
    pub(super) incarnation: u64,
    pub(super) handovers: Handovers,
    pub(super) taken: RecentlyTaken,
    pub(super) blocked: bool,
    // When the last frame came, and the first one after the last long pause.
    pub(super) last_frame: Time,
    // The peer's machine has said since then that no program receives there.
    pub(super) refused: bool,
    // Nothing is sent on it, and nothing is taken.
    pub(super) shut: bool,
    // What carries its frames works, as far as the driver can tell.
    pub(super) carried: bool,
    pub(super) talking_since: Time,
    // Since when the neighbour is at another port.
    pub(super) moved_at: Option<Time>,
    pub(super) outbox: Outbox,
    pub(super) last_progress: Time,
    // When the neighbour is told again what it is to hold back.
    pub(super) renew_at: Time,
    // When to look up the address of an unresponsive neighbour again.
    pub(super) look_up_at: Time,
}

/// A chunk that no longer waits for a neighbour.
pub(super) struct Gone {
    pub(super) port: PortId,
    pub(super) flow: Flow,
    /// Its place, if the flow is divided.
    pub(super) order: Option<u64>,
}

impl Link {
    /// Returns a link without chunks. What arrives on it counts in `share`, what this node originates for
    /// it in `own`.
    pub(super) fn new(now: Time, hop: Hop, info: PortInfo, share: Pool, own: Pool) -> Link {
        Link {
            hop,
            info,
            share,
            own,
            neighbour: None,
            incarnation: 0,
            handovers: Handovers::default(),
            taken: RecentlyTaken::default(),
            blocked: false,
            last_frame: now,
            refused: false,
            shut: false,
            carried: true,
            talking_since: now,
            moved_at: None,
            outbox: Outbox::new(),
            last_progress: now,
            renew_at: now,
            look_up_at: now + LOOK_UP_AGAIN,
        }
    }

    /// Returns true while the neighbour is known and responsive.
    pub(crate) fn is_up(&self) -> bool {
        self.moved_at.is_none() && self.hop.is_up()
    }

    /// Returns true while no chunk waits for the neighbour or is on its way to it.
    pub(crate) fn is_idle(&self) -> bool {
        self.outbox.queued() + self.outbox.carried() == 0
    }

    /// Returns true if one more chunk would be passed to the hop at once: until then the node should keep
    /// its chunks elsewhere (storage, files).
    pub(crate) fn has_room(&self) -> bool {
        !self.outbox.has_sendable() && self.is_up() && self.hop.ready_for() > 0
    }

    /// Returns true if it has no room, and what the hop has not sent takes long.
    pub(crate) fn is_full_for_long(&self) -> bool {
        let rate = self.hop.delivery_rate().unwrap_or(u64::MAX);
        let unsent = self.hop.unsent_bytes() as u64;
        self.is_up() && !self.has_room() && unsent.saturating_mul(1_000) / rate >= LONG_MS
    }

    /// Returns whether there is room for a chunk of this flow, which the neighbour may hold back.
    pub(crate) fn has_room_for(&self, flow: &Flow) -> bool {
        self.has_room()
            && match self.outbox.turn_of(flow) {
                FlowTurn::Free => true,
                FlowTurn::Held => false,
                FlowTurn::Spare => self.hop.unsent_bytes() < SPARE_BELOW,
            }
    }

    /// Returns true if the neighbour wants nothing of a flow now.
    pub(crate) fn is_held(&self, flow: &Flow) -> bool {
        self.outbox.turn_of(flow) == FlowTurn::Held
    }

    /// Returns true if the next chunk of a content should wait here for credit, so that the content has its
    /// turn then: none of it is here, and there is room.
    pub(crate) fn should_get_ready(&self, flow: &Flow, content: &Guid) -> bool {
        self.is_up() && self.outbox.bytes() < MAX_READY && !self.outbox.has_content(flow, content)
    }

    /// Returns true if chunks of a flow wait here, or went to the neighbour lately.
    pub(super) fn passes(&self, flow: &Flow) -> bool {
        self.outbox.has_flow(flow) || self.handovers.has_flow(flow)
    }

    /// Returns the round trip without a queue, as far as it counts for what may wait.
    pub(super) fn round_trip(&self) -> Duration {
        self.min_rtt().unwrap_or_default().min(MAX_ROUND_TRIP)
    }

    /// Returns the interval at which the neighbour is told again what may come of flows without credit.
    pub(super) fn renewal(&self) -> Duration {
        let rate = self.hop.delivery_rate();
        let fitting = rate.map_or(0, |rate| CREDIT_BYTES * RENEWAL_SHARE * 1_000 / rate);
        Duration::from_millis(fitting).clamp(RENEWAL, MAX_RENEWAL)
    }

    /// How long what the neighbour is told counts.
    pub(crate) fn lease(&self) -> Duration {
        self.renewal() * 3 + self.round_trip()
    }

    /// Returns the measured state of the link. A chunk counts as waiting until the neighbour has taken it
    /// over.
    pub(crate) fn state(&self) -> LinkState {
        let stats = self.hop.stats();
        LinkState {
            // 0 stands for no estimate yet.
            delivery_rate: (stats.bandwidth >= 8).then_some(stats.bandwidth / 8),
            queue_bytes: self.outbox.bytes() as usize,
            queue_packets: self.outbox.queued() + self.outbox.carried(),
            rtt: stats.rtt,
            ..LinkState::default()
        }
    }

    /// Returns a measurement of the link for its cost.
    pub(crate) fn sample(&self) -> whimbrel_routing::LinkSample {
        let stats = self.hop.stats();
        whimbrel_routing::LinkSample {
            state: LinkState {
                rtt: self.min_rtt(),
                ..self.state()
            },
            sent: stats.data_sent,
            resent: stats.data_resent,
        }
    }

    /// Returns where the peer of this port is.
    pub(super) fn source(&self, port: PortId) -> Source {
        Source::of(port, &self.info)
    }

    /// Returns false while the interface by which its frames leave is known not to work.
    pub(crate) fn has_carrier(&self) -> bool {
        self.carried
    }

    /// Returns the frames that have crossed the link both ways, and their bytes.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        self.hop.traffic()
    }

    /// Returns the round trip without a queue, as far as it is known.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.hop.min_rtt()
    }

    /// Returns true while the ends of a new link find out whether it is slow.
    pub(crate) fn is_measuring(&self) -> bool {
        self.hop.is_measuring()
    }

    /// For how long a chunk of this size that was delivered here is not sent again for a repeated
    /// request.
    pub(crate) fn repeat_guard(&self, bytes: usize) -> Duration {
        repeat_guard(bytes, self.hop.delivery_rate())
    }

    pub(super) fn feed(&mut self, now: Time, next_tag: &mut u64) {
        let fed = self.moved_at.is_none() && self.outbox.feed(now, &mut self.hop, next_tag);
        if fed || !self.outbox.has_sendable() {
            self.last_progress = now;
        }
    }

    /// Takes back the chunks of a flow of which nothing has been sent.
    pub(super) fn take_back_unbegun(&mut self, now: Time, flow: &Flow) {
        for lane in self.outbox.lanes_of(flow).into_iter().flatten() {
            let unbegun = self.hop.withdraw_unbegun(now, lane);
            self.outbox.take_back(flow, unbegun);
        }
    }

    pub(super) fn log(&self, what: &'static str) {
        tracing::info!(
            link = %self.info.label, peer = %self.info.peer,
            neighbour = self.neighbour.map(tracing::field::display), "{what}"
        );
    }

    /// Forwards an event of a hop. Returns the chunk that no longer waits.
    pub(super) fn note(
        &mut self,
        now: Time,
        port: PortId,
        event: HopEvent,
        events: &mut VecDeque<LinkEvent>,
    ) -> Option<Gone> {
        match event {
            HopEvent::Up {
                neighbour,
                incarnation,
                ..
            } => {
                let same_run = self.neighbour == Some(neighbour) && self.incarnation == incarnation;
                let handed = if same_run {
                    Vec::new()
                } else {
                    self.handovers.take()
                };
                (self.neighbour, self.incarnation) = (Some(neighbour), incarnation);
                self.log("neighbour is up");
                let new_run = !same_run;
                if new_run {
                    self.outbox.forget_holds();
                    self.taken.forget();
                }
                events.push_back(LinkEvent::Up {
                    port,
                    neighbour,
                    new_run,
                });
                if !handed.is_empty() {
                    events.push_back(LinkEvent::Restarted(port, handed));
                }
            }
            HopEvent::Received { chunk, room } => {
                events.push_back(LinkEvent::Received {
                    port,
                    bytes: chunk,
                    room,
                });
            }
            HopEvent::Delivered { tag } => {
                self.last_progress = now;
                let outgoing = self.outbox.take_carried(tag);
                let order = outgoing.as_ref().and_then(|outgoing| outgoing.order);
                let chunk = outgoing.map(|outgoing| outgoing.chunk);
                let carried = Carried { port, tag };
                events.push_back(LinkEvent::Delivered(carried, chunk.clone()));
                let chunk = chunk?;
                if let Some(data) = chunk.data() {
                    self.handovers.note(&chunk.header, &data);
                    let lasts = self.repeat_guard(chunk.size());
                    self.taken.note(now, lasts, &chunk.header, &data);
                }
                return flow_of(&chunk).map(|flow| Gone { port, flow, order });
            }
            HopEvent::TooLarge { tag, .. } => {
                let outgoing = self.outbox.take_carried(tag)?;
                let flow = flow_of(&outgoing.chunk);
                let order = outgoing.order;
                events.push_back(LinkEvent::TooLarge(port, outgoing));
                return flow.map(|flow| Gone { port, flow, order });
            }
            HopEvent::PathMtu { size } => {
                tracing::info!(
                    link = %self.info.label, peer = %self.info.peer, size,
                    "the path MTU has changed"
                );
            }
            // Requests about the port, which `Links` passes on.
            HopEvent::SetEcn { .. } | HopEvent::Impostor => {}
            HopEvent::Unwilling(why) => {
                tracing::warn!(
                    link = %self.info.label, peer = %self.info.peer, "{}", why.text()
                );
            }
            HopEvent::Unresponsive => {
                self.log("the neighbour is silent");
                events.push_back(LinkEvent::Unresponsive(port));
            }
            HopEvent::Responsive => {
                self.log("the neighbour responds again");
                events.push_back(LinkEvent::Responsive(port));
            }
        }
        None
    }
}
