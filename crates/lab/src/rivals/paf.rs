//! PAF-like: next hops by probabilities that round trips reinforce.
//!
//! Probability-based adaptive forwarding is an ant colony that balances next hops by the
//! distribution of their round-trip times ([PTP §7-B]). Its formulas are not public; these
//! are those of AntNet, on which such strategies build, with each Data as a backward ant: the
//! shorter its round trip in comparison with the window's best and with the confidence interval of
//! the mean, the more probable becomes its face. Every Data reinforces, not one ant now and then,
//! so a reinforcement is scaled down.
//!
//! | parameter | values |
//! |---|---|
//! | `learning` | scale of a reinforcement, 0.05 |
//! | `memory` | weight of a sample in mean and variance, 0.1 |
//! | `floor` | least probability of a next hop, 0.01 |

use core::time::Duration;

use whimbrel_ndn_packet::{LpHeader, NackReason};

use whimbrel_forwarder::FaceId;
use whimbrel_forwarder::strategy::measurements::Measurements;
use whimbrel_forwarder::strategy::{
    Context, IncomingData, Memory, Parameters, Strategy, StrategyError, Suppression, Verdict,
    retransmission_face,
};

use super::rfa::{draw, upstream_hops};
use super::route_label::labelled;

/// How long an unused prefix or next hop is remembered.
const LIFETIME: Duration = Duration::from_secs(300);
/// AntNet's weights of the two terms of a reinforcement, and its confidence level.
const BEST_TERM: f64 = 0.7;
const INTERVAL_TERM: f64 = 0.3;
const CONFIDENCE: f64 = 1.7;
/// AntNet's window of the best round trip, in memories of the mean: 5 / `memory` samples.
const WINDOW: f64 = 5.0;

/// The round trips of a face for a prefix, in seconds.
#[derive(Clone, Debug, Default)]
struct Trips {
    /// `None` until it is shared out.
    probability: Option<f64>,
    mean: Option<f64>,
    variance: f64,
    /// The best of this window and of the one before.
    best: Option<f64>,
    best_before: Option<f64>,
    samples: u32,
}

impl Trips {
    /// Takes one round trip in, and returns how good it is: 0 to 1.
    fn sample(&mut self, trip: f64, memory: f64) -> f64 {
        let window = WINDOW / memory;
        let mean = self.mean.unwrap_or(trip);
        let mean = mean + memory * (trip - mean);
        self.mean = Some(mean);
        self.variance += memory * ((trip - mean).powi(2) - self.variance);
        self.samples += 1;
        if f64::from(self.samples) > window {
            (self.best_before, self.best, self.samples) = (self.best, None, 1);
        }
        let best = self.best.map_or(trip, |best| best.min(trip));
        self.best = Some(best);
        let best = self.best_before.map_or(best, |before| before.min(best));
        let upper = mean + CONFIDENCE * (self.variance / window).sqrt();
        let interval = (upper - best).max(0.0);
        let spread = interval + (trip - best);
        let in_interval = if spread > 0.0 { interval / spread } else { 1.0 };
        let of_best = if trip > 0.0 { best / trip } else { 1.0 };
        (BEST_TERM * of_best + INTERVAL_TERM * in_interval).clamp(0.0, 1.0)
    }
}

/// Forwarding by reinforced probabilities.
#[derive(Debug)]
pub(super) struct Paf {
    suppression: Suppression,
    trips: Measurements<Trips>,
    learning: f64,
    memory: f64,
    floor: f64,
}

impl Paf {
    pub(super) fn new(mut parameters: Parameters, memory: Memory) -> Result<Paf, StrategyError> {
        let suppression = parameters.suppression()?;
        let learning = parameters.share("learning", 0.05)?;
        let weight = parameters.share("memory", 0.1)?;
        let floor = parameters.share("floor", 0.01)?;
        parameters.finish()?;
        Ok(Paf {
            suppression,
            trips: memory.measurements(LIFETIME),
            learning,
            memory: weight,
            floor,
        })
    }

    fn choose(&mut self, context: &mut Context<'_>) -> Option<FaceId> {
        let now = context.now();
        let prefix = context.route().0.to_name();
        let hops = upstream_hops(context, |_| 0.0);
        let even = 1.0 / hops.len().max(1) as f64;
        let shares: Vec<(FaceId, f64)> = hops
            .into_iter()
            .map(|(face, _)| {
                let known = self.trips.face(now, prefix.as_ref(), face);
                let share = known.map_or(even, |known| *known.probability.get_or_insert(even));
                (face, share.max(self.floor))
            })
            .collect();
        draw(&shares, context.rng().unit())
    }

    fn learn(&mut self, context: &Context<'_>, from: FaceId) {
        let now = context.now();
        let records = context.out_records();
        let Some(record) = records.iter().find(|record| record.face == from) else {
            return;
        };
        let trip = now.since(record.sent).as_secs_f64();
        let prefix = context.route().0.to_name();
        let Some(known) = self.trips.face(now, prefix.as_ref(), from) else {
            return;
        };
        let reinforcement = known.sample(trip, self.memory) * self.learning;
        let Some(prefix) = self.trips.get_or_insert(now, prefix.as_ref()) else {
            return;
        };
        for (face, trips) in prefix.faces_mut() {
            if let Some(probability) = &mut trips.probability {
                let target = f64::from(face == from);
                *probability += reinforcement * (target - *probability);
            }
        }
    }
}

impl Strategy for Paf {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        let chosen = match self.suppression.by_entry(context) {
            Verdict::Suppress => return context.suppress(),
            Verdict::New => self.choose(context),
            Verdict::Forward => retransmission_face(context),
        };
        match chosen {
            Some(face) => {
                context.send_interest(face);
            }
            None => context.no_route(),
        }
    }

    fn after_receive_data(
        &mut self,
        context: &mut Context<'_>,
        data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        self.learn(context, data.from);
        Some(labelled(data))
    }

    fn after_receive_nack(
        &mut self,
        context: &mut Context<'_>,
        _from: FaceId,
        _reason: NackReason,
    ) {
        context.pass_nacks_on();
    }

    fn forget_face(&mut self, face: FaceId) {
        self.trips.forget_face(face);
    }

    fn measurements(&self) -> usize {
        self.trips.len()
    }
}
