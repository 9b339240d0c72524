//! A trial in virtual time.

use std::time::Duration;

use whimbrel_core::Time;
use whimbrel_mobilityfirst::router::ProxyPolicy;

use super::{Approach, Outcome, ProxyUse, Trial};
use crate::LabError;
use crate::daemons::frames_resent;
use crate::simulated::{
    ORIGIN_UNIX_MS, RepeatingContent, SimulatedFig7, SimulatedFig7Options, simulated_tcp,
};

/// Before the link's schedule begins the hosts attach and the content is announced.
const SETTLED: Duration = Duration::from_secs(2);

pub(super) fn run(trial: &Trial) -> Result<Outcome, LabError> {
    let request_at = Time::ZERO + SETTLED + trial.asked;
    let mut outcome = match trial.approach {
        Approach::Tcp => {
            let limit = request_at + trial.patience;
            let testbed = trial.testbed(SETTLED);
            let record = simulated_tcp(&testbed, trial.file_len, request_at, limit, trial.seed);
            Outcome {
                record,
                proxy: None,
            }
        }
        Approach::Proactive => fetch(trial, SimulatedFig7Options::default(), request_at)?,
        Approach::ReceiverDriven { nack_timeout } => {
            let options = SimulatedFig7Options {
                proxy: ProxyPolicy {
                    proactive: false,
                    ..ProxyPolicy::default()
                },
                nack_timeout: Some(nack_timeout),
                ..SimulatedFig7Options::default()
            };
            fetch(trial, options, request_at)?
        }
    };
    // The same run leaves the same files, whenever it is run.
    outcome.record.started_unix_ms =
        ORIGIN_UNIX_MS + request_at.since(Time::ZERO).as_millis() as u64;
    Ok(outcome)
}

fn fetch(
    trial: &Trial,
    options: SimulatedFig7Options,
    request_at: Time,
) -> Result<Outcome, LabError> {
    let mut world = SimulatedFig7::new(&trial.testbed(SETTLED), options, trial.seed);
    let content = RepeatingContent::new(trial.file_len, 1);
    let name = content.name();
    world.publish(content);
    world.run_until(request_at);
    let transfer = world.get(name);
    let mut record = world
        .finish(transfer, request_at + trial.patience)
        .map_err(|reason| trial.failed(format!("the network gave up: {reason:?}")))?;
    record.retransmitted_segments = [1, 2, 3]
        .into_iter()
        .map(|node| frames_resent(&world.status(node)))
        .sum();
    Ok(Outcome {
        record,
        proxy: ProxyUse::of(&world.status(3)),
    })
}
