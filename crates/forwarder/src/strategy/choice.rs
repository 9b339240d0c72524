//! Which prefix has which strategy.

use std::collections::BTreeMap;

use whimbrel_ndn_packet::{Name, NameRef};

use crate::tables::name_key::MAX_DEPTH;

/// Why a strategy cannot be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// No strategy has this name, or none this version.
    #[error("there is no strategy {0}; `/localhost/nfd/strategy/best-route` is one")]
    Unknown(Name),
    /// A parameter that this strategy does not have, or a value that it cannot have.
    #[error("the strategy parameter '{parameter}' is not valid: {why}")]
    Parameter {
        /// As it was given.
        parameter: String,
        /// What is wrong with it.
        why: String,
    },
    /// The prefix has too many components.
    #[error("the prefix has {0} components, a strategy choice has at most {MAX_DEPTH}")]
    TooDeep(usize),
    /// `/` always has a strategy.
    #[error("the strategy of / can be changed but not removed")]
    Root,
}

/// Prefixes and their strategies.
#[derive(Clone, Debug)]
pub struct StrategyChoice {
    chosen: BTreeMap<Name, Name>,
}

impl StrategyChoice {
    pub(crate) fn new() -> StrategyChoice {
        let best_route = Name::of(
            ["localhost", "nfd", "strategy", "best-route"]
                .map(|component| whimbrel_ndn_packet::Component::generic(component.as_bytes().to_vec())),
        );
        StrategyChoice { chosen: BTreeMap::from([(Name::root(), best_route)]) }
    }
    /// Gives a prefix a strategy, named without or with version and parameters, such as
    /// `/localhost/nfd/strategy/asf/v=5/probing-interval~30000`. Answers with its full name.
    pub fn set(&mut self, prefix: NameRef<'_>, strategy: NameRef<'_>) -> Result<Name, StrategyError> {
        self.chosen.insert(prefix.to_name(), strategy.to_name());
        Ok(strategy.to_name())
    }
    /// Lets a prefix have the strategy of the prefix above it; false if it had none of its own.
    pub fn unset(&mut self, prefix: NameRef<'_>) -> Result<bool, StrategyError> {
        if prefix.is_empty() {
            return Err(StrategyError::Root);
        }
        Ok(self.chosen.remove(&prefix.to_name()).is_some())
    }
    /// Every prefix that has a strategy of its own, with its full name, in canonical order.
    pub fn entries(&self) -> Vec<(Name, Name)> {
        self.chosen.iter().map(|(prefix, strategy)| (prefix.clone(), strategy.clone())).collect()
    }
    /// The names of all strategies there are, with their versions.
    pub fn available() -> Vec<Name> {
        Vec::new()
    }
}
