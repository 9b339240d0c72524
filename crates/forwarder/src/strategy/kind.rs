//! The strategies that can be chosen by name.

use core::fmt;
use core::time::Duration;

use whimbrel_ndn_packet::{Component, Name, NameRef, types};

use super::asf::Asf;
use super::best_route::BestRoute;
use super::measurements::Measurements;
use super::multicast::Multicast;
use super::parameters::Parameters;
use super::random::Random;
use super::repeat::Repeat;
use super::weighted::Weighted;
use super::{Strategy, StrategyError};
use crate::tables::name_key::NameHasher;

/// A strategy that a name stands for: `/localhost/nfd/strategy/WORD/v=VERSION`.
#[derive(Clone, Copy)]
pub struct StrategyKind {
    /// Its word.
    pub word: &'static str,
    /// Its version.
    pub version: u64,
    /// Makes an instance for one prefix. It reads its parameters and ends with
    /// [`Parameters::finish`].
    pub make: fn(Parameters, Memory) -> Result<Box<dyn Strategy>, StrategyError>,
}

/// The bounds and the hash of a strategy's measurements.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub(super) hasher: NameHasher,
    /// Maximum of measured prefixes.
    pub(super) capacity: usize,
}

impl Memory {
    /// Returns empty measurements, which expire when they have been unused for `lifetime`.
    pub fn measurements<T: Default>(&self, lifetime: Duration) -> Measurements<T> {
        Measurements::new(self.hasher, lifetime, self.capacity)
    }
}

const fn kind(
    word: &'static str,
    version: u64,
    make: fn(Parameters, Memory) -> Result<Box<dyn Strategy>, StrategyError>,
) -> StrategyKind {
    StrategyKind {
        word,
        version,
        make,
    }
}

/// The strategies of every forwarder.
const OWN: &[StrategyKind] = &[
    kind("best-route", 5, |given, _| {
        Ok(Box::new(BestRoute::new(given)?))
    }),
    kind("multicast", 4, |given, _| {
        Ok(Box::new(Multicast::new(given)?))
    }),
    kind("asf", 5, |given, memory| {
        Ok(Box::new(Asf::new(given, memory)?))
    }),
    kind("random", 1, |given, _| Ok(Box::new(Random::new(given)?))),
    kind("weighted", 1, |given, _| {
        Ok(Box::new(Weighted::new(given)?))
    }),
    kind("repeat", 1, |given, _| Ok(Box::new(Repeat::new(given)?))),
];
const PREFIX: [&str; 3] = ["localhost", "nfd", "strategy"];

/// All strategies that a forwarder can be given by name: its own, and further ones of the program
/// around it.
#[derive(Clone, Copy, Default)]
pub struct StrategyKinds {
    further: &'static [StrategyKind],
}

impl StrategyKinds {
    /// The forwarder's own, and `further` ones.
    pub const fn with(further: &'static [StrategyKind]) -> StrategyKinds {
        StrategyKinds { further }
    }

    fn iter(self) -> impl Iterator<Item = &'static StrategyKind> {
        OWN.iter().chain(self.further)
    }

    /// Returns their names, with versions.
    pub fn names(self) -> Vec<Name> {
        self.iter().map(StrategyKind::name).collect()
    }

    /// Makes the strategy of a name, with or without version and parameters; returns it with its
    /// full name.
    pub(super) fn make(
        self,
        given: NameRef<'_>,
        memory: Memory,
    ) -> Result<(Name, Box<dyn Strategy>), StrategyError> {
        let unknown = || StrategyError::Unknown {
            name: given.to_name(),
            known: self.to_string(),
        };
        let mut components = given.components();
        let at_home = PREFIX.iter().all(|part| {
            components
                .next()
                .is_some_and(|c| c.value() == part.as_bytes())
        });
        let word = components.next().filter(|_| at_home).ok_or_else(unknown)?;
        let mut kinds = self.iter();
        let kind = kinds
            .find(|kind| kind.word.as_bytes() == word.value())
            .ok_or_else(unknown)?;
        let version = components.next();
        if version.is_some_and(|given| given.number_of(types::VERSION) != Some(kind.version)) {
            return Err(unknown());
        }
        let parameters = given.suffix(PREFIX.len() + 2);
        let full = kind.name().join(parameters);
        let strategy = (kind.make)(Parameters::read(parameters)?, memory)?;
        Ok((full, strategy))
    }
}

impl StrategyKind {
    fn name(&self) -> Name {
        named(self.word, self.version)
    }
}

/// Returns the name of a strategy.
pub(super) fn named(word: &str, version: u64) -> Name {
    let parts = PREFIX.iter().chain(core::iter::once(&word));
    let components = parts.map(|part| Component::generic(part.as_bytes().to_vec()));
    Name::of(components.chain(core::iter::once(Component::version(version))))
}

/// Words and versions, for those who have typed another one.
impl fmt::Display for StrategyKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            write!(f, "{comma}{}/v={}", kind.word, kind.version)?;
        }
        Ok(())
    }
}

impl fmt::Debug for StrategyKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
