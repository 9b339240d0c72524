//! The names that the neighbours of configured links must prove.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, PortId, PortOrigin};

use super::neighbours::Neighbours;

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

impl Neighbours {
    /// The neighbour on a port has proven a name, which is the only one from then on where the first one
    /// counts.
    pub(super) fn note_proven(&mut self, port: PortId, name: Guid) {
        let Some(link) = self.links.get_mut(&port) else {
            return;
        };
        let PortOrigin::Configured(number) = link.info.origin else {
            return;
        };
        if let Some(terms) = self.terms.get_mut(&number)
            && terms.name == Some(NameRule::FirstProven(None))
            && !link.plain
        {
            terms.name = Some(NameRule::FirstProven(Some(name)));
            link.hop.expect_neighbour(name);
        }
    }

    /// Returns the names that neighbours of configured links have proven, by the links' numbers.
    pub(crate) fn proven_names(&self) -> BTreeMap<u32, Guid> {
        let ports = self.by_link.iter();
        let proven = ports.filter_map(|(number, port)| {
            let link = self.links.get(port).filter(|link| !link.plain)?;
            Some((*number, link.neighbour?))
        });
        proven.collect()
    }
}
