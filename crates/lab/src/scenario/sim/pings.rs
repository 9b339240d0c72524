//! Loads of echo requests.

use std::time::Duration;

use whimbrel_core::Time;
use whimbrel_mobilityfirst::local::LocalRequest;

use super::World;
use super::build::keys;
use crate::scenario::load::{Kind, PING_PATIENCE};
use crate::scenario::run::{Pinged, Run};

const PING_APP: u32 = 3;

/// One receiver of one load: it sends the requests.
pub(super) struct Pinging {
    load: usize,
    receiver: usize,
    sent: Vec<Time>,
    round_trips: Vec<f64>,
    next: Time,
    is_over: bool,
}

impl Pinging {
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }
}

impl World<'_> {
    /// Prepares the requests of all loads.
    pub(super) fn begin_pings(&mut self, origin: Time) {
        for (load, known) in self.plan.loads.iter().enumerate() {
            let pings = matches!(known.kind, Kind::Pings(_));
            for receiver in known.to.iter().filter(|_| pings) {
                self.pings.push(Pinging {
                    load,
                    receiver: *receiver,
                    sent: Vec::new(),
                    round_trips: Vec::new(),
                    next: origin + known.start,
                    is_over: false,
                });
            }
        }
    }

    /// Sends the requests that are due.
    pub(super) fn ping_due(&mut self) {
        let now = self.sim.now();
        for index in 0..self.pings.len() {
            let load = &self.plan.loads[self.pings[index].load];
            let Kind::Pings(pings) = &load.kind else {
                continue;
            };
            let destination = keys(load.from).guid();
            while !self.pings[index].is_over && self.pings[index].next <= now {
                let pinging = &mut self.pings[index];
                let sequence = pinging.sent.len() as u32;
                if sequence >= u32::from(pings.count) {
                    pinging.is_over = true;
                    break;
                }
                pinging.sent.push(now);
                let is_last = sequence + 1 == u32::from(pings.count);
                let pause = if is_last {
                    PING_PATIENCE
                } else {
                    pings.interval.max(Duration::from_micros(1))
                };
                pinging.next = now + pause;
                let receiver = pinging.receiver;
                let request = LocalRequest::Ping {
                    request: index as u32,
                    destination,
                    sequence,
                    padding: pings.size,
                };
                self.request(receiver, PING_APP, request);
            }
        }
    }

    /// Returns the time of the next request, or of the end of the last one's patience.
    pub(super) fn next_ping(&self) -> Option<Time> {
        let going = self.pings.iter().filter(|it| !it.is_over);
        going.map(|it| it.next).min()
    }

    /// Notes an answer. Returns true if all have come.
    pub(super) fn handle_pong(&mut self, now: Time, index: u32, sequence: u32) -> bool {
        let Some(pinging) = self.pings.get_mut(index as usize) else {
            return false;
        };
        let Some(sent) = pinging.sent.get(sequence as usize) else {
            return false;
        };
        pinging.round_trips.push(now.since(*sent).as_secs_f64());
        let Kind::Pings(pings) = &self.plan.loads[pinging.load].kind else {
            return false;
        };
        pinging.is_over = pinging.round_trips.len() >= usize::from(pings.count);
        pinging.is_over
    }

    pub(super) fn add_pings(&self, run: &mut Run) {
        for pinging in &self.pings {
            let load = &self.plan.loads[pinging.load];
            let pinged = Pinged {
                round_trips: pinging.round_trips.clone(),
            };
            run.add_pings(&self.plan.network, load, pinging.receiver, &pinged);
        }
    }
}
