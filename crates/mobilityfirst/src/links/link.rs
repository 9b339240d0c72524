//! One hop of a node, and the chunks that wait for it.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{PortId, Time};
use whimbrel_link::HopEvent;

use super::{Carried, Link, LinkEvent};
use crate::chunk::Flow;
use crate::outbox::flow_of;
use crate::room::Buffer;
use crate::taken::repeat_guard;

/// A chunk that waits for a neighbour no more.
pub(super) struct Gone {
    pub(super) flow: Flow,
    /// Its place, if the flow is divided.
    pub(super) order: Option<u64>,
}

impl Link {
    pub(super) fn is_up(&self) -> bool {
        self.moved_at.is_none() && self.hop.is_up()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.outbox.has_sendable() && self.is_up() && self.hop.ready_for() > 0
    }

    /// For how long a chunk of this size that was delivered here is not sent again for a repeated
    /// request.
    pub(super) fn repeat_guard(&self, bytes: usize) -> Duration {
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
        if let Some(lane) = self.outbox.lane_of(flow) {
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

    /// Forwards an event of a hop. Answers the chunk that waits no more.
    pub(super) fn note(
        &mut self,
        now: Time,
        port: PortId,
        event: HopEvent,
        buffer: &Buffer,
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
            HopEvent::Received { chunk, packets } => {
                let room = buffer.room_of(&self.held, packets, chunk.len() as u64);
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
                return flow_of(&chunk).map(|flow| Gone { flow, order });
            }
            HopEvent::TooLarge { tag, .. } => {
                let outgoing = self.outbox.take_carried(tag)?;
                let flow = flow_of(&outgoing.chunk);
                let order = outgoing.order;
                events.push_back(LinkEvent::TooLarge(port, outgoing));
                return flow.map(|flow| Gone { flow, order });
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
