//! The Abilene network: twelve nodes, fifteen links, seven flows.

mod findings;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_core::units;
use whimbrel_sim::link::{LinkSpec, Loss, QueueLimit, Rate};

use super::super::{Progress, StudyInput, StudyResult};
use super::matrix::{Matrix, Step};
use super::network::{Plan, PlannedFlow, PlannedLink};
use super::{ConsumerSpec, Variant};
use crate::LabError;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    runs: u32,
    /// Of each frame in each direction of each link.
    losses_percent: Vec<f64>,
    variants: Vec<Variant>,
    /// The ends of the link that Figs. 4 and 5 and Table V are about.
    observed: (String, String),
    /// A run that takes longer in virtual time has failed.
    #[serde(with = "units::duration")]
    limit: Duration,
    consumer: ConsumerSpec,
    /// Of every link, one way.
    #[serde(with = "units::duration")]
    delay: Duration,
    queue: QueueLimit,
    /// Octets that the carrier adds to each frame.
    overhead: u32,
    links: Vec<ScenarioLink>,
    flows: Vec<ScenarioFlow>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioLink {
    between: (String, String),
    rate: Rate,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFlow {
    /// First Interests and repeated ones together, a second.
    rate: f64,
    /// From the consumer's node to the producer's.
    path: Vec<String>,
}

/// Figs. 4 to 7, Tables IV and V.
pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario: Scenario = input.scenario()?;
    let map = scenario.map().map_err(|reason| LabError::BadScenario {
        study: input.study.name.to_owned(),
        reason,
    })?;
    let steps = scenario.losses_percent.iter().map(|loss_percent| Step {
        x: *loss_percent,
        label: format!("{loss_percent} %"),
        loss_percent: *loss_percent,
    });
    let plan = |step: usize, variant, run| {
        scenario.plan(
            &map,
            input.options.seed,
            scenario.losses_percent[step],
            variant,
            run,
        )
    };
    let steps: Vec<Step> = steps.collect();
    let axis = "loss on each link";
    let matrix = Matrix::run(
        axis,
        steps,
        &scenario.variants,
        scenario.runs,
        input,
        progress,
        plan,
    )?;
    findings::result(input, &scenario, &map, &matrix)
}

/// Nodes by number.
struct Map {
    nodes: Vec<String>,
    links: Vec<(usize, usize)>,
    paths: Vec<Vec<usize>>,
}

impl Scenario {
    fn map(&self) -> Result<Map, String> {
        let mut nodes: Vec<String> = Vec::new();
        let ends = self
            .links
            .iter()
            .flat_map(|link| [&link.between.0, &link.between.1]);
        for name in ends {
            if !nodes.contains(name) {
                nodes.push(name.clone());
            }
        }
        let number = |name: &String| {
            let found = nodes.iter().position(|known| known == name);
            found.ok_or_else(|| format!("no link has an end at '{name}'"))
        };
        let link = |(a, b): &(String, String)| Ok::<_, String>((number(a)?, number(b)?));
        let links = self
            .links
            .iter()
            .map(|known| link(&known.between))
            .collect::<Result<Vec<_>, _>>()?;
        let mut paths = Vec::new();
        for flow in &self.flows {
            let path = flow
                .path
                .iter()
                .map(number)
                .collect::<Result<Vec<_>, _>>()?;
            for hop in path.windows(2) {
                let (there, back) = ((hop[0], hop[1]), (hop[1], hop[0]));
                if !links.contains(&there) && !links.contains(&back) {
                    return Err(format!(
                        "there is no link between '{}' and '{}'",
                        nodes[hop[0]], nodes[hop[1]]
                    ));
                }
            }
            paths.push(path);
        }
        link(&self.observed)?;
        Ok(Map {
            nodes,
            links,
            paths,
        })
    }

    fn plan(&self, map: &Map, seed: u64, loss_percent: f64, variant: Variant, run: u32) -> Plan {
        let link = |(ends, link): (&(usize, usize), &ScenarioLink)| PlannedLink {
            ends: *ends,
            spec: LinkSpec {
                rate: link.rate.clone(),
                delay: self.delay,
                queue: self.queue,
                loss: if loss_percent > 0.0 {
                    Loss::Independent(loss_percent / 100.0)
                } else {
                    Loss::None
                },
                overhead: self.overhead,
                ..LinkSpec::default()
            },
        };
        let flow = |(path, flow): (&Vec<usize>, &ScenarioFlow)| PlannedFlow {
            path: path.clone(),
            rate: flow.rate,
            consumer: self.consumer.clone(),
        };
        Plan {
            nodes: map.nodes.clone(),
            links: map.links.iter().zip(&self.links).map(link).collect(),
            flows: map.paths.iter().zip(&self.flows).map(flow).collect(),
            variant,
            seed: seed.wrapping_add(u64::from(run)),
            limit: self.limit,
            hashed: run == 0,
            delays_kept: false,
        }
    }
}
