//! Repeat: best-route that sends an Interest again when later ones are answered before it: "fast
//! Interest retransmission by the forwarder is still viable as a recovery technique" ([TCP/ICN §3.5.2]).
//!
//! It goes by the order of answers and not by a timeout: an Interest of unreliable prefetching may
//! wait seconds for a segment without being lost. The router that lost the Data has it in its content
//! store, if it has one, and answers at once.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{RttEstimator, Time};
use whimbrel_ndn_packet::LpHeader;

use super::best_route::BestRoute;
use super::context::IncomingData;
use super::parameters::Parameters;
use super::{Context, Strategy, StrategyError};
use crate::face::FaceId;

/// Greatest number of later answers that it can wait for.
const MAX_AFTER: usize = 16;
/// Before a round trip was measured.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// Bounds of the time between two looks at an Interest.
const LOOKS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));

/// What the answers of one face tell.
#[derive(Debug)]
struct Upstream {
    /// When those of the answered Interests were sent that were sent last, the latest first.
    answered: Vec<Time>,
    rtt: RttEstimator,
}

impl Upstream {
    fn new() -> Upstream {
        let (min, max) = LOOKS;
        Upstream {
            answered: Vec::new(),
            rtt: RttEstimator::new(FIRST_LOOK, min, max),
        }
    }

    fn note_answer(&mut self, sent: Time, after: usize) {
        let at = self.answered.partition_point(|known| *known >= sent);
        self.answered.insert(at, sent);
        self.answered.truncate(after);
    }

    /// Returns true if `after` Interests that were sent later have been answered.
    fn has_overtaken(&self, sent: Time, after: usize) -> bool {
        let last = after
            .checked_sub(1)
            .and_then(|last| self.answered.get(last));
        last.is_some_and(|oldest| *oldest > sent)
    }

    /// Returns how long to wait before the next look at an Interest that is `age` old: soon after the
    /// answers of those sent with it are due, then ever more seldom.
    fn next_look(&self, age: Duration) -> Duration {
        let (min, max) = LOOKS;
        let trip = self.rtt.smoothed().unwrap_or(FIRST_LOOK);
        let due = (trip + trip / 4).saturating_sub(age);
        due.max(age / 4).clamp(min, max)
    }
}

/// Best-route with repetitions.
#[derive(Debug)]
pub(super) struct Repeat {
    route: BestRoute,
    /// Later answers after which an Interest counts as lost.
    after: usize,
    /// Repetitions of an Interest to one face.
    tries: u8,
    /// At most one for each face.
    upstreams: BTreeMap<FaceId, Upstream>,
}

impl Repeat {
    pub(super) fn new(mut parameters: Parameters) -> Result<Repeat, StrategyError> {
        let after: usize = parameters.number("after", 3)?;
        if !(1..=MAX_AFTER).contains(&after) {
            let why = format!("must be from 1 to {MAX_AFTER}");
            return Err(Parameters::wrong("after", &after.to_string(), &why));
        }
        Ok(Repeat {
            after,
            tries: parameters.number("tries", 2)?,
            route: BestRoute::new(parameters)?,
            upstreams: BTreeMap::new(),
        })
    }

    /// Sets the timer to the first moment at which a pending Interest is to be looked at again.
    fn look_again(&self, context: &mut Context<'_>) {
        let now = context.now();
        let looks = context.out_records().iter().filter_map(|record| {
            let may_repeat = record.is_pending(now) && record.given_up < self.tries;
            let age = now.since(record.sent);
            let upstream = self.upstreams.get(&record.face);
            may_repeat.then(|| upstream.map_or(FIRST_LOOK, |it| it.next_look(age)))
        });
        if let Some(wait) = looks.min() {
            context.set_timer(wait);
        }
    }
}

impl Strategy for Repeat {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        self.route.after_receive_interest(context);
        self.look_again(context);
    }

    fn after_receive_data(
        &mut self,
        context: &mut Context<'_>,
        data: &IncomingData<'_>,
    ) -> Option<Box<LpHeader>> {
        let now = context.now();
        let mut records = context.out_records().iter();
        if let Some(record) = records.find(|record| record.face == data.from) {
            let upstream = self
                .upstreams
                .entry(data.from)
                .or_insert_with(Upstream::new);
            upstream.note_answer(record.sent, self.after);
            // The answer of a repeated Interest may be to its first transmission.
            if record.given_up == 0 {
                upstream.rtt.sample(now.since(record.sent));
            }
        }
        None
    }

    fn on_timer(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let records = context.out_records().iter();
        let lost = records.filter(|record| {
            let upstream = self.upstreams.get(&record.face);
            record.is_pending(now)
                && record.given_up < self.tries
                && upstream.is_some_and(|it| it.has_overtaken(record.sent, self.after))
        });
        let lost: Vec<(FaceId, u8)> = lost.map(|it| (it.face, it.given_up)).collect();
        for (face, before) in lost {
            // With a nonce of its own: it must not look like a loop.
            if context.send_probe(face)
                && let Some(entry) = context.entry_mut()
            {
                let records = entry.out_records.iter_mut();
                for record in records.filter(|record| record.face == face) {
                    record.given_up = before.saturating_add(1);
                }
            }
        }
        self.look_again(context);
    }

    fn forget_face(&mut self, face: FaceId) {
        self.upstreams.remove(&face);
    }
}
