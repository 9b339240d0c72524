//! Multicast: all next hops at once.

use super::parameters::Parameters;
use super::suppression::{Suppression, Verdict};
use super::{Context, Strategy, StrategyError};

/// NFD's multicast, version 4. Unlike NFD, it answers an Interest without any next hop with a Nack.
#[derive(Debug)]
pub(super) struct Multicast {
    suppression: Suppression,
}

impl Multicast {
    pub(super) fn new(mut parameters: Parameters) -> Result<Multicast, StrategyError> {
        let suppression = parameters.suppression()?;
        parameters.finish()?;
        Ok(Multicast { suppression })
    }
}

impl Strategy for Multicast {
    fn after_receive_interest(&mut self, context: &mut Context<'_>) {
        let hops = context.eligible();
        if hops.is_empty() {
            // Other downstreams may still be answered, and then this one will be, too.
            if !context.has_pending_out_records() {
                context.no_route();
            }
            return;
        }
        let mut suppressed = 0;
        for hop in &hops {
            if self.suppression.by_upstream(context, hop.face) == Verdict::Suppress {
                suppressed += 1;
            } else {
                context.send_interest(hop.face);
            }
        }
        if suppressed == hops.len() {
            context.suppress();
        }
    }
}
