//! Adaptive: the fastest next hop by measurement; others are probed now and then.
//!
//! After NFD's ASF, version 5. One timer per PIT entry, rather than one per face, checks for
//! timeouts.

use core::time::Duration;

use smallvec::SmallVec;
use whimbrel_core::{RttEstimator, SeededRng, Time};
use whimbrel_ndn_packet::{LpHeader, NackReason, Name};

use super::best_route::retransmission_face;
use super::kind::Memory;
use super::parameters::Parameters;
use super::suppression::{Suppression, Verdict};
use super::{Context, IncomingData, Strategy, StrategyError};
use crate::face::FaceId;
use crate::tables::NextHop;
use crate::tables::measurements::Measurements;

/// How long an entry is kept after its Data for a slower upstream that is being probed.
const PROBE_GRACE: Duration = Duration::from_millis(50);
/// The first probe of a prefix is sent at a random time within this, so that probes do not
/// coincide.
const FIRST_PROBE_WITHIN: u64 = 5_000_000_000;

/// Timeout before the first sample, and the bounds of timeouts.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_TIMEOUT: Duration = Duration::from_millis(200);
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// How well a face answers.
#[derive(Clone, Debug)]
struct Reach {
    rtt: RttEstimator,
    /// Consecutive Interests without an answer in time.
    timeouts: u32,
    /// The face counts as failed, after too many timeouts.
    failed: bool,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach {
            rtt: RttEstimator::new(INITIAL_TIMEOUT, MIN_TIMEOUT, MAX_TIMEOUT),
            timeouts: 0,
            failed: false,
        }
    }
}

/// Adaptive forwarding by round-trip times.
#[derive(Debug)]
pub(super) struct Asf {
    suppression: Suppression,
    probing_interval: Duration,
    /// Consecutive timeouts after which a face counts as failed.
    max_timeouts: u32,
    measurements: Measurements<Reach>,
}

impl Asf {
    pub(super) fn new(mut parameters: Parameters, memory: Memory) -> Result<Asf, StrategyError> {
        let suppression = parameters.suppression()?;
        let probing_interval = parameters.millis("probing-interval", 60_000, 1000)?;
        let max_timeouts = parameters.number("max-timeouts", 3)?;
        if max_timeouts == 0 {
            return Err(Parameters::wrong("max-timeouts", "0", "must be at least 1"));
        }
        let lifetime = parameters.millis("measurement-lifetime", 300_000, 1000)?;
        if lifetime <= probing_interval {
            return Err(Parameters::wrong(
                "measurement-lifetime",
                &lifetime.as_millis().to_string(),
                "must be longer than probing-interval",
            ));
        }
        parameters.finish()?;
        let measurements = memory.measurements(lifetime);
        Ok(Asf {
            suppression,
            probing_interval,
            max_timeouts,
            measurements,
        })
    }

    /// Best first: measured ones by their round-trip time, then untried ones, then failed ones.
    fn ranked(&self, context: &Context<'_>) -> SmallVec<[NextHop; 8]> {
        let known = self.measurements.get(context.route().0);
        let mut hops = context.eligible();
        hops.sort_by_key(|hop| {
            let face = known.and_then(|known| known.face(hop.face));
            let (class, rtt) = standing(face);
            (class, rtt, hop.cost)
        });
        hops
    }

    fn forward(&mut self, context: &mut Context<'_>, face: FaceId, as_probe: bool) {
        let sent = if as_probe {
            context.send_probe(face)
        } else {
            context.send_interest(face)
        };
        if !sent {
            return;
        }
        let prefix = context.route().0.to_name();
        if let Some(known) = self.measurements.face(context.now(), prefix.as_ref(), face) {
            context.set_timer(known.rtt.timeout());
        }
    }

    fn probe_if_due(&mut self, context: &mut Context<'_>, used: FaceId) {
        let (now, prefix) = (context.now(), context.route().0.to_name());
        let Some(known) = self.measurements.get_or_insert(now, prefix.as_ref()) else {
            return;
        };
        let Some(due) = known.next_probe else {
            known.next_probe =
                Some(now + Duration::from_nanos(context.rng().below(FIRST_PROBE_WITHIN)));
            return;
        };
        if due > now {
            return;
        }
        known.next_probe = Some(now + self.probing_interval);
        let others: SmallVec<[NextHop; 8]> = self
            .ranked(context)
            .into_iter()
            .filter(|hop| hop.face != used)
            .collect();
        let known = self.measurements.get(prefix.as_ref());
        let never_tried = |hop: &&NextHop| {
            known
                .and_then(|known| known.face(hop.face))
                .is_none_or(|face| face.rtt.smoothed().is_none())
        };
        let untried = others.iter().find(never_tried).map(|hop| hop.face);
        if let Some(face) = untried.or_else(|| by_rank(&others, context.rng())) {
            self.forward(context, face, true);
        }
    }

