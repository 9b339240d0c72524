//! Random: any next hop, drawn for each Interest.

use super::parameters::Parameters;
use super::suppression::{Suppression, Verdict};
use super::{Context, Strategy, StrategyError};

/// NFD's random, version 1, with the suppression of the other strategies.
#[derive(Debug)]
pub(super) struct Random {
    suppression: Suppression,
}

impl Random {
    pub(super) fn new(mut parameters: Parameters) -> Result<Random, StrategyError> {
        let suppression = parameters.suppression()?;
        parameters.finish()?;
        Ok(Random { suppression })
    }
}

impl Strategy for Random {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        if self.suppression.by_entry(context) == Verdict::Suppress {
            return context.suppress();
        }
        let hops = context.eligible();
        let chosen = context.rng().below(hops.len() as u64) as usize;
        match hops.get(chosen) {
            Some(hop) => {
                context.send_interest(hop.face);
            }
            None => context.no_route(),
        }
    }
}
