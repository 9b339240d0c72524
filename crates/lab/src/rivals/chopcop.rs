//! CHoPCoP-like: the router's part of a receiver-driven transport. Data is marked early, Interests
//! are shaped to fair shares.
//!
//! The chunk-switched hop pull control protocol marks Data at random as its queue grows, and "regulates the
//! forwarding rate based on the number of PI packets and the packets delayed in the link layer"
//! ([PTP §7-A]) per flow. Its thresholds are not public; these are random early detection's form
//! and bounds that let a queue build up. Next hops are RFA's ([`super::rfa`]), or the cheapest.
//!
//! * **Marking**: the average of the packets that wait for a downstream's link, taken at each Data
//!   for it. Below `min` no Data is marked, above `max` each; between them up to `probability`.
//! * **Shaping**: if the Data that wait for a downstream's link and those still to come for its
//!   pending Interests exceed `max` packets, each flow's Interests are sent at the link's rate
//!   divided by the number of flows; a flow is the names that differ in their last component only.
//!   An Interest that would wait longer than `patience` is answered with a Nack for congestion.
//!   Without a known rate of the link nothing is shaped.
//!
//! | parameter | values |
//! |---|---|
//! | `by` | `rfa` (default) or `best-route` |
//! | `keep` | as RFA's |
//! | `min`, `max` | packets, 20 and 60 |
//! | `probability` | of a mark just below `max`, 0.1 |
//! | `weight` | of a sample in the average, 0.02 |
//! | `patience` | milliseconds, 500 |

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::Time;
use whimbrel_ndn_packet::{LpHeader, NackReason};

use whimbrel_forwarder::FaceId;
use whimbrel_forwarder::strategy::pending::{EndedAll, Pending};
use whimbrel_forwarder::strategy::{
    Context, IncomingData, Memory, Parameters, Strategy, StrategyError, Suppression, Verdict,
    retransmission_face,
};

use super::rfa::{Balance, upstream_hops};
use super::route_label::labelled;

/// A flow is active for so long after its last Interest.
const ACTIVE: Duration = Duration::from_secs(1);
/// Maximum of flows of a downstream; Interests of further ones are not shaped.
const MAX_FLOWS: usize = 256;
/// Weight of a Data's size in the average, which begins with a large packet.
const SIZE_WEIGHT: f64 = 0.1;
const FIRST_SIZE: f64 = 1100.0;

/// A flow of a downstream.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// When its next Interest may be sent.
    next: Time,
    last: Time,
}

/// A downstream, whose link carries the Data.
#[derive(Debug)]
struct Downstream {
    /// Interests sent for it.
    pending: Pending,
    /// Average of the packets that wait for its link.
    queue: f64,
    /// Average of the bytes of a Data.
    size: f64,
    /// By the hash of their name.
    flows: BTreeMap<u64, Flow>,
}

impl Default for Downstream {
    fn default() -> Downstream {
        Downstream {
            pending: Pending::default(),
            queue: 0.0,
            size: FIRST_SIZE,
            flows: BTreeMap::new(),
        }
    }
}

/// Early marks and fair shares.
#[derive(Debug)]
pub(super) struct Chopcop {
    suppression: Suppression,
    balance: Balance,
    by_cost: bool,
    min: f64,
    max: f64,
    probability: f64,
    weight: f64,
    patience: Duration,
    downstreams: BTreeMap<FaceId, Downstream>,
}

impl Chopcop {
    pub(super) fn new(
        mut parameters: Parameters,
        memory: Memory,
    ) -> Result<Chopcop, StrategyError> {
        let suppression = parameters.suppression()?;
        let balance = Balance::new(&mut parameters, memory)?;
        let by_cost = match parameters.text("by").as_deref() {
            None | Some("rfa") => false,
            Some("best-route") => true,
            Some(other) => {
                return Err(Parameters::wrong("by", other, "must be rfa or best-route"));
            }
        };
        let (min, max): (u32, u32) = (parameters.number("min", 20)?, parameters.number("max", 60)?);
        if min >= max {
            let why = "must be below max";
            return Err(Parameters::wrong("min", &min.to_string(), why));
        }
        let probability = parameters.share("probability", 0.1)?;
        let weight = parameters.share("weight", 0.02)?;
        let patience = parameters.millis("patience", 500, 1)?;
        parameters.finish()?;
        Ok(Chopcop {
            suppression,
            balance,
            by_cost,
            min: f64::from(min),
            max: f64::from(max),
            probability,
            weight,
            patience,
            downstreams: BTreeMap::new(),
        })
    }

    fn choose(&self, context: &mut Context<'_>) -> Option<FaceId> {
        match self.by_cost {
            true => upstream_hops(context, |_| 1.0).first().map(|hop| hop.0),
            false => self.balance.choose(context),
        }
    }

    fn send(&mut self, context: &mut Context<'_>, face: FaceId, downstream: Option<FaceId>) {
        // What was sent to that face before is counted again.
        let ended = self.balance.end(context, |known| known == face);
        self.ended(context, &ended);
        let sent = self.balance.send(context, face);
        if let Some(downstream) = downstream.filter(|_| sent) {
            let downstream = self.downstreams.entry(downstream).or_default();
            downstream.pending.add(context.now());
        }
    }

