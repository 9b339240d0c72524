//! Best-route: the cheapest next hop; a retransmission tries another one.

use super::parameters::Parameters;
use super::suppression::{Suppression, Verdict};
use super::{Context, Strategy, StrategyError};
use crate::face::FaceId;

/// NFD's best-route, version 5.
#[derive(Debug)]
pub(super) struct BestRoute {
    suppression: Suppression,
}

impl BestRoute {
    pub(super) fn new(mut parameters: Parameters) -> Result<BestRoute, StrategyError> {
        let suppression = parameters.suppression()?;
        parameters.finish()?;
        Ok(BestRoute { suppression })
    }
}

impl Strategy for BestRoute {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        match self.suppression.by_entry(context) {
            Verdict::Suppress => context.suppress(),
            Verdict::New => {
                let best = context
                    .next_hops()
                    .iter()
                    .find(|hop| context.is_eligible(hop.face));
                match best.map(|hop| hop.face) {
                    Some(face) => {
                        context.send_interest(face);
                    }
                    None => context.no_route(),
                }
            }
            Verdict::Forward => {
                if let Some(face) = retransmission_face(context) {
                    context.send_interest(face);
                }
            }
        }
    }
}

/// Returns the best next hop that is not pending, else the one used least recently.
pub fn retransmission_face(context: &Context<'_>) -> Option<FaceId> {
    let hops = context.eligible();
    let record = |face: FaceId| {
        context
            .out_records()
            .iter()
            .find(|record| record.face == face)
    };
    let unused = hops
        .iter()
        .find(|hop| record(hop.face).is_none_or(|record| record.expiry <= context.now()));
    let earliest = || {
        hops.iter()
            .min_by_key(|hop| record(hop.face).map(|record| record.sent))
    };
    unused.or_else(earliest).map(|hop| hop.face)
}
