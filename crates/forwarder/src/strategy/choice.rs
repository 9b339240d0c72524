//! Strategy choice: the strategies by prefix.

use whimbrel_core::SeededRng;
use whimbrel_ndn_packet::{Name, NameRef};

use super::Strategy;
use super::kind::{Memory, StrategyKinds, named};
use crate::face::FaceId;
use crate::pipeline::Engine;
use crate::tables::index::{NONE, Slab};
use crate::tables::name_key::{Depths, MAX_DEPTH, NameHasher, NameKey};
use crate::tables::prefix_map::PrefixMap;

/// Why a strategy cannot be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// The name or version is unknown.
    #[error(
        "there is no strategy {name}; below /localhost/nfd/strategy there are {known}, with or without the version"
    )]
    Unknown {
        /// As it was given.
        name: Name,
        /// Those that there are.
        known: String,
    },
    /// An unknown parameter, or an invalid value.
    #[error("the strategy parameter '{parameter}' is invalid: {why}")]
    Parameter {
        /// As it was given.
        parameter: String,
        /// What is wrong with it.
        why: String,
    },
    /// The prefix has too many components.
    #[error("the prefix has {0} components; a strategy choice has at most {MAX_DEPTH}")]
    TooDeep(usize),
    /// `/` always has a strategy.
    #[error("the strategy of / can be changed but not removed")]
    Root,
}

struct Instance {
    name: Name,
    strategy: Box<dyn Strategy>,
}

/// Prefixes and their strategies: one instance for each.
pub struct StrategyChoice {
    kinds: StrategyKinds,
    hasher: NameHasher,
    measurements_capacity: usize,
    prefixes: PrefixMap<u32>,
    instances: Slab<Instance>,
    /// Counts changes: PIT entries cache their strategy and look it up again when this has changed.
    epoch: u32,
}

impl StrategyChoice {
    /// `/` has best-route.
    pub(crate) fn new(
        kinds: StrategyKinds,
        hasher: NameHasher,
        measurements_capacity: usize,
    ) -> StrategyChoice {
        let mut choice = StrategyChoice {
            kinds,
            hasher,
            measurements_capacity,
            prefixes: PrefixMap::new(hasher),
            instances: Slab::new(),
            epoch: 1,
        };
        // Cannot fail: the strategy exists.
        let _ = choice.set(Name::root().as_ref(), named("best-route", 5).as_ref());
        choice
    }

    /// Sets the strategy of a prefix, named with or without version and parameters, such as
    /// `/localhost/nfd/strategy/asf/v=5/probing-interval~30000`. Returns its full name.
    pub fn set(
        &mut self,
        prefix: NameRef<'_>,
        strategy: NameRef<'_>,
    ) -> Result<Name, StrategyError> {
        self.put(prefix, self.make(strategy)?)
    }

    /// Returns the full name of the strategy that [`StrategyChoice::set`] would give a prefix, or
    /// why it would refuse to.
    pub fn check(
        kinds: StrategyKinds,
        prefix: NameRef<'_>,
        strategy: NameRef<'_>,
    ) -> Result<Name, StrategyError> {
        // What names are hashed with decides nothing here.
        let hasher = NameHasher::new(&mut SeededRng::new(0));
        StrategyChoice::new(kinds, hasher, 0).set(prefix, strategy)
    }

    /// Sets a strategy of the program's own, reported as `name`.
    pub fn install(
        &mut self,
        prefix: NameRef<'_>,
        name: Name,
        strategy: Box<dyn Strategy>,
    ) -> Result<(), StrategyError> {
        self.put(prefix, Instance { name, strategy }).map(drop)
    }

    fn put(&mut self, prefix: NameRef<'_>, instance: Instance) -> Result<Name, StrategyError> {
        let depth = prefix.len();
        if depth > MAX_DEPTH {
            return Err(StrategyError::TooDeep(depth));
        }
        let name = instance.name.clone();
        let slot = self.instances.insert(instance);
        if let Some(chosen) = self.prefixes.get_or_insert_with(prefix, || NONE) {
            let old = core::mem::replace(chosen, slot);
            self.instances.remove(old);
        }
        self.epoch = self.epoch.wrapping_add(1);
        Ok(name)
    }

    /// Removes the strategy of a prefix, so that the one of a shorter prefix applies; returns false
    /// if it had none.
    pub fn unset(&mut self, prefix: NameRef<'_>) -> Result<bool, StrategyError> {
        if prefix.is_empty() {
            return Err(StrategyError::Root);
        }
        let Some(slot) = self.prefixes.remove(prefix) else {
            return Ok(false);
        };
        self.instances.remove(slot);
        self.epoch = self.epoch.wrapping_add(1);
        Ok(true)
    }

    /// Every prefix that has a strategy of its own, with its full name, in canonical order.
    pub fn entries(&self) -> Vec<(Name, Name)> {
        let named = |slot: u32| {
            self.instances
                .get(slot)
                .map(|instance| instance.name.clone())
        };
        self.prefixes
            .sorted()
            .into_iter()
            .filter_map(|(prefix, slot)| Some((prefix, named(*slot)?)))
            .collect()
    }

    pub(crate) const fn depths(&self) -> Depths {
        self.prefixes.depths()
    }

    /// Returns the number of prefixes with a strategy of their own.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Always false: `/` has a strategy.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if this very prefix has a strategy of its own.
    pub fn has_own(&self, prefix: NameRef<'_>) -> bool {
        self.prefixes.get(prefix).is_some()
    }

    /// Returns the full name of the strategy for Interests of a name.
    pub fn effective_name(&self, name: NameRef<'_>) -> Option<Name> {
        let key = NameKey::of(&self.hasher, name);
        let (_, slot) = self.prefixes.longest_match(&key, name.value())?;
        self.instances
            .get(*slot)
            .map(|instance| instance.name.clone())
    }

    fn make(&self, given: NameRef<'_>) -> Result<Instance, StrategyError> {
        let memory = Memory {
            hasher: self.hasher,
            capacity: self.measurements_capacity,
        };
        let (name, strategy) = self.kinds.make(given, memory)?;
        Ok(Instance { name, strategy })
    }

    /// Returns the index of a PIT entry's strategy.
    #[inline]
    pub(crate) fn effective(&self, engine: &mut Engine, slot: u32, key: Option<&NameKey>) -> u32 {
        let Some(entry) = engine.pit.get_mut(slot) else {
            return NONE;
        };
        let (known, epoch) = entry.strategy;
        if epoch == self.epoch {
            return known;
        }
        let found = match key {
            Some(key) => self.prefixes.longest_match(key, entry.name_value()),
            None => {
                let key = NameKey::of(&self.hasher, entry.name());
                self.prefixes.longest_match(&key, entry.name_value())
            }
        };
        let found = found.map_or(NONE, |(_, slot)| *slot);
        // State of another strategy is meaningless to this one.
        entry.strategy = (found, self.epoch);
        entry.timer = whimbrel_core::Time::MAX;
        found
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut (dyn Strategy + 'static)> {
        self.instances
            .get_mut(place)
            .map(|instance| &mut *instance.strategy)
    }

    pub(crate) fn forget_face(&mut self, face: FaceId) {
        for place in 0..self.instances.places() as u32 {
            if let Some(instance) = self.instances.get_mut(place) {
                instance.strategy.forget_face(face);
            }
        }
    }

    /// Returns the number of measurements of all strategies.
    pub fn measurements(&self) -> usize {
        self.instances
            .iter()
            .map(|(_, instance)| instance.strategy.measurements())
            .sum()
    }
}

impl core::fmt::Debug for StrategyChoice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}
