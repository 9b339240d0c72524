//! The names that the neighbours of configured links must prove.

use whimbrel_core::Guid;

/// The name that the neighbour of a configured link must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// This one, as the configuration says.
    Given(Guid),
    /// The one that was first proven at its address, or the next one if none was.
    FirstProven(Option<Guid>),
}

impl NameRule {
    pub(super) fn name(self) -> Option<Guid> {
        match self {
            NameRule::Given(name) => Some(name),
            NameRule::FirstProven(name) => name,
        }
    }
}
