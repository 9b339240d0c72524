//! Which names may call a node's listeners.

use core::net::SocketAddr;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, Time};

/// Bound of each list of names.
pub const MAX_LISTED: usize = 4096;
/// Callers of late that were refused: who calls under ever new names pushes others out.
const MAX_REFUSED: usize = 64;

/// Who gets a port of those that call a node's listeners and have proven their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallerPolicy {
    /// Whoever is not denied.
    #[default]
    Any,
    /// Whoever is not denied, and is listed from then on, until the list is full.
    FirstUse,
    /// Whoever is listed.
    Listed,
}

/// Names that were decided upon. Nobody is in both lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallerLists {
    /// Those that may call.
    pub allowed: BTreeSet<Guid>,
    /// Those that may not.
    pub denied: BTreeSet<Guid>,
}

impl CallerLists {
    /// Moves a name to one of the lists. False if that is full.
    pub fn decide(&mut self, name: Guid, allow: bool) -> bool {
        let (to, from) = match allow {
            true => (&mut self.allowed, &mut self.denied),
            false => (&mut self.denied, &mut self.allowed),
        };
        if !to.contains(&name) && to.len() >= MAX_LISTED {
            return false;
        }
        from.remove(&name);
        to.insert(name);
        true
    }
}

/// A caller that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedCaller {
    /// Its name, which it has proven.
    pub name: Guid,
    /// Where it called from, where the carrier has addresses.
    pub from: Option<SocketAddr>,
    /// When it called last.
    pub at: Time,
    /// How often it was refused.
    pub times: u64,
}

/// The policy of a node's listeners, what was decided, and who was refused of late.
#[derive(Clone, Debug, Default)]
pub struct Callers {
    /// Who gets a port.
    pub policy: CallerPolicy,
    /// What was decided.
    pub lists: CallerLists,
    refused: Vec<RefusedCaller>,
}

impl Callers {
    /// For listeners with this policy, and with what was decided before.
    pub fn new(policy: CallerPolicy, lists: CallerLists) -> Callers {
        Callers {
            policy,
            lists,
            refused: Vec::new(),
        }
    }

    /// Returns those that were refused of late, the last one last.
    pub fn refused(&self) -> &[RefusedCaller] {
        &self.refused
    }

    /// Moves a name to one of the lists. False if that is full.
    pub fn decide(&mut self, name: Guid, allow: bool) -> bool {
        let decided = self.lists.decide(name, allow);
        if decided && allow {
            self.refused.retain(|refused| refused.name != name);
        }
        decided
    }

    /// Returns true if a caller with this name gets a port.
    pub(super) fn admit(&mut self, now: Time, name: Guid, from: Option<SocketAddr>) -> bool {
        let listed = self.lists.allowed.contains(&name);
        let denied = self.lists.denied.contains(&name);
        let admitted = match self.policy {
            _ if denied => false,
            CallerPolicy::Any => true,
            CallerPolicy::FirstUse => listed || self.lists.decide(name, true),
            CallerPolicy::Listed => listed,
        };
        if !admitted {
            self.note_refused(now, name, from);
        }
        admitted
    }

    fn note_refused(&mut self, now: Time, name: Guid, from: Option<SocketAddr>) {
        let known = self.refused.iter().position(|refused| refused.name == name);
        let times = known.map_or(0, |at| self.refused.remove(at).times);
        if self.refused.len() >= MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push(RefusedCaller {
            name,
            from,
            at: now,
            times: times + 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u16) -> Guid {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Guid(bytes)
    }

    #[test]
    fn a_policy_decides_about_those_that_nobody_has_decided_about() {
        for (policy, unknown) in [
            (CallerPolicy::Any, true),
            (CallerPolicy::FirstUse, true),
            (CallerPolicy::Listed, false),
        ] {
            let mut callers = Callers::new(policy, CallerLists::default());
            assert!(callers.decide(name(1), true) && callers.decide(name(2), false));
            let mut admit = |number| callers.admit(Time::ZERO, name(number), None);
            assert_eq!(
                [1, 2, 3].map(&mut admit),
                [true, false, unknown],
                "{policy:?}"
            );
            let learnt = callers.lists.allowed.contains(&name(3));
            assert_eq!(learnt, policy == CallerPolicy::FirstUse);
        }
    }

    #[test]
    fn a_list_of_first_use_that_is_full_keeps_newcomers_out_and_those_that_it_knows_in() {
        let mut callers = Callers::new(CallerPolicy::FirstUse, CallerLists::default());
        let all = MAX_LISTED as u16;
        assert!((0..all).all(|number| callers.admit(Time::ZERO, name(number), None)));
        assert!(!callers.admit(Time::ZERO, name(all), None));
        assert!(callers.admit(Time::ZERO, name(0), None));
        assert!(!callers.decide(name(all), true));
        assert!(callers.decide(name(0), false) && callers.decide(name(all), true));
    }

    #[test]
    fn who_was_refused_is_remembered_once_and_in_a_bounded_list() {
        let mut callers = Callers::new(CallerPolicy::Listed, CallerLists::default());
        for number in 0..200 {
            callers.admit(Time::ZERO, name(number), None);
            callers.admit(Time::from_secs(1), name(7), None);
        }
        assert_eq!(callers.refused().len(), MAX_REFUSED);
        let last = callers.refused().last().unwrap();
        assert_eq!(
            (last.name, last.times, last.at),
            (name(7), 201, Time::from_secs(1))
        );
        assert!(callers.decide(name(7), true));
        assert!(
            callers
                .refused()
                .iter()
                .all(|refused| refused.name != name(7))
        );
    }
}
