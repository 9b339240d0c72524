//! Studies of [TCP/ICN]: TCP over proxies and NDN beside plain IP on the same links.

pub(super) mod completion;
pub(super) mod fairness;

use super::jobs::Job;
use super::{Backend, StudyInput};
use crate::LabError;
use crate::scenario::run::Run;
use crate::scenario::{Plan, Scenario, netns, sim};

/// Returns the name of a way, from the sweep, for people.
fn title(by: &str) -> String {
    let mut words: Vec<&str> = by.split('-').collect();
    let first = match words.remove(0) {
        "plain" => "plain IP",
        "basic" => "basic fetching",
        "reliable" => "reliable prefetching",
        "unreliable" => "unreliable prefetching",
        other => other,
    };
    let more = words.into_iter().map(|word| match word {
        "belrp" => ", links that recover",
        "bbr" => ", BBR",
        "both" => ", both directions",
        "1500" => ", frames of 1500 bytes",
        other => other,
    });
    more.fold(first.to_owned(), |all, more| all + more)
}

/// One run.
struct Trial<'a> {
    title: String,
    plan: &'a Plan,
    seed: u64,
}

impl Job for Trial<'_> {
    type Found = Run;

    fn title(&self) -> &str {
        &self.title
    }

    fn run(&self, input: &StudyInput<'_>) -> Result<Run, LabError> {
        match input.options.backend {
            Backend::Sim => sim::run(self.plan, self.seed),
            Backend::Netns => netns::run(self.plan, self.seed, &input.options.program),
        }
    }
}

/// Returns the runs of every setting, in the order of the sweep, each with a title that `name` makes
/// of the setting's number.
fn trials<'a>(scenario: &'a Scenario, name: &dyn Fn(usize) -> String) -> Vec<Trial<'a>> {
    let settings = scenario.settings.iter().enumerate();
    settings
        .flat_map(|(index, setting)| {
            (0..scenario.runs).map(move |run| Trial {
                title: name(index),
                plan: &setting.plan,
                seed: setting.plan.seed.wrapping_add(u64::from(run)),
            })
        })
        .collect()
}
