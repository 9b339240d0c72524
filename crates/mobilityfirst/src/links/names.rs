//! The names that the neighbours of configured links must prove.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, PortId, PortOrigin};

use super::Links;

/// The name that the neighbour of a configured link must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// This one, as the configuration says.
    Given(Guid),
    /// The one that was first proven at its address, or the next one if none was.
    FirstProven(Option<Guid>),
}

impl NameRule {
    fn name(self) -> Option<Guid> {
        match self {
            NameRule::Given(name) => Some(name),
            NameRule::FirstProven(name) => name,
        }
    }
}

impl Links {
    /// The neighbour of link `number` must prove a name by this rule, from the next time on that its
    /// port comes up. Without a rule any name will do.
    pub fn set_name_rule(&mut self, number: u32, rule: NameRule) {
        self.names.insert(number, rule);
    }

    /// Returns the only name that the neighbour of a configured link may prove.
    pub(super) fn expected_at(&self, origin: PortOrigin) -> Option<Guid> {
        match origin {
            PortOrigin::Configured(number) => self.names.get(&number)?.name(),
            _ => None,
        }
    }

    /// The neighbour on a port has proven a name, which is the only one from then on where the first one
    /// counts.
    pub(super) fn note_proven(&mut self, port: PortId, name: Guid) {
        let Some(link) = self.links.get_mut(&port) else {
            return;
        };
        let PortOrigin::Configured(number) = link.info.origin else {
            return;
        };
        if let Some(rule @ NameRule::FirstProven(None)) = self.names.get_mut(&number) {
            *rule = NameRule::FirstProven(Some(name));
            link.hop.expect_neighbour(name);
        }
    }

    /// Returns the names that neighbours of configured links have proven, by the links' numbers.
    pub fn proven_names(&self) -> BTreeMap<u32, Guid> {
        let ports = self.by_link.iter();
        let proven = ports.filter_map(|(number, port)| {
            let link = self.links.get(port)?;
            Some((*number, link.neighbour?))
        });
        proven.collect()
    }
}