    /// Records the round-trip time of the upstream that answered, and waits briefly for one that is
    /// being probed.
    fn learn(&mut self, context: &mut Context<'_>, from: FaceId) {
        let now = context.now();
        let Some(sent) = context
            .out_records()
            .iter()
            .find(|record| record.face == from)
            .map(|record| record.sent)
        else {
            return;
        };
        let prefix = context.route().0.to_name();
        if let Some(known) = self.measurements.face(now, prefix.as_ref(), from) {
            known.rtt.sample(now.since(sent));
            (known.timeouts, known.failed) = (0, false);
        }
        let others = |context: &Context<'_>| {
            context
                .out_records()
                .iter()
                .any(|record| record.face != from && record.is_pending(now))
        };
        if others(context) {
            context.set_expiry(PROBE_GRACE);
        }
    }

    fn timed_out(&mut self, now: Time, prefix: &Name, face: FaceId, at_once: bool) {
        let limit = self.max_timeouts;
        if let Some(known) = self.measurements.face(now, prefix.as_ref(), face) {
            known.timeouts = known.timeouts.saturating_add(1);
            known.failed |= at_once || known.timeouts >= limit;
        }
    }

    /// Times out overdue upstreams, and sets the timer for those that may still answer.
    fn look_for_timeouts(&mut self, context: &mut Context<'_>, all: bool) {
        let (now, prefix) = (context.now(), context.route().0.to_name());
        let waiting: SmallVec<[(FaceId, Time); 4]> = context
            .out_records()
            .iter()
            .filter(|record| record.nack.is_none() && record.given_up == 0)
            .map(|record| (record.face, record.sent))
            .collect();
        for (face, sent) in waiting {
            let known = self
                .measurements
                .get(prefix.as_ref())
                .and_then(|known| known.face(face));
            let timeout = known.map_or(Duration::ZERO, |known| known.rtt.timeout());
            if !all && sent + timeout > now {
                context.set_timer((sent + timeout).since(now));
                continue;
            }
            self.timed_out(now, &prefix, face, false);
            let entry = context.entry_mut();
            let record = entry.and_then(|entry| {
                entry
                    .out_records
                    .iter_mut()
                    .find(|record| record.face == face)
            });
            if let Some(record) = record {
                record.given_up = 1;
            }
        }
    }
}

fn standing(face: Option<&Reach>) -> (u8, Duration) {
    match face {
        Some(face) if face.failed => (2, Duration::ZERO),
        Some(face) => face
            .rtt
            .smoothed()
            .map_or((1, Duration::ZERO), |rtt| (0, rtt)),
        None => (1, Duration::ZERO),
    }
}

/// Selects one of `n` faces, that of rank `j` with a probability of (n + 1 - j) / (1 + 2 + .. + n),
/// as in NFD.
fn by_rank(ranked: &[NextHop], rng: &mut SeededRng) -> Option<FaceId> {
    let count = ranked.len() as u64;
    let mut left = rng.below(count * (count + 1) / 2);
    ranked
        .iter()
        .zip((1..=count).rev())
        .find_map(|(hop, share)| {
            if left < share {
                return Some(hop.face);
            }
            left -= share;
            None
        })
}

impl Strategy for Asf {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        match self.suppression.by_entry(context) {
            Verdict::Suppress => context.suppress(),
            Verdict::New => {
                let Some(best) = self.ranked(context).first().map(|hop| hop.face) else {
                    return context.no_route();
                };
                self.forward(context, best, false);
                self.probe_if_due(context, best);
            }
            Verdict::Forward => {
                if let Some(face) = retransmission_face(context) {
                    self.forward(context, face, false);
                }
            }
        }
    }

    fn after_receive_data(
        &mut self,
        context: &mut Context<'_>,
        data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        self.learn(context, data.from);
        None
    }

    fn after_receive_nack(&mut self, context: &mut Context<'_>, from: FaceId, _reason: NackReason) {
        let prefix = context.route().0.to_name();
        self.timed_out(context.now(), &prefix, from, true);
        context.pass_nacks_on();
    }

    fn after_dropped(&mut self, context: &mut Context<'_>, to: FaceId) {
        let prefix = context.route().0.to_name();
        self.timed_out(context.now(), &prefix, to, false);
    }

    fn on_timer(&mut self, context: &mut Context<'_>) {
        self.look_for_timeouts(context, false);
    }

    fn before_expire(&mut self, context: &mut Context<'_>) {
        self.look_for_timeouts(context, true);
    }

    fn forget_face(&mut self, face: FaceId) {
        self.measurements.forget_face(face);
    }

    fn measurements(&self) -> usize {
        self.measurements.len()
    }
}