    fn ended(&mut self, context: &Context<'_>, ended: &EndedAll) {
        let now = context.now();
        // A delayed Interest was sent for its first downstream.
        let first = context.in_records().first().map(|record| record.face);
        for ended in ended {
            let asked_for = Some(ended.asked_for)
                .filter(|face| *face != FaceId::INVALID)
                .or(first)
                .and_then(|face| self.downstreams.get_mut(&face));
            if let Some(downstream) = asked_for {
                downstream.pending.remove(now, ended.sent);
            }
        }
    }

    fn end(&mut self, context: &mut Context<'_>, of: impl Fn(FaceId) -> bool) {
        let ended = self.balance.end(context, of);
        self.ended(context, &ended);
    }

    /// How long an Interest of a downstream waits for its flow's share of the link.
    fn wait(&mut self, context: &Context<'_>, face: FaceId) -> Duration {
        let now = context.now();
        let state = context.link_state(face).copied().unwrap_or_default();
        let downstream = self.downstreams.entry(face).or_default();
        let Some(rate) = state.delivery_rate.filter(|rate| *rate > 0) else {
            return Duration::ZERO;
        };
        let flow = context.object_hash();
        let flows = &mut downstream.flows;
        flows.retain(|_, flow| now.since(flow.last) <= ACTIVE || flow.next > now);
        if flows.len() >= MAX_FLOWS && !flows.contains_key(&flow) {
            return Duration::ZERO;
        }
        let active = flows.len() + usize::from(!flows.contains_key(&flow));
        let flow = flows.entry(flow).or_insert(Flow {
            next: now,
            last: now,
        });
        flow.last = now;
        let to_come = f64::from(downstream.pending.count(now)) * downstream.size;
        let load = state.queue_bytes as f64 + to_come;
        if load <= self.max * downstream.size && flow.next <= now {
            return Duration::ZERO;
        }
        let gap = downstream.size * active as f64 / rate as f64;
        let at = flow.next.max(now);
        let wait = at.since(now);
        if wait <= self.patience {
            flow.next = at + Duration::from_secs_f64(gap);
        }
        wait
    }

    /// Takes in the queue towards a downstream; returns whether the Data for it is marked.
    fn marks(&mut self, context: &mut Context<'_>, face: FaceId, size: usize) -> bool {
        let waiting = context
            .link_state(face)
            .map_or(0, |state| state.queue_packets);
        let downstream = self.downstreams.entry(face).or_default();
        downstream.queue += self.weight * (waiting as f64 - downstream.queue);
        downstream.size += SIZE_WEIGHT * (size as f64 - downstream.size);
        let queue = downstream.queue;
        if queue >= self.max {
            return true;
        }
        let above = (queue - self.min) / (self.max - self.min);
        above > 0.0 && context.rng().chance(above * self.probability)
    }
}

impl Strategy for Chopcop {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        let verdict = self.suppression.by_entry(context);
        if verdict == Verdict::Suppress || context.has_timer() {
            return context.suppress();
        }
        let Some(downstream) = context.downstream() else {
            return;
        };
        if context.eligible().is_empty() {
            return context.no_route();
        }
        let wait = self.wait(context, downstream);
        if wait > self.patience {
            context.send_nack(downstream, NackReason::Congestion);
            return context.reject();
        }
        if !wait.is_zero() {
            return context.set_timer(wait);
        }
        let chosen = match verdict {
            Verdict::Forward => retransmission_face(context),
            _ => self.choose(context),
        };
        if let Some(face) = chosen {
            self.send(context, face, Some(downstream));
        }
    }

    fn after_receive_data(
        &mut self,
        context: &mut Context<'_>,
        data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        self.end(context, |_| true);
        let mut fields = labelled(data);
        let downstreams: Vec<FaceId> = context
            .in_records()
            .iter()
            .map(|record| record.face)
            .collect();
        for face in downstreams {
            if self.marks(context, face, data.data.wire.len()) {
                fields.congestion_mark = Some(1);
            }
        }
        Some(fields)
    }

    fn after_receive_nack(&mut self, context: &mut Context<'_>, from: FaceId, _reason: NackReason) {
        self.end(context, |face| face == from);
        context.pass_nacks_on();
    }

    fn on_timer(&mut self, context: &mut Context<'_>) {
        if context.has_pending_out_records() {
            return;
        }
        let downstream = context.in_records().first().map(|record| record.face);
        let chosen = match context.out_records().is_empty() {
            true => self.choose(context),
            false => retransmission_face(context),
        };
        match chosen {
            Some(face) => self.send(context, face, downstream),
            None => {
                let downstreams: Vec<FaceId> = context
                    .in_records()
                    .iter()
                    .map(|record| record.face)
                    .collect();
                for face in downstreams {
                    context.send_nack(face, NackReason::NoRoute);
                }
                context.reject();
            }
        }
    }

    fn before_expire(&mut self, context: &mut Context<'_>) {
        self.end(context, |_| true);
    }

    fn forget_face(&mut self, face: FaceId) {
        self.balance.forget_face(face);
        self.downstreams.remove(&face);
    }

    fn measurements(&self) -> usize {
        self.balance.len()
    }
}
