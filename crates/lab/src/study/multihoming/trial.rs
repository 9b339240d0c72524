//! One run of a plan.

use super::super::jobs::Job;
use super::super::{Backend, StudyInput};
use crate::LabError;
use crate::scenario::run::Run;
use crate::scenario::{Plan, netns, sim};

/// A run of a plan, with its seed.
pub(super) struct Trial<'a> {
    /// For people.
    pub(super) title: String,
    pub(super) plan: &'a Plan,
    pub(super) seed: u64,
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
