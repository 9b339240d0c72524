//! RFA: next hops by the number of Interests that are pending at them.
//!
//! The request forwarding algorithm of "Optimal multipath congestion control and request forwarding
//! in information-centric networks" ([OMCC-RF §V]): for each prefix and next hop a moving average of
//! the pending Interests; its reciprocal is the weight of the draw. Updated at each Interest sent,
//! each Data and each expiry, not by time.
//!
//! | parameter | values |
//! |---|---|
//! | `keep` | share of the average that an update keeps, 0.9 |

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_ndn_packet::{LpHeader, NackReason};

use whimbrel_forwarder::FaceId;
use whimbrel_forwarder::strategy::measurements::Measurements;
use whimbrel_forwarder::strategy::pending::{EndedAll, Pending, send_counted, take_counted};
use whimbrel_forwarder::strategy::{
    Context, IncomingData, Memory, Parameters, Strategy, StrategyError, Suppression, Verdict,
    retransmission_face,
};

use super::route_label::labelled;

/// How long an unused prefix or next hop is remembered.
const LIFETIME: Duration = Duration::from_secs(300);

/// The pending Interests at a face for a prefix.
#[derive(Clone, Debug, Default)]
struct Backlog {
    pending: Pending,
    average: f64,
}

impl Backlog {
    fn update(&mut self, now: Time, keep: f64) {
        self.average = keep * self.average + (1.0 - keep) * f64::from(self.pending.count(now));
    }

    /// Returns the reciprocal of the average. Below one pending Interest the average says nothing
    /// about congestion, and its reciprocal has no bound; the paper has no guard there.
    fn weight(&self) -> f64 {
        1.0 / self.average.max(1.0)
    }
}

/// The draw of next hops, and the counts on which it relies.
#[derive(Debug)]
pub(super) struct Balance {
    backlogs: Measurements<Backlog>,
    keep: f64,
}

impl Balance {
    pub(super) fn new(
        parameters: &mut Parameters,
        memory: Memory,
    ) -> Result<Balance, StrategyError> {
        let keep: f64 = parameters.number("keep", 0.9)?;
        if !(0.0..1.0).contains(&keep) {
            let why = "must be from 0 to below 1";
            return Err(Parameters::wrong("keep", &keep.to_string(), why));
        }
        Ok(Balance {
            backlogs: memory.measurements(LIFETIME),
            keep,
        })
    }

    /// Draws an eligible next hop, none of the entry's downstreams.
    pub(super) fn choose(&self, context: &mut Context<'_>) -> Option<FaceId> {
        let known = self.backlogs.get(context.route().0);
        let weight = |face: FaceId| {
            let backlog = known.and_then(|known| known.face(face));
            backlog.map_or(1.0, Backlog::weight)
        };
        let hops = upstream_hops(context, weight);
        draw(&hops, context.rng().unit())
    }

    /// Sends the Interest, counting it. Returns false if it was not sent.
    pub(super) fn send(&mut self, context: &mut Context<'_>, face: FaceId) -> bool {
        let (sent, before) = send_counted(context, face);
        self.ended(context, &before);
        if sent {
            let now = context.now();
            let prefix = context.route().0.to_name();
            if let Some(backlog) = self.backlogs.face(now, prefix.as_ref(), face) {
                backlog.pending.add(now);
                backlog.update(now, self.keep);
            }
        }
        sent
    }

    /// Interests at the faces for which `of` is true are not pending any more.
    pub(super) fn end(
        &mut self,
        context: &mut Context<'_>,
        of: impl Fn(FaceId) -> bool,
    ) -> EndedAll {
        let ended = take_counted(context, of);
        self.ended(context, &ended);
        ended
    }

    fn ended(&mut self, context: &Context<'_>, ended: &EndedAll) {
        if ended.is_empty() {
            return;
        }
        let now = context.now();
        let prefix = context.route().0.to_name();
        for ended in ended {
            if let Some(backlog) = self.backlogs.face(now, prefix.as_ref(), ended.face) {
                backlog.pending.remove(now, ended.sent);
                backlog.update(now, self.keep);
            }
        }
    }

    pub(super) fn forget_face(&mut self, face: FaceId) {
        self.backlogs.forget_face(face);
    }

    pub(super) fn len(&self) -> usize {
        self.backlogs.len()
    }
}

/// Eligible next hops with a weight each, without the entry's downstreams: a trigger without an
/// Interest has no incoming face to exclude.
pub(super) fn upstream_hops(
    context: &Context<'_>,
    weight: impl Fn(FaceId) -> f64,
) -> Vec<(FaceId, f64)> {
    let hops = context.eligible();
    let asked = context.in_records();
    let is_downstream = |face: FaceId| {
        context.downstream().is_none() && asked.iter().any(|record| record.face == face)
    };
    let hops = hops.iter().filter(|hop| !is_downstream(hop.face));
    hops.map(|hop| (hop.face, weight(hop.face))).collect()
}

/// Returns the face at `point`, 0 to 1, of the sum of weights.
pub(super) fn draw(hops: &[(FaceId, f64)], point: f64) -> Option<FaceId> {
    let mut left = point * hops.iter().map(|(_, weight)| weight).sum::<f64>();
    let found = hops.iter().find(|(_, weight)| {
        left -= weight;
        left < 0.0
    });
    // Rounding may leave a rest.
    found.or(hops.last()).map(|(face, _)| *face)
}

/// Request forwarding by pending Interests.
#[derive(Debug)]
pub(super) struct Rfa {
    suppression: Suppression,
    balance: Balance,
}

impl Rfa {
    pub(super) fn new(mut parameters: Parameters, memory: Memory) -> Result<Rfa, StrategyError> {
        let suppression = parameters.suppression()?;
        let balance = Balance::new(&mut parameters, memory)?;
        parameters.finish()?;
        Ok(Rfa {
            suppression,
            balance,
        })
    }
}

impl Strategy for Rfa {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        let chosen = match self.suppression.by_entry(context) {
            Verdict::Suppress => return context.suppress(),
            Verdict::New => self.balance.choose(context),
            Verdict::Forward => retransmission_face(context),
        };
        match chosen {
            Some(face) => {
                self.balance.send(context, face);
            }
            None => context.no_route(),
        }
    }

    fn after_receive_data(
        &mut self,
        context: &mut Context<'_>,
        data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        // The entry ends, so those at other faces are not waited for either.
        self.balance.end(context, |_| true);
        Some(labelled(data))
    }

    fn after_receive_nack(&mut self, context: &mut Context<'_>, from: FaceId, _reason: NackReason) {
        self.balance.end(context, |face| face == from);
        context.pass_nacks_on();
    }

    fn before_expire(&mut self, context: &mut Context<'_>) {
        self.balance.end(context, |_| true);
    }

    fn forget_face(&mut self, face: FaceId) {
        self.balance.forget_face(face);
    }

    fn measurements(&self) -> usize {
        self.balance.len()
    }
}
