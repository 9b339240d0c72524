//! Weighted: next hops by their weights.
//!
//! | parameter | values |
//! |---|---|
//! | `weights` | `inverse-cost` (default): 1 / (1 + cost); `cost`: the cost of a route is its weight; `equal` |
//! | `face-ID` | the weight of that face, regardless of its route's cost |
//! | `by` | `packet` (default): each Interest is drawn separately; `name`: a name always takes the same path; `object`: names that differ in their last component only take the same path |

use super::best_route::retransmission_face;
use super::parameters::Parameters;
use super::suppression::{Suppression, Verdict};
use super::{Context, Strategy, StrategyError};
use crate::face::FaceId;
use crate::tables::NextHop;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Packet,
    Name,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    InverseCost,
    Cost,
    Equal,
}

/// Load balancing by weights.
#[derive(Debug)]
pub(super) struct Weighted {
    suppression: Suppression,
    by: By,
    weights: Weights,
    /// Weights of individual faces.
    faces: Vec<(FaceId, f64)>,
}

impl Weighted {
    pub(super) fn new(mut parameters: Parameters) -> Result<Weighted, StrategyError> {
        let suppression = parameters.suppression()?;
        let by = match parameters.text("by").as_deref() {
            None | Some("packet") => By::Packet,
            Some("name") => By::Name,
            Some("object") => By::Object,
            Some(other) => {
                return Err(Parameters::wrong(
                    "by",
                    other,
                    "must be packet, name or object",
                ));
            }
        };
        let weights = match parameters.text("weights").as_deref() {
            None | Some("inverse-cost") => Weights::InverseCost,
            Some("cost") => Weights::Cost,
            Some("equal") => Weights::Equal,
            Some(other) => {
                return Err(Parameters::wrong(
                    "weights",
                    other,
                    "must be inverse-cost, cost or equal",
                ));
            }
        };
        let mut faces = Vec::new();
        for (face, weight) in parameters.with_prefix("face-") {
            let wrong = |why| Parameters::wrong(&format!("face-{face}"), &weight, why);
            let id = face
                .parse()
                .map_err(|_| wrong("the part after face- is not a face number"))?;
            let weight: f64 = weight
                .parse()
                .map_err(|_| wrong("the weight is not a number"))?;
            if !(0.0..=1e9).contains(&weight) {
                return Err(wrong("the weight must be from 0 to 1000000000"));
            }
            faces.push((FaceId(id), weight));
        }
        parameters.finish()?;
        Ok(Weighted {
            suppression,
            by,
            weights,
            faces,
        })
    }

    fn weight(&self, hop: &NextHop) -> f64 {
        let own = self.faces.iter().find(|(face, _)| *face == hop.face);
        own.map_or_else(
            || match self.weights {
                Weights::InverseCost => 1.0 / (1.0 + hop.cost as f64),
                Weights::Cost => hop.cost as f64,
                Weights::Equal => 1.0,
            },
            |(_, weight)| *weight,
        )
    }

    /// From 0 to 1: the position of this Interest in the sum of all weights.
    fn point(&self, context: &mut Context<'_>) -> f64 {
        let hash = match self.by {
            By::Packet => return context.rng().unit(),
            By::Name => context.name_hash(),
            By::Object => context.object_hash(),
        };
        (hash >> 11) as f64 / (1u64 << 53) as f64
    }

    fn choose(&self, context: &mut Context<'_>) -> Option<FaceId> {
        let hops = context.eligible();
        let sum: f64 = hops.iter().map(|hop| self.weight(hop)).sum();
        let mut left = self.point(context) * sum;
        for hop in &hops {
            let weight = self.weight(hop);
            if left < weight {
                return Some(hop.face);
            }
            left -= weight;
        }
        // Rounding, or all weights are zero.
        hops.iter()
            .rfind(|hop| self.weight(hop) > 0.0)
            .or(hops.first())
            .map(|hop| hop.face)
    }
}

impl Strategy for Weighted {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        let chosen = match self.suppression.by_entry(context) {
            Verdict::Suppress => return context.suppress(),
            Verdict::New => self.choose(context),
            // The next hop selected by weight did not answer in time.
            Verdict::Forward => retransmission_face(context),
        };
        match chosen {
            Some(face) => {
                context.send_interest(face);
            }
            None => context.no_route(),
        }
    }
}
