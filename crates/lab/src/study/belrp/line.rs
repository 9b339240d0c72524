//! A line of routers: the consumer at one end, the producer at the other.

mod findings;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::units;
use whimbrel_sim::link::{LinkSpec, Loss};

use super::super::{Progress, StudyInput, StudyResult};
use super::matrix::{Matrix, Step};
use super::network::{Plan, PlannedFlow, PlannedLink};
use super::{ConsumerSpec, Variant};
use crate::LabError;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    runs: u32,
    /// Links between consumer and producer; one study has several, the other one.
    hops: Vec<u32>,
    /// Of each frame in each direction of each link; one study has several, the other one.
    losses_percent: Vec<f64>,
    variants: Vec<Variant>,
    /// The rate of loss of the distribution (Fig. 3), if it is to be drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    distribution_percent: Option<f64>,
    /// First Interests and repeated ones together, a second.
    rate: f64,
    /// A run that takes longer in virtual time has failed.
    #[serde(with = "units::duration")]
    limit: Duration,
    consumer: ConsumerSpec,
    link: LinkSpec,
}

/// What a study of a line varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Loss,
    Hops,
}

pub(in super::super) mod linear {
    use super::{Axis, LabError, Progress, StudyInput, StudyResult};

    /// Figs. 2 (a), 2 (c) and 3, Table II.
    pub(in super::super::super) fn run(
        input: &StudyInput<'_>,
        progress: Progress<'_>,
    ) -> Result<StudyResult, LabError> {
        super::run(Axis::Loss, input, progress)
    }
}

pub(in super::super) mod hops {
    use super::{Axis, LabError, Progress, StudyInput, StudyResult};

    /// Figs. 2 (b), 2 (d) and 6 (a), Table III.
    pub(in super::super::super) fn run(
        input: &StudyInput<'_>,
        progress: Progress<'_>,
    ) -> Result<StudyResult, LabError> {
        super::run(Axis::Hops, input, progress)
    }
}

fn run(
    axis: Axis,
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario: Scenario = input.scenario()?;
    let mut steps = Vec::new();
    let mut places = Vec::new();
    for hops in &scenario.hops {
        for loss_percent in &scenario.losses_percent {
            let (x, label) = match axis {
                Axis::Loss => (*loss_percent, format!("{loss_percent} %")),
                Axis::Hops => (f64::from(*hops), hops.to_string()),
            };
            steps.push(Step {
                x,
                label,
                loss_percent: *loss_percent,
            });
            places.push((*hops, *loss_percent));
        }
    }
    let name = match axis {
        Axis::Loss => "loss on each link",
        Axis::Hops => "hops",
    };
    let plan =
        |step: usize, variant, run| scenario.plan(input.options.seed, places[step], variant, run);
    let matrix = Matrix::run(
        name,
        steps,
        &scenario.variants,
        scenario.runs,
        input,
        progress,
        plan,
    )?;
    findings::result(axis, input, &scenario, &matrix)
}

impl Scenario {
    fn plan(
        &self,
        seed: u64,
        (hops, loss_percent): (u32, f64),
        variant: Variant,
        run: u32,
    ) -> Plan {
        let nodes = 0..=hops as usize;
        let spec = self
            .link
            .clone()
            .with_loss(Loss::Independent(loss_percent / 100.0));
        let links = nodes.clone().zip(1..=hops as usize);
        Plan {
            nodes: nodes.clone().map(|node| format!("N{}", node + 1)).collect(),
            links: links
                .map(|ends| PlannedLink {
                    ends,
                    spec: spec.clone(),
                })
                .collect(),
            flows: vec![PlannedFlow {
                path: nodes.collect(),
                rate: self.rate,
                consumer: self.consumer.clone(),
            }],
            variant,
            seed: seed.wrapping_add(u64::from(run)),
            limit: self.limit,
            hashed: run == 0,
            delays_kept: true,
        }
    }
}
